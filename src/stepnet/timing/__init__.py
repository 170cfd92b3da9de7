"""Side-by-side measurements: the harness, and the rows of `stepnet bench` and of the scripts in `benchmarks/`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
