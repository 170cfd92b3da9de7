"""stepnet: deep networks as numerical schemes.

The public names stand in `__init__.pyi`, for people, type checkers and `lazy_loader` alike; each is imported when it
is first asked for, so that `stepnet --help` does not wait for torch and sympy.
"""

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
