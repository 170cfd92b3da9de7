"""Put a scheme into a network that we did not write.

The public name `stepnet.convert` is the function, and the name of this room as well. Python sets the attribute to the
module whenever the module is imported first, so the module itself can be called: both orders of import work.
"""

import sys
from types import ModuleType
from typing import Any

from stepnet.convert.conversion import convert, describe, revert
from stepnet.convert.foreign import list_foreign, load_foreign
from stepnet.convert.report import Conversion, Stage

__all__ = ["Conversion", "Stage", "convert", "describe", "list_foreign", "load_foreign", "revert"]


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        return convert(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
