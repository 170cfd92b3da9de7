"""Whatever a public function or class is given, it answers: with a result, or with a `UserError` in one line.

Each call is a right one in which one or two arguments are replaced by something that a person might pass. The calls are
the same in every run; STEPNET_FUZZ_SEED=1 STEPNET_FUZZ_CALLS=2000 makes others, and more of them.
"""

from __future__ import annotations

import copy
import os
import random
import re
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from fractions import Fraction
from functools import cache
from io import StringIO
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import stepnet
from stepnet import UserError, analysis, conversion, data, exchange, nets, schemes, training
from stepnet.data import get_data
from stepnet.exchange.prediction import predict

SEED = int(os.environ.get("STEPNET_FUZZ_SEED", "0"))
CALLS = int(os.environ.get("STEPNET_FUZZ_CALLS", "30"))  # of each function
PATIENCE = 20  # seconds for one call, on a busy machine

JUNK: list[Any] = [
    None, True, 0, -1, 3, 10**30, 10**400, 2.5, -0.5, 1e308, 1e-320, float("nan"), float("inf"), 1 + 2j, Fraction(1, 3),
    "", "lm", "zzz", "n" * 300, "zero\0byte", "nowhere/at/all", "\udcff", "lm+lm", b"lm", Path("nowhere"), Path("a\0b"),
    [], ["lm"], [0.5, "a"], (), (0, 1), (1.0, float("nan")), {}, {"k": 1}, {1: 2}, {1, 2}, range(3), object(), len, int,
    np.zeros(3), np.array(["a"]), np.float32(0.5), np.int64(2), torch.zeros(2), torch.zeros(2, 3, 8, 8),
    torch.tensor(1.5), torch.zeros(0), nn.Linear(2, 2),
]  # fmt: skip


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(4, 4)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return u + self.f(u).tanh()


def residual() -> nn.Module:
    return nn.Sequential(Block(), Block(), Block())


@cache
def converted() -> nn.Module:
    return stepnet.convert(residual(), "lm", torch.zeros(1, 4))


@cache
def pictured() -> nn.Module:
    """A network that tells how a picture becomes its input."""
    network = stepnet.create_model("lm_resnet20", num_classes=3, in_channels=1)
    how = exchange.Preprocessing(channels=1, image_size=8, resize=8, mean=(0.5,), std=(0.5,))
    stepnet.save(network, "pictured.safetensors", preprocessing=how)
    return stepnet.load("pictured.safetensors")


def images() -> data.ImageSet:
    return data.ImageSet(np.zeros((4, 8, 8, 1), np.uint8), np.array([0, 1, 0, 1]), ("a", "b"))


def tiny() -> data.Data:
    return data.Data("tiny", images(), images())


def list_of(function: Callable[..., Iterator[object]]) -> Callable[..., object]:
    return lambda **arguments: list(function(**arguments))


class Regression(training.Task):
    metrics = (training.Metric("rmse"),)


class Law(analysis.get_noise("gaussian").__class__):
    """A noise of one's own."""


class Registered:
    """What a decorator of `register_…` returned, used once and forgotten."""

    def __init__(self, register: Callable[..., Any], target: object) -> None:
        self.register, self.target = register, target

    def __call__(self, **arguments: object) -> object:
        return self.register(**arguments)(self.target)


