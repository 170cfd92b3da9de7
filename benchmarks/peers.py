"""Preparation for importing other libraries, also in revisions of stepnet that do not do it themselves."""

from __future__ import annotations

import functools

import torch


@functools.cache  # keeps the library alive, and its operators with it
def declare_missing_operators() -> torch.library.Library | None:
    """Declare two operators without which torchvision's wheel cannot be imported with a CPU-only torch."""
    if torch.version.cuda is not None:
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
