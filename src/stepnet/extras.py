"""Optional libraries: the message for a missing one names the extra that installs it."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from stepnet.errors import UserError, first_line

if TYPE_CHECKING:
    import torch

EXTRAS = {  # library -> the extra of pyproject.toml that has it
    "cycler": "report",
    "huggingface_hub": "hub",
    "matplotlib": "report",
    "onnx": "export",
    "onnxruntime": "export",
    "onnxscript": "export",
    "tensorboard": "tensorboard",
    "timm": "timm",
    "torchsde": "sde",
    "torchvision": "torchvision",
    "transformers": "transformers",
    "wandb": "wandb",
}


def import_extra(module: str) -> ModuleType:
    """Import a module of an optional library."""
    library = module.partition(".")[0]
    try:
        if library in ("timm", "torchvision", "transformers"):  # the others import torchvision
            _import_torchvision()
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    except (ImportError, RuntimeError) as error:
        raise UserError(f"cannot import {library}: {first_line(error)}; install a version that fits torch") from None


def missing_extra(error: ModuleNotFoundError) -> UserError | None:
    """Return the error that names the extra to install; None for a module that belongs to none."""
    library = (error.name or "").partition(".")[0]
    if library not in EXTRAS:
        return None
    return UserError(f"{library} is not installed: pip install 'stepnet[{EXTRAS[library]}]'")


def _import_torchvision() -> None:
    """Import torchvision if it is installed, even if its compiled operators do not match torch.

    A CPU-only torch with torchvision's GPU build is common. The import then fails because two operators are missing,
    which no network here calls; it succeeds once they are declared.
    """
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # half imported
        _declare_operators()
        importlib.import_module("torchvision")


@functools.cache  # the operators live as long as the library object
def _declare_operators() -> torch.library.Library:
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for operator in ("nms", "qnms"):
        schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        library.define(schema)  # type: ignore[no-untyped-call]
    return library
