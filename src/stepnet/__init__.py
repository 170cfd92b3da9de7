"""stepnet: deep networks as numerical schemes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stepnet.convert import convert, revert
from stepnet.errors import UserError
from stepnet.nets import coefficients, create_model, list_models, register_model
from stepnet.schemes import get_scheme, list_schemes, register_scheme, solve

if TYPE_CHECKING:
    from stepnet import analysis

__all__ = [
    "UserError",
    "analysis",
    "coefficients",
    "convert",
    "create_model",
    "get_scheme",
    "list_models",
    "list_schemes",
    "register_model",
    "register_scheme",
    "revert",
    "solve",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import `stepnet.analysis` when it is first asked for: sympy takes longer to load than all the rest."""
    if name == "analysis":
        return importlib.import_module("stepnet.analysis")
    raise AttributeError(f"module 'stepnet' has no attribute {name!r}")
