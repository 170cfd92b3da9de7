"""What other libraries need before they can be imported."""

from __future__ import annotations

import functools

import torch


@functools.cache  # keeps the library alive, and its operators with it
def declare_missing_operators() -> torch.library.Library | None:
    """torchvision's wheel does not import beside a CPU-only torch until these two schemas, unused here, exist."""
    if torch.version.cuda is not None:
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
