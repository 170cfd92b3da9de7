"""What a run is made of: one definition for the library, the flags and the run's `config.yaml`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from stepnet.data import Data, get_data
from stepnet.errors import UserError
from stepnet.files import whole_file
from stepnet.schema import check_fields, read_as
from stepnet.training.recipes import Recipe

MOST_SEEDS = 1 << 63  # torch's generators take no larger one
# Fields that do not change what is computed: a run may be resumed with others.
INCIDENTAL = {"out", "data_root", "checkpoint_steps", "checkpoint_minutes", "log"}


@dataclass(frozen=True)
class TrainConfig:
    """Model, data, recipe, seed, and how the machine is used."""

    model: str
    data: str = "digits"
    scheme: str | None = None
    recipe: Recipe = field(default_factory=Recipe)
    seed: int = 0
    start_like: str | None = None  # NAME or NAME:SCHEME: its initial weights where names and shapes agree
    out: str = ""
    data_root: str | None = None
    image_size: int | None = None  # of a folder's images; their own where they are small, else 224
    val_share: float | None = None  # of a folder without images for validation
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    compile: bool = False
    channels_last: bool = True
    sync_bn: bool = False
    freeze_bn: bool = False  # train with the running statistics as they are
    eval_batch_size: int | None = None  # images evaluated at once; the recipe's batch size unless given
    checkpoint_steps: int = 1000
    checkpoint_minutes: float = 5.0
    log: Literal["none", "tensorboard"] = "none"

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.seed < MOST_SEEDS:
            raise UserError(f"seed = {self.seed}: expected 0 or more, below 2^63")
        if self.checkpoint_steps < 1 or not self.checkpoint_minutes > 0:
            raise UserError(
                f"checkpoint_steps = {self.checkpoint_steps}, checkpoint_minutes = {self.checkpoint_minutes}: "
                "expected 1 or more steps and more than 0 minutes"
            )
        if self.eval_batch_size is not None and self.eval_batch_size < 1:
            raise UserError(f"eval_batch_size = {self.eval_batch_size}: expected 1 or more images")

    @property
    def evaluation_batch(self) -> int:
        """How many images are evaluated at once."""
        return self.eval_batch_size or self.recipe.batch_size

    def read_data(self, root: str | None = None) -> Data:
        """The data set, from the folder `root` of all data sets if not the run's own."""
        return get_data(self.data, root or self.data_root, image_size=self.image_size, val_share=self.val_share)

    def write(self, path: Path) -> None:
        """As YAML, whole or not at all."""
        with whole_file(path) as partial:
            partial.write_text(yaml.safe_dump(_plain(self), sort_keys=False))

    @classmethod
    def read(cls, path: Path) -> TrainConfig:
        """From `config.yaml`; a file that is not one is told in a line."""
        try:
            values = yaml.safe_load(path.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
            raise UserError(f"{path}: not the config of a stepnet run ({type(error).__name__})") from None
        return read_as(cls, values, f"{path}: not the config of a stepnet run")

    def differences(self, other: TrainConfig) -> list[str]:
        """The fields, with both values, in which another config asks for another computation."""
        mine, theirs = _flat(_plain(self)), _flat(_plain(other))
        return [
            f"{name} = {mine[name]!r} there, {theirs[name]!r} here"
            for name in mine
            if name.split(".")[0] not in INCIDENTAL and mine[name] != theirs[name]
        ]


def name_and_scheme(label: str) -> tuple[str, str | None]:
    """The parts of `NAME:SCHEME`; a NAME alone has the scheme that it has."""
    name, _, scheme = label.rpartition(":")
    return (label, None) if not name or "/" in scheme else (name, scheme)


def default_folder(config: TrainConfig) -> Path:
    """A folder that the same command finds again."""
    model = config.model.replace("/", "-") + (f"-{config.scheme}" if config.scheme else "")
    return Path("runs") / Path(config.data).name / f"{model}-{config.recipe.epochs}ep-seed{config.seed}"


def _plain(config: TrainConfig) -> dict[str, Any]:
    values = dataclasses.asdict(config)
    values["recipe"]["milestones"] = list(config.recipe.milestones)
    return values


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    flat = {key: value for key, value in values.items() if key != "recipe"}
    return flat | {f"recipe.{key}": value for key, value in values["recipe"].items()}
