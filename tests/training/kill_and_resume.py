"""Train in child processes that are killed with SIGKILL, at the worst moments and at random ones, until one ends.

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

from stepnet import tensors  # noqa: E402
from stepnet.training import Run, train  # noqa: E402
from training.tiny import tiny_config  # noqa: E402

save_file, append_metrics = tensors.save_file, Run.append_metrics


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def half_a_checkpoint(tensors, partial, metadata):
    save_file(tensors, partial, metadata=metadata)
    os.truncate(partial, partial.stat().st_size // 2)
    die()


def half_a_line(self, line):
    self.metrics_file.open("a").write('{"epoch": 0, "lo')
    die()


def line_without_checkpoint(self, line):
    append_metrics(self, line)
    die()


WORST = {
    "while the first checkpoint is written": (tensors, "save_file", half_a_checkpoint),
    "after the best weights, before their line": (Run, "append_metrics", die),
    "in the middle of the line": (Run, "append_metrics", half_a_line),
    "after the line, before the checkpoint that counts it": (Run, "append_metrics", line_without_checkpoint),
    "before the metrics are cut back": (Run, "record_environment", die),
}


def child(folder: Path, *worst: object) -> int:
    pid = os.fork()
    if pid == 0:
        if worst:
            setattr(*worst)
        train(tiny_config(folder, recipe={"epochs": 3}, checkpoint_steps=2))
        os._exit(0)
    return pid


def main(folder: Path, kills: int, seed: int) -> None:
    started = time.monotonic()
    os.waitpid(child(folder / "whole"), 0)
    whole = time.monotonic() - started
    killed = 0
    for when, moment in WORST.items():
        _, status = os.waitpid(child(folder / "killed", *moment), 0)
        assert os.WIFSIGNALED(status), f"not killed {when}"
    moments = random.Random(seed)
    while killed < kills:
        # A sixth of a run at most, so that ten kills fall before its end; later children start further on.
        pid = child(folder / "killed")
        time.sleep(moments.uniform(0.02, whole / 6))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        killed += os.WIFSIGNALED(status)
        if not os.WIFSIGNALED(status):
            break
    _, status = os.waitpid(child(folder / "killed"), 0)
    print(f"killed {killed} times, last exit {status}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
