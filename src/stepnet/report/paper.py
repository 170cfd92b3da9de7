"""The paper's tables 1 to 4 as data, each row with the name of our network and of the recipe that trains it.

`count` returns the parameters of our network, to compare with the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from functools import partial

from stepnet.report.catalogue import kept


@dataclass(frozen=True)
class PaperRow:
    """One row of tables 2 to 4, as printed; errors in per cent."""

    model: str
    source: str
    layers: str
    error: float  # top-1
    params: str | None  # as printed, such as 0.27M; tables 3 and 4 print none
    name: str  # of our network
    dataset: str
    recipe: str
    top5: float | None = None
    strategy: str = "Original"


@dataclass(frozen=True)
class SchemeRow:
    """One row of table 1, as printed."""

    network: str
    equation: str
    scheme: str


SCHEMES = (
    SchemeRow("ResNet, ResNeXt", "u' = f(u)", "Forward Euler scheme"),
    SchemeRow("PolyNet", "u' = f(u)", "Approximation of backward Euler scheme"),
    SchemeRow("FractalNet", "u' = f(u)", "Runge-Kutta scheme"),
    SchemeRow("RevNet", "X' = f1(Y), Y' = f2(X)", "Forward Euler scheme"),
)

CLASSES = {"cifar10": 10, "cifar100": 100, "imagenet": 1000}
HE15, HE16, HUANG = "He et al. 2015", "He et al. 2016", "Huang, Sun et al. 2016"
FRACTAL, DENSE, XIE, OURS = "Larsson et al. 2016", "Huang, Liu et al. 2016", "Xie et al. 2017", "the paper"

_cifar10 = partial(PaperRow, dataset="cifar10", recipe="cifar10")
_cifar100 = partial(PaperRow, dataset="cifar100", recipe="cifar100")
_resnext = partial(PaperRow, dataset="cifar100", recipe="resnext_cifar")
_imagenet = partial(PaperRow, params=None, dataset="imagenet", recipe="imagenet")
_stochastic = partial(PaperRow, params=None, dataset="cifar10", recipe="stochastic_depth", strategy="Stochastic depth")

CIFAR = (
    _cifar10("ResNet", HE15, "20", 8.75, "0.27M", "resnet20"),
    _cifar10("ResNet", HE15, "32", 7.51, "0.46M", "resnet32"),
    _cifar10("ResNet", HE15, "44", 7.17, "0.66M", "resnet44"),
    _cifar10("ResNet", HE15, "56", 6.97, "0.85M", "resnet56"),
    _cifar10("ResNet", HE16, "110, pre-act", 6.37, "1.7M", "preact_resnet110"),
    _cifar10("LM-ResNet", OURS, "20, pre-act", 8.33, "0.27M", "lm_resnet20"),
    _cifar10("LM-ResNet", OURS, "32, pre-act", 7.18, "0.46M", "lm_resnet32"),
    _cifar10("LM-ResNet", OURS, "44, pre-act", 6.66, "0.66M", "lm_resnet44"),
    _cifar10("LM-ResNet", OURS, "56, pre-act", 6.31, "0.85M", "lm_resnet56"),
    _cifar100("ResNet", HUANG, "110, pre-act", 27.76, "1.7M", "preact_resnet110"),
    _cifar100("ResNet", HE16, "164, pre-act", 24.33, "2.55M", "preact_resnet164"),
    _cifar100("ResNet", HE16, "1001, pre-act", 22.71, "18.88M", "preact_resnet1001"),
    _cifar100("FractalNet", FRACTAL, "20", 23.30, "38.6M", "fractalnet20"),
    _cifar100("FractalNet", FRACTAL, "40", 22.49, "22.9M", "fractalnet40"),
    _cifar100("DenseNet", DENSE, "100", 19.25, "27.2M", "densenet100_k24"),
    _cifar100("DenseNet-BC", DENSE, "190", 17.18, "25.6M", "densenet_bc190_k40"),
    _resnext("ResNeXt", XIE, "29 (8x64d)", 17.77, "34.4M", "resnext29_8x64d"),
    _resnext("ResNeXt", XIE, "29 (16x64d)", 17.31, "68.1M", "resnext29_16x64d"),
    _resnext("ResNeXt", OURS, "29 (16x64d), pre-act", 17.65, "68.1M", "preact_resnext29_16x64d"),
    _cifar100("LM-ResNet", OURS, "110, pre-act", 25.87, "1.7M", "lm_resnet110"),
    _cifar100("LM-ResNet", OURS, "164, pre-act", 22.90, "2.55M", "lm_resnet164"),
    _resnext("LM-ResNeXt", OURS, "29 (8x64d), pre-act", 17.49, "35.1M", "lm_resnext29_8x64d"),
    _resnext("LM-ResNeXt", OURS, "29 (16x64d), pre-act", 16.79, "68.8M", "lm_resnext29_16x64d"),
)

IMAGENET = (
    _imagenet("ResNet", HE15, "50", 24.7, name="resnet50", top5=7.8),
    _imagenet("ResNet", HE15, "101", 23.6, name="resnet101", top5=7.1),
    _imagenet("ResNet", HE15, "152", 23.0, name="resnet152", top5=6.7),
    _imagenet("LM-ResNet", OURS, "50, pre-act", 23.8, name="lm_resnet50", top5=7.0),
    _imagenet("LM-ResNet", OURS, "101, pre-act", 22.6, name="lm_resnet101", top5=6.4),
)

STOCHASTIC = (
    _cifar10("ResNet", HE15, "110", 6.61, None, "resnet110"),
    _cifar10("ResNet", HE16, "110, pre-act", 6.37, None, "preact_resnet110"),
    _stochastic("ResNet", HUANG, "56", 5.66, name="resnet56"),
    _stochastic("ResNet", OURS, "56, pre-act", 5.55, name="preact_resnet56", recipe="stochastic_depth_56"),
    _stochastic("ResNet", HUANG, "110", 5.25, name="resnet110"),
    _stochastic("ResNet", HUANG, "1202", 4.91, name="resnet1202"),
    _stochastic("LM-ResNet", OURS, "56, pre-act", 5.14, name="lm_resnet56", recipe="stochastic_depth_56"),
    _stochastic("LM-ResNet", OURS, "110, pre-act", 4.80, name="lm_resnet110"),
)


@dataclass(frozen=True)
class ParameterCount:
    """The parameters of our network for a number of classes."""

    parameters: int
    classes: int

    def fits(self, printed: str) -> bool:
        """Whether the count rounds, or truncates, to a figure such as 0.27M."""
        figure = Decimal(printed.removesuffix("M"))
        exact = Decimal(self.parameters) / 10**6
        return any(exact.quantize(figure, rounding=rule) == figure for rule in (ROUND_HALF_UP, ROUND_DOWN))


def count(row: PaperRow) -> ParameterCount:
    """Count the parameters for the row's data set; for 10 classes if only that agrees with the paper.

    A network and its LM version are counted with the same number of classes, where there is one that fits them all.
    """
    kin = [other for other in CIFAR if (_plain(other), other.dataset) == (_plain(row), row.dataset)]
    choices = [_counted(row, classes) for classes in (CLASSES[row.dataset], 10)]
    for rows in (kin, [row]):
        for choice in choices:
            if all(one.params is not None and _counted(one, choice.classes).fits(one.params) for one in rows):
                return choice
    return choices[0]


def multiply_adds(row: PaperRow) -> int | None:
    """Return the multiply-adds of our network for one image of the row's data set."""
    listing = kept().get(row.name)
    return None if listing is None else listing.multiply_adds


def _plain(row: PaperRow) -> str:
    return row.model.removeprefix("LM-")


def _counted(row: PaperRow, classes: int) -> ParameterCount:
    """Count the parameters for any number of classes from the features that the linear classifier reads."""
    known = kept()[row.name]
    return ParameterCount(known.parameters + (known.num_features + 1) * (classes - known.num_classes), classes)
