"""For torch.hub: `torch.hub.load(REPOSITORY, "lm_resnet20", num_classes=10)`, or `pretrained=True`.

Each entry point is a name of `stepnet models` and takes the options of `stepnet.create_model`.
"""

import sys
from functools import partial
from pathlib import Path

dependencies = ["torch", "numpy", "sympy", "scipy", "pydantic", "yaml", "safetensors", "lazy_loader"]

sys.path.insert(0, str(Path(__file__).parent / "src"))

import stepnet  # noqa: E402


def _entry(name: str) -> partial:
    entry = partial(stepnet.create_model, name)
    entry.__doc__ = f"The network {name!r} of stepnet, with the options of `stepnet.create_model`."
    return entry


globals().update({name: _entry(name) for name in stepnet.list_models()})
