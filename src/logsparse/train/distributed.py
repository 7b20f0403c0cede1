"""The environment of torchrun -> ranks that train one network together; one process is the trivial case.

The only module that uses torch.distributed. Ranks see disjoint shares of one global batch, so that two processes take
the same steps as one. A rank that dies closes its connections, and the others end with an error instead of waiting.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from logsparse.errors import ConfigError, shown

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


@contextmanager
def join(device: torch.device) -> Iterator[Ranks]:
    """Join the ranks of torchrun for the duration of the block; without torchrun there is one rank."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Ranks(device=device)
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    store, rank, count = next(dist.rendezvous("env://", timeout=_TIMEOUT))  # type: ignore[attr-defined]
    # A restarted group shares the store of the group before it, which holds the addresses of dead ranks.
    store = dist.PrefixStore(  # type: ignore[attr-defined]
        f"restart-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store
    )
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=_TIMEOUT)
    try:
        yield Ranks(rank, count, device)
    finally:
        dist.destroy_process_group()


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
