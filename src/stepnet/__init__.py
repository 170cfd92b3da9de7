"""stepnet: deep networks as numerical schemes."""

from stepnet.errors import UserError
from stepnet.nets import coefficients, create_model, list_models, register_model
from stepnet.schemes import get_scheme, list_schemes, register_scheme, solve

__all__ = [
    "UserError",
    "coefficients",
    "create_model",
    "get_scheme",
    "list_models",
    "list_schemes",
    "register_model",
    "register_scheme",
    "solve",
]
__version__ = "0.1.0"
