"""What a person is shown: the paper's tables as data beside our counts and measurements, schemes and networks drawn."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
