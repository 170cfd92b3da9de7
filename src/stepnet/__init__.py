"""stepnet: deep networks as numerical schemes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepnet.errors import UserError
from stepnet.lazy import lazy_names

if TYPE_CHECKING:
    from stepnet import analysis
    from stepnet.conversion import convert, revert
    from stepnet.nets import coefficients, create_model, list_models, register_model
    from stepnet.schemes import get_scheme, list_schemes, register_scheme, solve

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

__getattr__ = lazy_names(
    __name__,
    dict.fromkeys(("coefficients", "create_model", "list_models", "register_model"), "stepnet.nets")
    | dict.fromkeys(("get_scheme", "list_schemes", "register_scheme", "solve"), "stepnet.schemes")
    | dict.fromkeys(("convert", "revert"), "stepnet.conversion")
    | {"analysis": "stepnet.analysis"},
)
