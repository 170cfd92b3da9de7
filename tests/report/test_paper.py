"""The paper's tables as data: every row has a network and a recipe of ours."""

from collections import Counter

import pytest

from stepnet import list_models
from stepnet.report.paper import CIFAR, IMAGENET, SCHEMES, STOCHASTIC
from stepnet.schemes import get_scheme, list_schemes
from stepnet.training.recipes import RECIPES

ROWS = (*CIFAR, *IMAGENET, *STOCHASTIC)


def test_every_row_of_the_paper_is_there() -> None:
    assert [len(table) for table in (SCHEMES, CIFAR, IMAGENET, STOCHASTIC)] == [4, 23, 5, 8]
    assert Counter(row.dataset for row in CIFAR) == {"cifar10": 9, "cifar100": 14}
    best = min((row for row in CIFAR if row.dataset == "cifar100"), key=lambda row: row.error)
    assert (best.name, best.error) == ("lm_resnext29_16x64d", 16.79)  # bold in the paper, like the next two
    assert min(IMAGENET, key=lambda row: row.error).name == "lm_resnet101"
    assert min(STOCHASTIC, key=lambda row: row.error).error == 4.80


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name}-{row.recipe}")
def test_every_row_names_a_network_and_a_recipe(row) -> None:
    assert row.name in list_models()
    assert row.recipe in RECIPES
    assert ("pre-act" in row.layers) == row.name.startswith(("preact_", "lm_"))
    assert (row.strategy == "Stochastic depth") == (RECIPES[row.recipe].stochastic_depth is not None)


def test_every_network_of_table_1_is_some_schemes_network() -> None:
    assert {row.network for row in SCHEMES} <= {get_scheme(name).network for name in list_schemes()}


def test_no_resnet_of_the_paper_has_29_layers() -> None:
    """Figure 3's caption says LM-ResNet29; the rows of 29 layers are ResNeXt's."""
    layers = {row.model for row in CIFAR if "29" in row.layers}
    assert layers and all("ResNeXt" in model for model in layers)
    assert list_models("*resnet29*") == [] and "lm_resnext29_16x64d" in list_models()
