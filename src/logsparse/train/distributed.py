"""The environment of torchrun -> ranks that train one network together; one process is the trivial case.

The only module that uses torch.distributed. Ranks see disjoint shares of one global batch, so that two processes take
the same steps as one. A rank that dies closes its connections, and the others end with an error instead of waiting.
Ranks trust one another, as torch does: objects that they exchange are not checked.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from itertools import count as counted
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from logsparse.errors import ConfigError, LogsparseError, shown

# How long a rank waits for another that is alive but silent, such as one that still reads its data.
_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True)
class Ranks:
    """Number of this process, number of processes, and device."""

    rank: int = 0
    count: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def leads(self) -> bool:
        """True for the rank that writes files and reports progress."""
        return self.rank == 0

    def share(self, network: nn.Module) -> nn.Module:
        """Return the network with its gradients averaged over the ranks."""
        if self.count == 1:
            return network
        devices = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(network, device_ids=devices)

    def total(self, value: Tensor) -> Tensor:
        """Return the sum over all ranks, without a gradient."""
        if self.count > 1:
            value = value.detach().clone()
            dist.all_reduce(value)
        return value

    def any(self, flag: bool) -> bool:
        """Return True on all ranks if the flag is True on any."""
        return bool(self.total(torch.tensor(float(flag), device=self.device)).item())

    def wait(self) -> None:
        """Wait until all ranks arrive here."""
        if self.count > 1:
            dist.barrier()

    def gather(self, own: Any) -> list[Any]:
        """Return the objects of all ranks, in their order; raise the error of a rank that failed in `together`."""
        found: list[Any] = [own]
        if self.count > 1:
            found = [None] * self.count
            dist.all_gather_object(found, own)
        for one in found:
            if isinstance(one, _FailedError):
                raise one
        return found

    def gather_on_first(self, own: Any) -> list[Any] | None:
        """Return the objects of all ranks on the first, None on the others."""
        found: list[Any] | None = [own] * self.count if self.leads else None
        if self.count > 1:
            dist.gather_object(own, found)
        return found

    @contextmanager
    def together(self) -> Iterator[None]:
        """Raise the error of one rank on all of them, so that none waits for another; inside, they meet in `gather`."""
        own: Exception | None = None
        try:
            try:
                yield
            except _FailedError:
                raise
            except Exception as error:  # noqa: BLE001 - raised again, here or as that of an earlier rank
                own = error
            # A rank that fails sends this instead of what the others wait for, there or here.
            self.gather(None if own is None else _FailedError(self.rank, _sendable(own)))
        except _FailedError as failed:
            rank, theirs = failed.args
            raise (own if own is not None and rank == self.rank else theirs) from None


class _FailedError(Exception):
    """Number of a rank that cannot go on, and its error."""


def _sendable(error: Exception) -> Exception:
    """Return the error, or one with its text: those of other libraries may not survive the way."""
    return error if isinstance(error, LogsparseError) else RuntimeError(f"{type(error).__name__}: {error}")


@contextmanager
def join(device: torch.device) -> Iterator[Ranks]:
    """Join the ranks for the block: those of torchrun, or of a group that is there already; else there is one.

    The group stays for the next block, and is left when the process ends: a network that is still shared by it would
    hang when it is freed. After an error it is left at once, so that the others do not wait.
    """
    if not several():
        yield Ranks(device=device)
        return
    device = _own_device(device)
    if not dist.is_initialized():
        store, rank, count = _met()
        # A group has its own keys: the store still has the addresses of the group before, of which ranks may be dead.
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        number = next(_groups)
        own = dist.PrefixStore(f"restart-{restart}-{number}", store)  # type: ignore[attr-defined]
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=own, rank=rank, world_size=count, timeout=_TIMEOUT)
        atexit.register(_leave)
        _ours.add(number)
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size(), device)
    except BaseException:
        _leave()
        raise


def _leave() -> None:
    """Leave the group, unless it was there before."""
    atexit.unregister(_leave)
    if _ours and dist.is_initialized():
        dist.destroy_process_group()
    _ours.clear()


def several() -> bool:
    """Return True if this process is one of several ranks."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size() > 1
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_first() -> bool:
    """Return True for the rank that writes files and reports, and for a process that is alone."""
    return int(os.environ.get("RANK", "0")) == 0 or not several()


# Groups that this process has joined, which all ranks count alike, and the one that it is in.
_groups = counted()
_ours: set[int] = set()


@cache
def _met() -> tuple[Any, int, int]:
    """Meet the other ranks; the store lives as long as the process, since the first rank may be the one to serve it."""
    store, rank, count = next(dist.rendezvous("env://", timeout=_TIMEOUT))  # type: ignore[attr-defined]
    return store, rank, count


def _own_device(device: torch.device) -> torch.device:
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    return device


def device_named(name: str) -> torch.device:
    """Return the device of this name; `auto` is a GPU if there is one."""
    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).tolist()  # fails on "meta", whose tensors hold no values
    except (RuntimeError, AssertionError, TypeError, ValueError, OverflowError) as error:
        usable = "'auto', 'cpu' or 'cuda'" if torch.cuda.is_available() else "'auto' or 'cpu'"
        raise ConfigError(
            "device must be one that torch can use here.", got=shown(name), hint=f"use {usable}."
        ) from error
    return device
