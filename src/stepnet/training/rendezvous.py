"""Where the processes of a run meet, when torchrun starts them again, and when they leave.

torchrun's agent keeps one key-value store for all attempts, and the keys under which processes publish their addresses
are the same in each. After a rank was killed, a restarted one may read the address of a dead one there and fail with
"connection refused". So each attempt gets a store of its own, held by rank 0; the agent's store only says where it is.
"""

from __future__ import annotations

import atexit
import os
import socket
import time
from functools import cache

import torch.distributed as dist
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]  # public, though not in its `__all__`

PORT_KEY = "stepnet/port_of_rank_0"


@cache  # one process belongs to one attempt; the store lives as long as the process
def use_fresh_store(patience: float = 300.0) -> Store | None:
    """Point torch's rendezvous at a store of this attempt's own; None where no torchrun agent holds a shared one."""
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
    atexit.register(lambda: dist.destroy_process_group() if dist.is_initialized() else None)


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