# A right call of every public function and class: `function(**arguments)`; arguments are made when they are needed.
RIGHT: dict[str, tuple[Callable[..., object], Callable[[], dict[str, Any]]]] = {
    "create_model": (
        stepnet.create_model,
        lambda: {"name": "lm_resnet20", "num_classes": 3, "in_channels": 1, "k": -0.1, "k_bound": None, "memory": None},
    ),
    "create_model, residual": (
        stepnet.create_model,
        lambda: {"name": "resnet20", "scheme": "lm", "dt": 0.5, "stochastic_depth": 0.5, "shortcut": "raw"},
    ),
    "create_model, families": (
        stepnet.create_model,
        lambda: {"name": "fractalnet20", "widths": (4, 4), "drop_path": 0.1, "global_drop": 0.5, "seed": 0},
    ),
    "list_models": (stepnet.list_models, lambda: {"pattern": "lm_*"}),
    "register_model": (
        Registered(stepnet.register_model, lambda **options: residual()),
        lambda: {"name": "mine", "family": "mine", "scheme": "euler", "image_size": 32, "num_classes": 10},
    ),
    "list_schemes": (stepnet.list_schemes, lambda: {"pattern": "*"}),
    "get_scheme": (stepnet.get_scheme, lambda: {"name": "lm", "k": -0.5}),
    "register_scheme": (Registered(stepnet.register_scheme, schemes.Euler), lambda: {"name": "mine", "aliases": ()}),
    "solve": (
        stepnet.solve,
        lambda: {"f": lambda u: -u, "u0": np.ones(2), "t_span": (0, 1), "steps": 4, "scheme": "lm", "k": -0.1},
    ),
    "convert": (
        stepnet.convert,
        lambda: {
            "model": residual(),
            "scheme": "lm",
            "example": torch.zeros(1, 4),
            "init": "paper",
            "blocks": None,
            "dt": 1,
            "k_bound": None,
            "memory": "stored",
        },
    ),
    "read": (stepnet.read, lambda: {"model": residual(), "example": torch.zeros(1, 4), "blocks": None}),
    "assert_scheme": (
        stepnet.assert_scheme,
        lambda: {
            "model": residual(),
            "scheme": "euler",
            "example": torch.zeros(1, 4),
            "tolerance": 1.0,
            "blocks": None,
        },
    ),
    "refine": (
        stepnet.refine,
        lambda: {"network": stepnet.create_model("resnet20"), "factor": 2, "depths": None, "interpolation": "copied"},
    ),
    "coarsen": (
        stepnet.coarsen,
        lambda: {"network": stepnet.create_model("resnet20"), "keep": 0.5, "example": None, "refit": False},
    ),
    "depth_transfer": (
        stepnet.depth_transfer,
        lambda: {"network": stepnet.create_model("resnet20"), "base_depth": 8, "rule": "1/L"},
    ),
    "revert": (stepnet.revert, lambda: {"model": copy.deepcopy(converted())}),
    "coefficients": (stepnet.coefficients, lambda: {"model": residual()}),
    "load": (stepnet.load, lambda: {"where": "nowhere", "model": None, "example": None}),
    "save": (
        stepnet.save,
        lambda: {
            "network": residual(),
            "path": "a.safetensors",
            "classes": ("a",),
            "preprocessing": None,
            "license": "",
        },
    ),
    "train": (  # never a right call: it would train
        stepnet.train,
        lambda: {
            "model": "no_such_model",
            "data": "digits",
            "recipe": "digits",
            "out": "run",
            "resume": True,
            "seed": 1,
            "model_kwargs": {},
            "scheme": None,
            "image_size": None,
            "val_share": None,
        },
    ),
    "lesion_study": (
        stepnet.lesion_study,
        lambda: {"model": converted(), "images": torch.zeros(2, 4), "labels": torch.zeros(2).long(), "batch_size": 2},
    ),
    "plot_stability": (
        lambda scheme, **more: stepnet.plot_stability(scheme, **more),
        lambda: {"scheme": "zzz", "extent": (-1.0, 1.0, -1.0, 1.0)},
    ),
    "plot_order": (lambda scheme: stepnet.plot_order(scheme), lambda: {"scheme": "zzz"}),
    "plot_modified": (stepnet.plot_modified, lambda: {"example": "zzz", "ks": [0.5]}),
    "plot_coefficients": (stepnet.plot_coefficients, lambda: {"runs": "nowhere", "epoch": 1}),
    "plot_compression": (stepnet.plot_compression, lambda: {"runs": "nowhere", "data": "cifar10"}),
    "plot_curves": (stepnet.plot_curves, lambda: {"runs": "nowhere", "measure": "loss", "log": False}),
    "plot_lesion": (stepnet.plot_lesion, lambda: {"lesions": {}}),
    "plot_network": (stepnet.plot_network, lambda: {"model": converted(), "title": "a"}),
    "plot_networks": (stepnet.plot_networks, lambda: {"models": {}}),
    "plot_reading": (lambda model: stepnet.plot_reading(stepnet.read(model)), lambda: {"model": converted()}),
    "plot_spectrum": (
        stepnet.plot_spectrum,
        lambda: {"model": residual(), "image": torch.zeros(1, 4), "precomputed": None},
    ),
    "plot_trajectory": (
        stepnet.plot_trajectory,
        lambda: {"model": converted(), "images": torch.zeros(2, 4), "labels": [0, 1]},
    ),
    # schemes
    "Equation": (schemes.Equation, lambda: {"derivative": 1, "mass": 1, "linear": False, "partitioned": False}),
    "Fractal": (schemes.Fractal, lambda: {"columns": 2}),
    "BackwardEuler": (schemes.BackwardEuler, lambda: {"tolerance": 1e-12}),
    "Strang": (schemes.Strang, lambda: {"base": "euler"}),
    "LM": (schemes.LM, lambda: {"k": -0.1}),
    "Leapfrog": (schemes.Leapfrog, lambda: {"velocity": 0}),
    "LinearMultistep": (
        schemes.LinearMultistep,
        lambda: {"alpha": (1, -1), "beta": (0, 1), "start": None, "order": None},
    ),
    "Neumann": (schemes.Neumann, lambda: {"m": 2}),
    "Picard": (schemes.Picard, lambda: {"m": 2}),
    "RungeKutta": (schemes.RungeKutta, lambda: {"tableau": schemes.Tableau(((),), (1,)), "order": 1}),
    "Tableau": (schemes.Tableau, lambda: {"a": ((), (1,)), "b": (0.5, 0.5)}),
    "aliases_of": (schemes.aliases_of, lambda: {"name": "lm"}),
    "register_family": (schemes.register_family, lambda: {"prefix": "mine", "make": schemes.Neumann}),
    # analysis
    "analyse": (lambda **options: str(stepnet.analyse(**options)), lambda: {"scheme": "lm", "k": Fraction(-1, 2)}),
    "SchemeAnalysis": (analysis.SchemeAnalysis, lambda: {"scheme": "lm", "k": Fraction(-1, 2)}),
    "order": (analysis.order, lambda: {"scheme": "heun", "against": None}),
    "stability_interval": (analysis.stability_interval, lambda: {"scheme": "ab2"}),
    "stable": (analysis.analyse("euler").stable, lambda: {"at": -1}),
    "zero_stable": (analysis.zero_stable, lambda: {"scheme": "lm"}),
    "stability_region": (
        analysis.stability_region,
        lambda: {"scheme": "euler", "extent": (-3.0, 1.0, -2.0, 2.0), "n": 5},
    ),
    "modified_equation": (analysis.modified_equation, lambda: {"scheme": "euler", "terms": 1, "form": None}),
    "march_and_modified": (
        analysis.march_and_modified,
        lambda: {"scheme": "lm", "eigenvalues": [1.0], "step": 0.1, "steps": 3, "start": 1.0},
    ),
    "convergence": (analysis.convergence, lambda: {"scheme": "lm", "steps": (4, 8), "k": 0.5}),
    "convergence_rate": (analysis.convergence_rate, lambda: {"scheme": "euler", "eigenvalues": [1.0], "dt": 0.1}),
    "descend": (analysis.descend, lambda: {"scheme": "euler", "eigenvalues": [1.0, 2.0], "dt": 0.1, "steps": 3}),
    "best_euler": (analysis.best_euler, lambda: {"mu": 1.0, "L": 10.0}),
    "best_lm": (analysis.best_lm, lambda: {"mu": 1.0, "L": 10.0}),
    "falling": (analysis.falling, lambda: {"end": 0.5, "duration": 1.0}),
    "register_noise": (Registered(analysis.register_noise, Law), lambda: {"name": "mine"}),
    "get_noise": (analysis.get_noise, lambda: {"noise": "stochastic_depth", "p": 0.5}),
    "analyse_noise": (
        lambda **options: repr(analysis.analyse_noise(**options)),
        lambda: {"noise": "gaussian", "samples": 2000, "damping": None, "sigma": 0.5},
    ),
    "NoiseAnalysis": (analysis.NoiseAnalysis, lambda: {"noise": "gaussian", "samples": 2000, "damping": 0.5}),
    "one_step_error": (analysis.one_step_error, lambda: {"noise": "stochastic_depth", "moment": 1, "damping": None}),
    "weak_condition": (analysis.weak_condition, lambda: {"noise": "stochastic_depth", "p": 0.5}),
    "stochastic_equation": (analysis.stochastic_equation, lambda: {"noise": "stochastic_depth", "damping": None}),
    "weak_error": (
        analysis.weak_error,
        lambda: {
            "noise": "gaussian",
            "steps": 3,
            "moment": 1,
            "problem": None,
            "samples": 2000,
            "seed": 0,
            "sigma": 0.5,
        },
    ),
    "weak_order": (
        analysis.weak_order,
        lambda: {
            "noise": "gaussian",
            "moment": 1,
            "problem": None,
            "steps": (4, 8),
            "samples": None,
            "seed": 0,
            "sigma": 0.5,
        },
    ),
    "Problem": (
        analysis.Problem,
        lambda: {"rates": (-0.4,), "f": None, "start": 1.0, "time": 1.0, "scheme": "euler", "damping": None},
    ),
    "Stencil": (analysis.Stencil, lambda: {"name": "upwind", "weights": {0: 1}}),
    "modified_transport": (analysis.modified_transport, lambda: {"stencil": analysis.LAX_WENDROFF, "terms": 1}),
    # nets
    "compile_blocks": (nets.compile_blocks, lambda: {"model": residual()}),
    "model_entry": (nets.model_entry, lambda: {"name": "resnet20"}),
    "StochasticDepth": (
        nets.StochasticDepth,
        lambda: {"survival": 0.5, "depth": 3, "mode": "batch", "scaling": "mean", "dt": 1, "seed": 0},
    ),
    "load_weights": (
        nets.load_weights,
        lambda: {"network": residual(), "weights": residual().state_dict(), "new_head": False},
    ),
    # conversion
    "describe": (
        conversion.describe,
        lambda: {"model": residual(), "scheme": "lm", "example": torch.zeros(1, 4)},
    ),
    "split_block": (conversion.split_block, lambda: {"block": Block, "branch": "f", "shortcut": "", "activation": ""}),
    "list_foreign": (conversion.list_foreign, lambda: {"library": "zzz"}),
    "load_foreign": (conversion.load_foreign, lambda: {"name": "zzz", "num_classes": 3, "in_channels": 1}),
    # exchange
    "Preprocessing": (
        exchange.Preprocessing,
        lambda: {"channels": 1, "image_size": 8, "resize": 8, "mean": (0.5,), "std": (0.5,)},
    ),
    "predict": (
        list_of(predict),
        lambda: {"network": pictured(), "pictures": [np.zeros((8, 8), np.uint8)], "top": 2},
    ),
    # data
    "get_data": (get_data, lambda: {"data": "digits", "root": "root", "image_size": None, "val_share": None}),
    "data_root": (data.data_root, lambda: {"root": None}),
    "register_data": (Registered(data.register_data, lambda root: tiny()), lambda: {"name": "mine"}),
    "Augmentation": (data.Augmentation, lambda: {"pad": 1, "flip": True}),
    "ImageSet": (data.ImageSet, lambda: {name: getattr(images(), name) for name in ("images", "labels", "classes")}),
    "Data": (data.Data, lambda: {"name": "tiny", "train": images(), "test": images()}),
    "Batches": (
        lambda **options: next(data.Batches(**options).epoch()),
        lambda: {
            "source": images(),
            "normalise": tiny().normalise,
            "batch_size": 2,
            "seed": 0,
            "rank": 0,
            "world_size": 1,
        },
    ),
    "training_batches": (
        data.training_batches,
        lambda: {"data": tiny(), "batch_size": 2, "seed": 0, "rank": 0, "world_size": 1},
    ),
    "evaluation_batches": (
        data.evaluation_batches,
        lambda: {"data": tiny(), "batch_size": 2, "rank": 0, "world_size": 1},
    ),
    # training
    "evaluate": (
        training.evaluate,
        lambda: {"model": "nowhere", "which": "last", "data": "digits", "batch_size": 5, "data_root": None},
    ),
    "Recipe": (
        training.Recipe,
        lambda: {
            "epochs": 3,
            "batch_size": 2,
            "lr": 0.1,
            "milestones": (1,),
            "nesterov": True,
            "stochastic_depth": 0.5,
        },
    ),
    "get_recipe": (training.get_recipe, lambda: {"name": "fast"}),
    "TrainConfig": (
        training.TrainConfig,
        lambda: {
            "model": "resnet20",
            "data": "digits",
            "model_kwargs": {},
            "seed": 1,
            "recipe": training.Recipe(),
            "out": "a",
        },
    ),
    "Run": (lambda folder: training.Run(folder).config, lambda: {"folder": Path("nowhere")}),
    "train_config": (
        training.train_config,
        lambda: {
            "config": training.TrainConfig("no_such_model", out="run"),
            "resume": True,
            "network": None,
            "data": None,
        },
    ),
    "Metric": (training.Metric, lambda: {"name": "rmse", "title": "", "unit": "%", "higher_is_better": True}),
    "register_task": (Registered(training.register_task, Regression), lambda: {"name": "mine"}),
    "compare": (
        training.compare,
        lambda: {"models": ["no_such_model"], "base": training.TrainConfig("resnet20"), "seeds": 1, "out": Path("out")},
    ),
}

