"""Parameters against the figures that the paper prints."""

from pathlib import Path

import pytest
import torch

from stepnet.nets.blocks import bottleneck
from stepnet.nets.cost import on_meta
from stepnet.nets.residual import Backbone, ResidualNetwork
from stepnet.report.catalogue import kept
from stepnet.report.paper import CIFAR, ParameterCount, count

# ResNet-164 and -1001 as described have fewer parameters than printed, FractalNet-40 other columns: docs/errata.md.
ERRATA = {"preact_resnet164", "lm_resnet164", "preact_resnet1001", "fractalnet40"}


@pytest.mark.parametrize("row", CIFAR, ids=lambda row: f"{row.name}-{row.dataset}")
def test_every_row_has_the_papers_count_or_is_an_erratum(row) -> None:
    assert count(row).fits(row.params) == (row.name not in ERRATA)


def test_a_count_fits_by_rounding_or_by_cutting_off() -> None:
    assert ParameterCount(269_722, 10).fits("0.27M")
    assert ParameterCount(1_727_962, 10).fits("1.7M")
    assert ParameterCount(35_170_732, 100).fits("35.1M")  # cut off
    assert not ParameterCount(35_200_000, 100).fits("35.1M")
    assert not ParameterCount(1_703_258, 10).fits("2.55M")


def test_lm_resnext_is_counted_with_the_classes_of_resnext() -> None:
    classes = {row.name: count(row).classes for row in CIFAR if "resnext" in row.name}
    assert len(classes) == 5 and set(classes.values()) == {10}


@pytest.mark.parametrize("name", ["fractalnet20", "densenet100_k24", "lm_resnext29_8x64d"])
def test_the_count_is_that_of_the_whole_network(name: str) -> None:
    row = next(row for row in CIFAR if row.name == name)
    own = count(row)
    assert own.parameters == sum(p.numel() for p in on_meta(name, num_classes=own.classes).parameters())


@pytest.mark.parametrize("row", [row for row in CIFAR if row.name in ERRATA], ids=lambda row: row.name)
def test_a_count_that_does_not_fit_stands_in_the_errata_with_both_figures(row) -> None:
    page = (Path(__file__).parents[2] / "docs" / "errata.md").read_text()
    section = page.partition("## Parameter counts")[2].partition("\n## ")[0]
    line = next(line for line in section.splitlines() if f"`{row.name}`" in line)
    assert row.params in line and f"{count(row).parameters:,}" in line


def parameters(name: str, classes: int) -> int:
    known = kept()[name]  # tests/report/test_catalogue.py counts them again
    return known.parameters + (known.num_features + 1) * (classes - known.num_classes)


@pytest.mark.parametrize(
    ("lm", "plain", "classes"),
    [
        ("lm_resnet164", "preact_resnet1001", 100),
        ("lm_resnet56", "resnet110", 10),
        ("lm_resnext29_8x64d", "resnext29_16x64d", 100),
        ("lm_resnet50", "resnet101", 1000),
    ],
)
def test_what_the_abstract_calls_more_than_half(lm: str, plain: str, classes: int) -> None:
    saved = 100 * (1 - parameters(lm, classes) / parameters(plain, classes))
    assert (saved > 50) == (lm in ("lm_resnet56", "lm_resnet164"))
    assert f"{saved:.1f} %" in (Path(__file__).parents[2] / "docs" / "errata.md").read_text()


def test_the_printed_block_of_lm_resnet164_would_have_27_million() -> None:
    with torch.device("meta"):
        backbone = Backbone(bottleneck, (256, 512, 1024), (18, 18, 18), 16, pre_activation=True, shortcut="projection")
        network = ResidualNetwork(backbone, "lm", num_classes=100)
    assert ParameterCount(sum(p.numel() for p in network.parameters()), 100).fits("27.0M")
