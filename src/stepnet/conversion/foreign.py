"""Networks of other libraries by name: `timm/resnet18`, `torchvision/resnet18`."""

from __future__ import annotations

from typing import Any

from torch import nn

from stepnet.errors import UserError, unknown
from stepnet.extras import import_extra
from stepnet.nets.origin import remember_origin

LIBRARIES = ("timm", "torchvision")
_GEOMETRY = ("kernel_size", "stride", "padding", "dilation", "padding_mode")


def is_foreign(name: str) -> bool:
    """Whether a model's name is that of another library's network."""
    return name.partition("/")[0] in LIBRARIES and "/" in name


def load_foreign(name: str, num_classes: int = 1000, in_channels: int = 3, **options: Any) -> nn.Module:
    """Build `timm/NAME` or `torchvision/NAME`, untrained unless an option of that library says otherwise."""
    library, _, model = name.partition("/")
    known = list_foreign(library)
    if model not in known:
        raise unknown(f"{library} model", model, known)
    if library == "timm":
        create = import_extra("timm").create_model
        built: nn.Module = create(model, num_classes=num_classes, in_chans=in_channels, **options)
    else:
        built = import_extra("torchvision.models").get_model(model, num_classes=num_classes, **options)
        built = built if in_channels == 3 else _with_channels(built, in_channels, name)
    weightless = {key: value for key, value in options.items() if key not in ("pretrained", "weights")}
    return remember_origin(built, name, {"num_classes": num_classes, "in_channels": in_channels, **weightless})


def list_foreign(library: str) -> list[str]:
    """The names of a library's image classifiers, without the library."""
    if library not in LIBRARIES:
        raise unknown("library", library, LIBRARIES)
    if library == "timm":
        return list(import_extra("timm").list_models())
    models = import_extra("torchvision.models")
    return list(models.list_models(module=models))


def _with_channels(model: nn.Module, in_channels: int, name: str) -> nn.Module:
    """torchvision's builders take colour images only: a new first convolution for other channels."""
    for path, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            if module.groups != 1:
                break
            first: nn.Conv2d = type(module)(
                in_channels,
                module.out_channels,
                **{option: getattr(module, option) for option in _GEOMETRY},
                bias=module.bias is not None,
            )
            parent, _, child = path.rpartition(".")
            setattr(model.get_submodule(parent), child, first)
            return model
    raise UserError(f"{name} with {in_channels} channels: it has no first convolution to adapt; use 3 channels")
