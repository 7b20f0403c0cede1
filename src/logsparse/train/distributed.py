"""The environment of torchrun -> ranks that train one network together; one process is the trivial case.

The only place that knows of torch.distributed. Ranks see disjoint shares of one global batch, so that two processes
take the same steps as one. A rank that dies closes its connections: the others end with an error, they never wait.
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

# How long a rank waits for another that is alive but says nothing, such as one still reading its data.
_PATIENCE = timedelta(minutes=10)


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this is."""

    rank: int = 0
    count: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def leads(self) -> bool:
        """The one that writes files and speaks."""
        return self.rank == 0

    def share(self, network: nn.Module) -> nn.Module:
        """The network with gradients averaged over the ranks."""
        if self.count == 1:
            return network
        devices = [self.device.index] if self.device.type == "cuda" else None
        return DistributedDataParallel(network, device_ids=devices)

    def total(self, value: Tensor) -> Tensor:
        """The sum over all ranks, without a gradient."""
        if self.count > 1:
            value = value.detach().clone()
            dist.all_reduce(value)
        return value

    def agree(self, wish: bool) -> bool:
        """Whether any rank wishes it: all get the same answer."""
        return bool(self.total(torch.tensor(float(wish), device=self.device)).item())

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.count > 1:
            dist.barrier()


@contextmanager
def join(device: torch.device) -> Iterator[Ranks]:
    """Under torchrun: one of its ranks, for the time of the block. Otherwise: alone."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Ranks(device=device)
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    store, rank, count = next(dist.rendezvous("env://", timeout=_PATIENCE))  # type: ignore[attr-defined]
    # A restarted group meets in the store of the one before it, where the dead have left their addresses.
    store = dist.PrefixStore(  # type: ignore[attr-defined]
        f"life-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store
    )
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=_PATIENCE)
    try:
        yield Ranks(rank, count, device)
    finally:
        dist.destroy_process_group()


def device_named(name: str) -> torch.device:
    """The device a user means; `auto` is the best there is."""
    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).tolist()  # "meta" makes tensors too, but they hold nothing
    except (RuntimeError, AssertionError, TypeError, ValueError, OverflowError) as error:
        usable = "'auto', 'cpu' or 'cuda'" if torch.cuda.is_available() else "'auto' or 'cpu'"
        raise ConfigError(
            "device must be one that torch can use here.", got=shown(name), hint=f"use {usable}."
        ) from error
    return device
