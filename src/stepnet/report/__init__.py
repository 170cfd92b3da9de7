"""Tables of the paper with our counts and measurements, figures of schemes and networks, and the HTML report."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
