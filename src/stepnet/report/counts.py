"""Parameter counts of our networks, compared with the paper's."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from functools import cache

from stepnet.report.catalogue import kept
from stepnet.report.paper import CIFAR, PaperRow

CLASSES = {"cifar10": 10, "cifar100": 100, "imagenet": 1000}


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
    listing = _kept().get(row.name)
    return None if listing is None else listing.multiply_adds


def _plain(row: PaperRow) -> str:
    return row.model.removeprefix("LM-")


def _counted(row: PaperRow, classes: int) -> ParameterCount:
    """Count the parameters for any number of classes from the features that the linear classifier reads."""
    known = _kept()[row.name]
    return ParameterCount(known.parameters + (known.num_features + 1) * (classes - known.num_classes), classes)


_kept = cache(kept)
