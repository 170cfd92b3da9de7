"""Trained weights that come with the package: `NAME.TAG.safetensors` in `stepnet/weights`, the tag telling the data."""

from __future__ import annotations

from pathlib import Path

from stepnet.errors import UserError, unknown

WEIGHTS = Path(__file__).parent.parent / "weights"
TAGS = ("imagenet", "cifar100", "cifar10", "digits")  # whose weights are taken where a name has several and no tag


def split_tag(name: str) -> tuple[str, str | None]:
    """`lm_resnet20.cifar10` -> (`lm_resnet20`, `cifar10`)."""
    model, _, tag = name.partition(".")
    return model, tag or None


def list_pretrained() -> list[str]:
    """The names, with their tags, for which weights are here."""
    return sorted(path.stem for path in WEIGHTS.glob("*.safetensors"))


def pretrained_file(name: str) -> Path:
    """The weights of `NAME.TAG`, or of `NAME` with its first tag."""
    model, tag = split_tag(name)
    tags = [known.partition(".")[2] for known in list_pretrained() if known.partition(".")[0] == model]
    if tag is None and tags:
        tag = next((preferred for preferred in TAGS if preferred in tags), tags[0])
    if tag not in tags:
        if tags:
            raise unknown(f"weights of {model}", tag, tags)
        held = ", ".join(list_pretrained()) or "none"
        raise UserError(f"{name}: no trained weights come with stepnet under this name; there are: {held}")
    return WEIGHTS / f"{model}.{tag}.safetensors"
