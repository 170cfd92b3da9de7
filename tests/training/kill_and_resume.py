"""Train in child processes that are killed with SIGKILL at random moments, until one reaches the end.

Run as a script: FOLDER KILLS SEED. One import serves all the children, which are forked before torch has made threads.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parents[1]))

from stepnet.training import train  # noqa: E402
from training.tiny import tiny_config  # noqa: E402


def child(folder: Path) -> int:
    pid = os.fork()
    if pid == 0:
        train(tiny_config(folder, recipe={"epochs": 3}, checkpoint_steps=2))
        os._exit(0)
    return pid


def main(folder: Path, kills: int, seed: int) -> None:
    started = time.monotonic()
    os.waitpid(child(folder / "whole"), 0)
    whole = time.monotonic() - started
    moments = random.Random(seed)
    killed = 0
    while killed < kills:
        # A third of a run at most, so that ten kills fall in all of its parts; later children start further on.
        pid = child(folder / "killed")
        time.sleep(moments.uniform(0.02, whole / 3))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        killed += os.WIFSIGNALED(status)
        if not os.WIFSIGNALED(status):
            break
    _, status = os.waitpid(child(folder / "killed"), 0)
    print(f"killed {killed} times, last exit {status}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
