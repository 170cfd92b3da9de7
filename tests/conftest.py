"""What all tests share."""

from __future__ import annotations

import contextlib
import gc
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest
import torch

from stepnet.errors import UserError
from stepnet.extras import import_extra

# The same examples in every run, however busy the machine; `--hypothesis-profile=explore` looks for new ones.
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("repeatable")

# Tests import torchvision and timm themselves, which works only after the library has made it work.
with contextlib.suppress(UserError):
    import_extra("torchvision")

# torch's compiler imports setuptools, which fails in a process where the standard library's distutils came first, as
# it did in workers of whole runs.
with contextlib.suppress(ImportError):
    import setuptools  # noqa: F401

# Two workers on two cores: threads of their own would only wait for each other.
torch.set_num_threads(1)


def pytest_collection_finish() -> None:
    """What has been imported is never garbage: the collection at the end of each run need not go through it."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    from stepnet.data.datasets import DATA_SETS
    from stepnet.nets.model_registry import MODELS
    from stepnet.schemes.noises import NOISES
    from stepnet.schemes.scheme_registry import SCHEMES
    from stepnet.training.recipes import RECIPES
    from stepnet.training.tasks import TASKS

    for registry in (SCHEMES, MODELS, DATA_SETS, NOISES, RECIPES, TASKS):
        monkeypatch.setattr(registry, "entries", dict(registry.entries))
        monkeypatch.setattr(registry, "aliases", dict(registry.aliases))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium, where there is one."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="the browser is driven by playwright")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_api.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=chromium, args=flags)
        yield found
        found.close()


@pytest.fixture
def serious_findings() -> Callable[[Any], list[str]]:
    """What axe-core finds serious or critical on a page: the rule, and the elements that break it."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core checks the accessibility")

    def find(page: Any) -> list[str]:
        violations = axe.Axe().run(page).response["violations"]
        return [
            f"{violation['id']}: {[node['target'] for node in violation['nodes']][:3]}"
            for violation in violations
            if violation["impact"] in ("serious", "critical")
        ]

    return find