NOT_CALLED = {
    # what functions return, made by the library
    "Conversion", "Convergence", "ConvertedStage", "Descent", "EvaluationResult", "LinearFlow", "ModelDescription",
    "NetworkRuns", "Reading", "Region", "RunHistory", "StageReading", "Trajectory", "WeakError", "WeakOrder",
    "Noise", "UserError",
    # what a scheme or a network is written with, inside the march: as fast as it can be, and checked by mypy
    "Backbone", "Callback", "Difference", "KineticCost", "Network", "Point", "Residual", "ResidualNetwork", "Scheme",
    "Stage", "Task", "Transition", "advance", "combine", "fixed_point", "march", "mix",
    # without arguments
    "AB2", "AB3", "Coupled", "LieTrotter", "Parallel", "TwoStepMidpoint", "list_data", "list_noises", "list_pretrained",
    # Runge–Kutta methods, each built as `RungeKutta` is
    "Euler", "Heun", "Midpoint", "RK4", "ThreeEighths",
}  # fmt: skip


def test_every_public_function_is_called() -> None:
    """What `stepnet` names and what the API reference documents; other names of a room are for other rooms."""
    pages = (Path(__file__).parents[1] / "docs" / "api").glob("*.md")
    documented = {name for page in pages for name in re.findall(r"^::: stepnet[\w.]*\.(\w+)$", page.read_text(), re.M)}
    public = documented | {name for name in stepnet.__all__ if callable(getattr(stepnet, name))}
    assert public - NOT_CALLED - RIGHT.keys() == set()
    assert NOT_CALLED & RIGHT.keys() == set()


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


