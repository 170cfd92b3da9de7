"""Whatever the public functions are given, they answer: with a result, or with a `UserError` in one line.

Each call is a right one in which one or two arguments are replaced by something that a person might pass. The
examples are the same in every run; `--hypothesis-profile=explore` looks for new ones.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import stepnet
from stepnet import UserError, analysis
from stepnet.data import get_data
from stepnet.training import evaluate

PATIENCE = 10  # seconds for one call, on a busy machine

JUNK: list[Any] = [
    None, True, 0, -1, 3, 10**30, 2.5, -0.5, float("nan"), float("inf"), 1 + 2j, Fraction(1, 3),
    "", "lm", "zzz", "n" * 300, "zero\0byte", "nowhere/at/all", b"lm", Path("nowhere"),
    [], ["lm"], (), (0, 1), {}, {"k": 1}, {1, 2}, range(3), object(), len, int,
    np.zeros(3), np.array(["a"]), torch.zeros(2), torch.zeros(2, 3, 8, 8), nn.Linear(2, 2),
]  # fmt: skip


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(4, 4)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return u + self.f(u).tanh()


def residual() -> nn.Module:
    return nn.Sequential(Block(), Block(), Block())


CALLS: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "create_model": (stepnet.create_model, {"name": "lm_resnet20", "num_classes": 3, "in_channels": 1, "k": -0.1}),
    "create_model, more": (
        stepnet.create_model,
        {"name": "resnet20", "scheme": "lm", "dt": 0.5, "pretrained": False, "stochastic_depth": None, "depth": 3},
    ),
    "list_models": (stepnet.list_models, {"pattern": "lm_*"}),
    "list_schemes": (stepnet.list_schemes, {"pattern": "*"}),
    "get_scheme": (stepnet.get_scheme, {"name": "lm", "k": -0.5}),
    "solve": (
        stepnet.solve,
        {"f": lambda u: -u, "u0": np.ones(2), "t_span": (0, 1), "steps": 4, "scheme": "lm", "k": -0.1},
    ),
    "convert": (
        stepnet.convert,
        {"model": residual(), "scheme": "lm", "example": torch.zeros(1, 4), "init": "paper", "blocks": None},
    ),
    "revert": (stepnet.revert, {"model": residual()}),
    "coefficients": (stepnet.coefficients, {"model": residual()}),
    "analyse": (lambda **options: str(stepnet.analyse(**options)), {"scheme": "lm", "k": Fraction(-1, 2)}),
    "order": (analysis.order, {"scheme": "heun"}),
    "is_symbolic": (analysis.is_symbolic, {"scheme": "lm"}),
    "stability_interval": (analysis.stability_interval, {"scheme": "ab2"}),
    "zero_stable": (analysis.zero_stable, {"scheme": "lm"}),
    "stability_region": (analysis.stability_region, {"scheme": "euler", "extent": (-3.0, 1.0, -2.0, 2.0), "n": 5}),
    "modified_equation": (analysis.modified_equation, {"scheme": "euler"}),
    "descend": (analysis.descend, {"scheme": "euler", "eigenvalues": [1.0, 2.0], "dt": 0.1, "steps": 3}),
    "best_lm": (analysis.best_lm, {"mu": 1.0, "L": 10.0}),
    "load": (stepnet.load, {"where": "nowhere"}),
    "save": (stepnet.save, {"network": residual(), "path": "model.safetensors", "classes": ("a", "b")}),
    "evaluate": (evaluate, {"model": "nowhere", "which": "last", "data": "digits", "batch_size": 5}),
    "train": (  # never a right call: it would train
        stepnet.train,
        {"model": "no_such_model", "data": "digits", "recipe": "digits", "out": "run", "resume": True, "seed": 1},
    ),
    "plot_stability": (lambda scheme: stepnet.plot_stability(scheme), {"scheme": "zzz"}),
    "plot_modified": (stepnet.plot_modified, {"example": "zzz", "ks": [0.5]}),
    "plot_coefficients": (stepnet.plot_coefficients, {"runs": "nowhere", "epoch": 1}),
    "plot_curves": (stepnet.plot_curves, {"runs": "nowhere", "measure": "loss", "log": False}),
    "plot_network": (stepnet.plot_network, {"model": residual(), "title": "a"}),
    "plot_trajectory": (stepnet.plot_trajectory, {"model": residual(), "images": torch.zeros(2, 4), "labels": [0, 1]}),
    "get_data": (get_data, {"data": "digits", "root": "root", "image_size": None, "val_share": None}),
}


@contextmanager
def in_time() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"no answer within {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_call_gives_a_result_or_a_user_error(name: str, data: st.DataObject, tmp_path_factory: Any) -> None:
    function, right = CALLS[name]
    count = data.draw(st.integers(1, min(2, len(right))))
    places = data.draw(st.lists(st.sampled_from(sorted(right)), min_size=count, max_size=count, unique=True))
    arguments = right | {place: data.draw(st.sampled_from(JUNK)) for place in places}
    own = arguments["f"] if name == "solve" else arguments["model"] if name in ("evaluate", "train") else None
    if own is int or isinstance(own, nn.Module):
        return  # a function or a network that fails by itself, and may say so in its own words
    with chdir(tmp_path_factory.mktemp("fuzz")), in_time(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function(**arguments)
        except UserError as error:
            assert "\n" not in str(error) and len(str(error)) < 1000
