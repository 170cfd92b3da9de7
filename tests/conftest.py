"""What all tests share."""

from __future__ import annotations

import sys

import hypothesis
import pytest
import torch

# The same examples in every run, however busy the machine; `--hypothesis-profile=explore` looks for new ones.
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("repeatable")

# Two workers on two cores: threads of their own would only wait for each other.
torch.set_num_threads(1)


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    from stepnet.analysis.noise_laws import NOISES
    from stepnet.data.datasets import DATA_SETS
    from stepnet.nets.registry import MODELS
    from stepnet.schemes.registry import SCHEMES
    from stepnet.training.recipes import RECIPES

    for registry in (SCHEMES, MODELS, DATA_SETS, NOISES, RECIPES):
        monkeypatch.setattr(registry, "entries", dict(registry.entries))
        monkeypatch.setattr(registry, "aliases", dict(registry.aliases))


_declared: list[torch.library.Library] = []  # alive as long as the tests: its operators go with the object


def _declare_torchvision_operators() -> None:
    """Let `import torchvision` work beside a CPU-only torch, where its compiled operators are missing.

    It fails for the want of two schemas that none of the tests calls; declaring them is enough.
    """
    try:
        import torchvision  # noqa: F401
    except ImportError:
        return
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # half imported
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)


_declare_torchvision_operators()
