"""The processes of a run and their communication; a single process sends nothing."""

from __future__ import annotations

import atexit
import gc
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import broadcast_object_list, patch_environment
from torch import Tensor, nn
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]  # public, though not in its `__all__`

from stepnet.errors import UserError
from stepnet.training.config import TrainConfig
from stepnet.training.machine import default_device
from stepnet.training.sharding import shard

T = TypeVar("T")
FSDP, FSDP_VERSION = "ACCELERATE_USE_FSDP", "FSDP_VERSION"  # how `accelerate launch` asks for a network in parts
REFUSED = {"DeepSpeed": "ACCELERATE_USE_DEEPSPEED", "Megatron-LM": "ACCELERATE_USE_MEGATRON_LM"}


class Processes:
    """The processes of the run, from the view of one of them."""

    def __init__(self, config: TrainConfig) -> None:
        if config.log != "none" and find_spec(config.log) is None:
            raise UserError(f"--log {config.log} needs the package {config.log}: pip install {config.log}")
        for name, flag in REFUSED.items():
            if is_set(flag):
                raise UserError(f"{name}: stepnet does not support it; launch the run without {name}")
        self.is_sharded = self._asks_for_parts(config)
        use_fresh_store()
        leave_group_at_exit()
        precision = "no" if config.precision == "fp32" else config.precision
        if AcceleratorState._shared_state.get("_mixed_precision", precision) != precision:
            AcceleratorState._reset_state()  # of an earlier run in this process, in another precision
        # Accelerate shards on GPUs only, and loses the optimiser's state: `shard` does it instead.
        with patch_environment(ACCELERATE_USE_FSDP="false"):
            self.accelerator = Accelerator(
                cpu=_on_cpu(config.device),
                mixed_precision=precision,
                log_with=None if config.log == "none" else config.log,
                project_dir=config.out,
            )
        self.count: int = self.accelerator.num_processes
        self.rank: int = self.accelerator.process_index
        self.is_main: bool = self.accelerator.is_main_process
        self.device: torch.device = self.accelerator.device
        self.is_sharded &= self.count > 1

    def _asks_for_parts(self, config: TrainConfig) -> bool:
        """Whether to shard the network; raise for options that sharding does not support."""
        if not is_set(FSDP):
            return False
        if os.environ.get(FSDP_VERSION, "2") != "2":
            raise UserError(f"FSDP version {os.environ[FSDP_VERSION]}: launch with --fsdp_version 2, `fully_shard`")
        refused = {
            "--fsdp_offload_params": is_set("FSDP_OFFLOAD_PARAMS"),
            "--fsdp_activation_checkpointing": is_set("FSDP_ACTIVATION_CHECKPOINTING"),
            "--ema": config.recipe.ema is not None,
            "--levels": bool(config.recipe.levels),
            "--compile": config.compile,
            "--precision fp16": config.precision == "fp16",
        }
        for option, asked in refused.items():
            if asked:
                raise UserError(f"{option}: not with FSDP; leave one of them out")
        return True

    def prepare(self, model: nn.Module, network: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Any, Any]:
        """Return model and optimiser for training steps: sharded, or replicated in each process."""
        if not self.is_sharded:
            return self.accelerator.prepare(model, optimizer)  # type: ignore[no-any-return]
        shard(network, optimizer)
        prepared = self.accelerator.prepare_model(network, device_placement=False, evaluation_mode=True)
        return prepared, self.accelerator.prepare_optimizer(optimizer, device_placement=False)

    def inference(self) -> AbstractContextManager[Any]:
        """Disable gradients; not by inference mode if sharded, since weights gathered in it could not be trained."""
        return torch.no_grad() if self.is_sharded else torch.inference_mode()

    def sum(self, values: Tensor) -> list[float]:
        """Return the sum over all processes. Synchronises with the device."""
        total: Tensor = self.accelerator.reduce(values, "sum") if self.count > 1 else values
        return total.tolist()

    def largest(self, values: Sequence[float]) -> list[float]:
        """Return the maximum of each number over all processes."""
        if self.count == 1:
            return list(values)
        row = torch.tensor([list(values)], dtype=torch.float64, device=self.device)
        every: Tensor = self.accelerator.gather(row)
        return every.amax(0).tolist()

    def on_main(self, action: Callable[[], T]) -> T:
        """Run `action` on the main process and return its result in all; a `UserError` is raised in all."""
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


def is_set(flag: str) -> bool:
    """Whether an environment variable is true."""
    return os.environ.get(flag, "false").lower() in ("true", "1")


def _on_cpu(device: str | None) -> bool:
    """Whether a run is on the CPU; tell Accelerate to use another device."""
    if device is None:
        return default_device() == "cpu"
    kind, _, number = device.partition(":")
    there = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if kind not in there or (number and not number.isdecimal()):
        raise UserError(f"device = {device!r}: expected cpu, cuda, cuda:1 or mps")
    if int(number or 0) >= there[kind]:
        raise UserError(f"device = {device!r}: this machine has {there[kind]} of them; leave --device out, or use cpu")
    if kind != "cpu":
        os.environ["ACCELERATE_TORCH_DEVICE"] = device  # read when the first run of a process begins
    return kind == "cpu"


# Where the processes of a run meet, when torchrun starts them again, and when they leave.
#
# torchrun's agent keeps one key-value store for all attempts, and the keys under which processes publish their
# addresses are the same in each. After a rank was killed, a restarted one may read the address of a dead one there and
# fail with "connection refused". So each attempt gets a store of its own, held by rank 0; the agent's store only says
# where it is.

PORT_KEY = "stepnet/port_of_rank_0"


@cache  # one process belongs to one attempt; the store lives as long as the process
def use_fresh_store(patience: float = 300.0) -> Store | None:
    """Use a separate store for this attempt in torch's rendezvous; None if no torchrun agent keeps a shared one."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    agents = TCPStore(host, port, is_master=False)
    if os.environ["RANK"] == "0":
        store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        agents.set(PORT_KEY, str(store.port))
    else:
        store = TCPStore(host, _living_port(host, agents, patience), is_master=False)
    os.environ["MASTER_PORT"] = str(store.port)
    return store


@cache
def leave_group_at_exit() -> None:
    """Leave the process group when this process ends, and not before: `compare` trains one network after the other."""
    atexit.register(_leave_group)


def _leave_group() -> None:
    if dist.is_initialized():
        gc.collect()  # sharded networks refer to groups, whose threads must end before the interpreter does
        dist.destroy_process_group()


def _living_port(host: str, agents: Store, patience: float) -> int:
    """The port that rank 0 published; a dead attempt's refuses, and then the key is read again."""
    until = time.monotonic() + patience
    while True:
        port = int(agents.get(PORT_KEY))
        try:
            socket.create_connection((host, port), timeout=5).close()
            return port
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
