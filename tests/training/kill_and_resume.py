"""Train in child processes that are killed, at the worst moments and at random ones, until one ends.

Run as a script: FOLDER KILLS SEED. One import serves all the children, which are forked before torch has made threads.
What it imported is frozen: no child's garbage collection goes through it, and so copies its pages.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import torch._dynamo  # which the first step of an optimiser imports, in two seconds

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parents[1]))

from stepnet import tensors  # noqa: E402
from stepnet.training import Callback, Run, train  # noqa: E402
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


class Killed(Callback):
    """Dies some milliseconds after its start, its resuming or a step: by SIGALRM, which asks no more than SIGKILL."""

    def __init__(self, moments: random.Random) -> None:
        self.left = moments.choice([0, 1, 2, 3])
        self.seconds = moments.uniform(0.001, 0.02)

    def pass_by(self, *_: object) -> None:
        if self.left == 0:
            signal.setitimer(signal.ITIMER_REAL, self.seconds)
        self.left -= 1

    note = start = step = pass_by


def child(folder: Path, *worst: object, callbacks: Sequence[Callback] = ()) -> int:
    pid = os.fork()
    if pid == 0:
        if worst:
            setattr(*worst)
        train(tiny_config(folder, recipe={"epochs": 3}, checkpoint_steps=2), callbacks=callbacks)
        os._exit(0)
    return pid


def main(folder: Path, kills: int, seed: int) -> None:
    gc.freeze()
    os.waitpid(child(folder / "whole"), 0)
    for when, moment in WORST.items():
        _, status = os.waitpid(child(folder / "killed", *moment), 0)
        assert os.WIFSIGNALED(status), f"not killed {when}"
    moments = random.Random(seed)
    for n in range(kills):  # each gets two steps further at most, so that ten fall before the end
        _, status = os.waitpid(child(folder / "killed", callbacks=[Killed(moments)]), 0)
        assert os.WIFSIGNALED(status), f"at its end after {n} kills"
    _, status = os.waitpid(child(folder / "killed"), 0)
    print(f"killed {kills} times, last exit {status}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
