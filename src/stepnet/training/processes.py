"""The processes of a run, and what they tell each other. A run of one process sends nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import Tensor

from stepnet.errors import UserError
from stepnet.training.config import TrainConfig
from stepnet.training.rendezvous import leave_group_at_exit, use_fresh_store

T = TypeVar("T")
# How `accelerate launch` asks for a network in pieces, which a checkpoint of ours would not hold whole.
SHARDED = {
    "FSDP": "ACCELERATE_USE_FSDP",
    "DeepSpeed": "ACCELERATE_USE_DEEPSPEED",
    "Megatron-LM": "ACCELERATE_USE_MEGATRON_LM",
}


class Processes:
    """All processes of the run, seen from one of them."""

    def __init__(self, config: TrainConfig) -> None:
        if config.log != "none" and find_spec(config.log) is None:
            raise UserError(f"--log {config.log} needs the package {config.log}: pip install {config.log}")
        for name, flag in SHARDED.items():
            if os.environ.get(flag, "false").lower() in ("true", "1"):
                raise UserError(
                    f"{name}: every process of a stepnet run holds the whole network; launch it without {name}"
                )
        use_fresh_store()
        leave_group_at_exit()
        self.accelerator = Accelerator(
            cpu=not torch.cuda.is_available(),
            mixed_precision="no" if config.precision == "fp32" else config.precision,
            log_with=None if config.log == "none" else config.log,
            project_dir=config.out,
        )
        self.count: int = self.accelerator.num_processes
        self.rank: int = self.accelerator.process_index
        self.is_main: bool = self.accelerator.is_main_process
        self.device: torch.device = self.accelerator.device

    def sum(self, values: Tensor) -> list[float]:
        """The sum over all processes, read from the device."""
        total: Tensor = self.accelerator.reduce(values, "sum") if self.count > 1 else values
        return total.tolist()

    def largest(self, values: Sequence[float]) -> list[float]:
        """The largest of each of some numbers over all processes."""
        if self.count == 1:
            return list(values)
        own = torch.tensor([list(values)], dtype=torch.float64, device=self.device)
        every: Tensor = self.accelerator.gather(own)
        return every.amax(0).tolist()

    def on_main(self, action: Callable[[], T]) -> T:
        """What `action` gives on the main process, for all; refused there, it is refused everywhere."""
        outcome: list[Any] = [None, None]
        if self.is_main:
            try:
                outcome[0] = action()
            except UserError as error:
                outcome[1] = str(error)
        value, refusal = broadcast_object_list(outcome)
        if refusal is not None:
            raise UserError(refusal)
        return value  # type: ignore[no-any-return]

    def wait_for_all(self) -> None:
        """A process that left early would cut the connection of the others."""
        self.accelerator.wait_for_everyone()
