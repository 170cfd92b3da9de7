"""stepnet: deep networks as numerical schemes."""

from stepnet.errors import UserError
from stepnet.schemes import get_scheme, list_schemes, register_scheme, solve

__all__ = ["UserError", "get_scheme", "list_schemes", "register_scheme", "solve"]
__version__ = "0.1.0"
