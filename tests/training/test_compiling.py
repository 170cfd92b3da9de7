"""A compiler that fails costs a line, not the run; and a stop is a stop, even inside it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from torch import nn

from stepnet import create_model
from stepnet.training import machine, train
from stepnet.training.machine import compiled_or_eager
from stepnet.training.trainer import Trainer
from stepnet.training.trial import trial_step
from training.runs import assert_same_run
from training.tiny import tiny_config


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_failing_compiler_is_tried_with_a_fresh_cache_and_then_done_without(failures, monkeypatch):
    notes, caches, network = [], [], nn.Linear(2, 2)

    def trial(model):
        caches.append(os.environ.get("TORCHINDUCTOR_CACHE_DIR"))
        if len(caches) <= failures:
            raise OSError("libkernel.so: file too short")

    monkeypatch.setattr(machine, "compiled", lambda network: nn.Sequential(network))
    with ExitStack() as held:
        model = compiled_or_eager(network, trial, notes.append, held)
        assert (model is network) == (failures == 2)
    assert sum("file too short" in note for note in notes) == failures
    assert all("\n" not in note for note in notes)
    assert len(caches) == min(failures + 1, 2) and len(set(caches)) == len(caches)


def test_blocks_that_were_compiled_in_place_are_forgotten(monkeypatch):
    network = create_model("resnet20", stochastic_depth=0.5)

    def trial(model):
        raise RuntimeError("no compiler")

    model = compiled_or_eager(network, trial, lambda text: None, ExitStack())
    assert model is network and all(module._compiled_call_impl is None for module in network.modules())


def test_the_trial_leaves_the_network_as_it_was(tmp_path):
    with Trainer(tiny_config(tmp_path / "a", model="tiniest"), resume=True) as trainer:
        before = {name: value.clone() for name, value in trainer.network.state_dict().items()}
        trial_step(trainer, trainer.network)
        assert all(torch.equal(value, before[name]) for name, value in trainer.network.state_dict().items())
        assert all(parameter.grad is None for parameter in trainer.network.parameters())


def test_a_run_whose_compiler_fails_is_the_run_without_it(tmp_path, monkeypatch):
    class Broken(nn.Module):
        def __init__(self, network):
            super().__init__()
            self.network = network

        def forward(self, *inputs, **options):
            raise RuntimeError("ld: truncated file")

    monkeypatch.setattr(machine, "compiled", Broken)
    compiled, eager = (
        train(tiny_config(tmp_path / str(flag), model="tiniest", compile=flag, recipe={"epochs": 1}))
        for flag in (True, False)
    )
    assert_same_run(compiled, eager)


COMPILE = """
import sys, torch
from contextlib import ExitStack
from stepnet.training.machine import compiled_or_eager

network = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
notes = []
with ExitStack() as held:
    model = compiled_or_eager(network, lambda model: model(torch.ones(2, 4)).sum().backward(), notes.append, held)
    print("compiled" if model is not network else "eager", "fresh" if any("fresh" in n for n in notes) else "as it was")
"""


@pytest.mark.slow
def test_a_library_that_was_cut_off_in_the_cache_is_compiled_anew(tmp_path):
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}

    def run():
        command = [sys.executable, "-c", COMPILE]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300).stdout.split(
            maxsplit=1
        )

    assert run() == ["compiled", "as it was\n"]
    libraries = list(tmp_path.rglob("*.so"))
    assert libraries
    for library in libraries:
        library.write_bytes(library.read_bytes()[:100])
    assert run() == ["compiled", "fresh\n"]


SLOW_COMPILER = """#!/bin/sh
for word in "$@"; do case "$word" in --version|-v) exec g++ "$@";; esac; done
touch {mark}
exec sleep 60
"""


@pytest.mark.slow
def test_ctrl_c_inside_the_compiler_is_a_stop_in_one_line(tmp_path):
    """The terminal sends it to the compiler too."""
    compiler, mark = tmp_path / "g++", tmp_path / "compiling"
    compiler.write_text(SLOW_COMPILER.format(mark=mark))
    compiler.chmod(0o755)
    environment = os.environ | {"CXX": str(compiler), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), environment.get("PYTHONPATH", "")])
    code = "import sys; from training import tiny; from stepnet.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["train", "tiniest", "--compile", "True", "--out", str(tmp_path / "run")]
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        for _ in range(2400):
            if mark.exists() or process.poll() is not None:
                break
            time.sleep(0.1)
        assert mark.exists(), process.communicate()
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    assert len(told.splitlines()) <= 3 and "stopped by SIGINT; before its first step" in told
