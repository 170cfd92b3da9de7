"""stepnet: deep networks as numerical schemes."""

__version__ = "0.1.0"