def replacements(name: str, places: list[str], calls: int, seed: int) -> Iterator[dict[str, Any]]:
    """One or two arguments, drawn from all that there are."""
    rng = random.Random(f"{seed} {name}")
    groups = [list(group) for size in (1, 2) for group in combinations(places, size)]
    for _ in range(calls):
        yield {place: rng.choice(JUNK) for place in rng.choice(groups)}


def fails_by_itself(arguments: dict[str, Any]) -> bool:
    """A function or a network of the caller's own that fails, or a network on images of another shape."""
    functions = [arguments.get(place) for place in ("f", "make", "p", "sigma")]
    inputs = [arguments.get(place) for place in ("images", "image", "example")]
    networks = [arguments.get(place) for place in ("model", "network", "f", "sigma", "p")]
    return (
        any(one is int or one is len for one in functions)
        or any(isinstance(one, torch.Tensor) for one in inputs)
        or any(type(one) is nn.Linear for one in networks)
    )


def failures(name: str, calls: int = CALLS, seed: int = SEED) -> Iterator[str]:
    """The calls that end in another exception than a `UserError`, or in one of more than a line."""
    function, right = RIGHT[name]
    for replaced in replacements(name, sorted(right()), calls, seed):
        try:
            with in_time(), warnings.catch_warnings(), redirect_stdout(StringIO()):
                warnings.simplefilter("ignore")
                function(**right() | replaced)
        except UserError as error:
            if not str(error).isprintable() or len(str(error)) > 1000:
                yield f"{name}({replaced}): {error!r}"
        except Exception as error:
            if not fails_by_itself(replaced):
                last = traceback.extract_tb(error.__traceback__)[-1]
                yield f"{name}({replaced}): {type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("name", RIGHT)
def test_a_call_gives_a_result_or_a_user_error(name: str, tmp_path: Path) -> None:
    with chdir(tmp_path):
        assert list(failures(name)) == []
