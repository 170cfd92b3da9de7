"""Every row of `stepnet table residual` is trained, resumed, saved, exported and drawn.

`tests/conversion/test_sublayers.py` puts each into a GPT-2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import stepnet
from stepnet.cli import main
from stepnet.exchange import export_onnx
from stepnet.report.residual_connections import residual_schemes
from stepnet.training import Run, train
from stepnet.training.saving import Interrupted
from training.runs import StopAt, assert_same_run
from training.tiny import tiny_config

ROWS = list(residual_schemes())
LEARNED = [name for name in ROWS if stepnet.get_scheme(name).trainable]
IMAGES = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def coefficients_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: torch.as_tensor(value) for name, value in stepnet.coefficients(model).items()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A run of each row on digits, made when first asked for."""
    folder = tmp_path_factory.mktemp("runs")

    class Runs(dict[str, Run]):
        def __missing__(self, scheme: str) -> Run:
            self[scheme] = train(config(folder / scheme, scheme))
            return self[scheme]

    return Runs()


def config(out: Path, scheme: str) -> Any:
    return tiny_config(out, **network_of(scheme))


def network_of(scheme: str) -> dict[str, Any]:
    """A ResNet of two stages; for a splitting a ViT, whose layers have two branches, and where that is faster."""
    if stepnet.get_scheme(scheme).splits or scheme in ("altup", "dynamic_hyper"):
        return {"model": "vit1x8", "scheme": scheme, "model_kwargs": {"heads": 1}}
    return {"model": "tiniest", "scheme": scheme, "model_kwargs": {"depths": (3, 3)}}


@pytest.mark.filterwarnings("ignore:multistep takes 2 of 6 steps")
@pytest.mark.parametrize("scheme", ROWS)
def test_it_is_trained_on_digits_and_resumed_to_the_bit(scheme: str, runs: dict[str, Run], tmp_path: Path) -> None:
    stopped = config(tmp_path / "stopped", scheme)
    with pytest.raises(Interrupted):
        train(stopped, callbacks=[StopAt(1, 2)])
    assert_same_run(train(stopped), runs[scheme])
    first, last = (line["loss"] for line in runs[scheme].metrics())
    assert last < first
    torch.manual_seed(0)
    learned = coefficients_of(stepnet.load(runs[scheme].folder))
    own = network_of(scheme)
    start = coefficients_of(stepnet.create_model(own["model"], scheme=scheme, **own["model_kwargs"]))
    assert learned.keys() == start.keys() and bool(learned) == (scheme in LEARNED)
    names = {name.rpartition(":")[2] for name in learned}
    moved = {name.rpartition(":")[2] for name in learned if not torch.equal(learned[name], start[name])}
    assert moved == names


@pytest.mark.filterwarnings("ignore:multistep takes 2 of 6 steps")
@pytest.mark.parametrize("scheme", ROWS)
def test_it_is_saved_exported_and_drawn(scheme: str, runs: dict[str, Run], tmp_path: Path) -> None:
    network = stepnet.load(runs[scheme].folder).eval()
    stepnet.save(network, tmp_path / "network.safetensors")
    again = stepnet.load(tmp_path / "network.safetensors").eval()
    assert torch.equal(again(IMAGES), network(IMAGES)) and again.scheme.name == scheme
    pytest.importorskip("onnxruntime")
    assert export_onnx(network, tmp_path / "network.onnx") < 1e-5  # by torch.export, and run by onnxruntime
    assert stepnet.plot_network(network).axes
    assert main(["inspect", str(runs[scheme].folder)]) == 0
    if scheme in LEARNED:
        assert main(["figure", "k", str(runs[scheme].folder), "--out", str(tmp_path / "k.svg")]) == 0
    network.train().set_memory("recompute")
    torch.testing.assert_close(network(IMAGES), again.train()(IMAGES))
