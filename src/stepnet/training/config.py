"""The config of a run: one definition for the library, the flags and the run's `config.yaml`."""

from __future__ import annotations

import ast
import dataclasses
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from stepnet.arguments import Count, OpenShare, Positive, Seed, checked
from stepnet.data import Data, get_data
from stepnet.errors import UserError
from stepnet.files import atomic_file
from stepnet.schema import read_as, read_yaml
from stepnet.training.recipes import Recipe, changed_fields, default_recipe, flag, get_recipe, recipe_name
from stepnet.training.tasks import TaskRecord

# Fields that are part of the name of a run's folder where they differ from the default.
IN_FOLDER_NAME = (
    *("precision", "freeze_bn", "sync_bn", "image_size", "val_share", "context"),
    *("tokens", "holdout", "pretrained", "weights", "memory"),
)
REQUIRED = {"epochs", "batch_size", "optimizer", "lr", "schedule", "momentum"}  # in a complete recipe
FINGERPRINTS = ("data_fingerprint", "network_fingerprint", "weights_fingerprint")
# Fields that do not change what is computed: a run may be resumed with other values.
INCIDENTAL = {"out", "data_root", "device", "checkpoint_steps", "checkpoint_minutes", "log", "imports"}

FIXED_OPTIONS = {
    **dict.fromkeys(("num_classes", "in_channels", "in_chans"), "determined by the data; leave it out"),
    "context": "give it as --context, for data and network",
    "features_only": "training needs the classifier; leave it out",
    "scheme": "name it as --scheme, or in the model's label NAME:SCHEME",
}


class Label(NamedTuple):
    """The parts of a label `NAME[:SCHEME][,OPTION=VALUE…]`, which names a network."""

    model: str
    scheme: str | None
    kwargs: dict[str, Any]

    def under(self, scheme: str | None) -> Label:
        """Return the label with the scheme of --scheme; raise if it already names another scheme."""
        if scheme and self.scheme and self.scheme != scheme:
            label = f"{self.model}:{self.scheme}"
            raise UserError(f"{label} names the scheme {self.scheme!r}, but --scheme is {scheme!r}: give only one")
        return self._replace(scheme=self.scheme or scheme)

    @property
    def options(self) -> dict[str, Any]:
        """The options of `create_model`: lists, as YAML has them, become tuples."""
        kwargs = {name: tuple(value) if isinstance(value, list) else value for name, value in self.kwargs.items()}
        return kwargs if self.scheme is None else {"scheme": self.scheme, **kwargs}


@dataclass(frozen=True)
class NetworkRecord:
    """The cost of a network for one image or other item, and the scheme that steps its blocks."""

    parameters: int
    multiply_adds: int = 0  # of convolutions and matrix products in the forward pass; 0 if they cannot be counted
    steps: int = 0  # of all its stages
    own_steps: int = 0  # without steps of the starting scheme and transitions
    scheme: str | None = None


@checked
@dataclass(frozen=True)
class TrainConfig:
    """The settings of a run: model, data, recipe, seed, device, precision."""

    model: str
    data: str = flag(
        "data set: digits (built in), cifar10, cifar100, imagenet, or a folder with one folder of images per class; "
        "for a GPT, shakespeare or a text file",
        "digits",
    )
    scheme: str | None = flag(
        "scheme that steps the blocks, instead of the model's scheme; timm/ and torchvision/ networks are converted",
        None,
    )
    model_kwargs: dict[str, Any] = field(default_factory=dict)  # options of the model, as `create_model` takes them
    recipe: Recipe = field(default_factory=Recipe)
    seed: Seed = flag("seed of initial weights, data order, augmentation and noise", 0)
    start_like: str | None = None  # the label of a model whose initial weights are taken where names and shapes agree
    out: str = ""
    data_root: str | None = flag("folder of all data sets; by default $STEPNET_DATA or ~/.cache/stepnet", None)
    imports: tuple[str, ...] = ()  # user modules that register models, schemes or data
    pretrained: bool = flag(
        "start from the weights that timm, torchvision or stepnet has for the model, with a new classifier", False
    )
    weights: str | None = flag(
        "start from the weights of a model file, a run or hf-hub:OWNER/NAME; new classes get a new classifier",
        None,
    )
    image_size: int | None = flag(
        "image size in pixels: by default a folder's own if small, else 224; of a data set, a divisor of its size",
        None,
    )
    val_share: float | None = flag(
        "share of a text, or of a folder without val/ or test/, for validation, such as 0.1", None
    )
    context: Count | None = flag("context length: tokens in a sequence of text; by default 64", None)
    tokens: Literal["characters", "bytes"] = flag("unit that text is split into", "characters")
    holdout: OpenShare | None = flag(
        "share of the training set, such as 0.1, for choosing the best epoch, instead of the test set", None
    )
    device: str | None = flag("device: cpu, cuda, cuda:1 or mps; by default a GPU if there is one", None)
    memory: Literal["stored", "recompute", "reversible", "auto"] | None = flag(
        "what a step stores for its backward pass: less memory takes more time; by default the model's setting",
        None,
    )
    precision: Literal["fp32", "bf16", "fp16"] = flag("number format; bf16 and fp16 use autocast", "fp32")
    compile: bool = False
    channels_last: bool = flag("use the channels-last memory layout, which makes convolutions faster", True)
    sync_bn: bool = flag("synchronised batch norm over processes (GPUs only)", False)
    freeze_bn: bool = flag("keep batch norm in evaluation mode, with fixed running statistics", False)
    eval_batch_size: Count | None = flag("batch size of evaluation; by default that of training", None)
    checkpoint_steps: Count = flag("save a checkpoint at least every N steps", 1000)
    checkpoint_minutes: Positive = flag("save a checkpoint at least every N minutes", 5.0)
    log: Literal["none", "tensorboard", "wandb"] = flag("also log the metrics to TensorBoard or W&B", "none")
    # Written by the run: the metrics of its task, the cost of its network, and fingerprints of its data, and of
    # networks and weights that a name does not identify. Older runs lack them.
    task: TaskRecord | None = None  # None: the task of the data set
    network: NetworkRecord | None = None
    data_fingerprint: str | None = None
    network_fingerprint: str | None = None
    weights_fingerprint: str | None = None  # of `weights`: the file at that path may have been replaced

    def __post_init__(self) -> None:
        for name in ("data", "out", "data_root", "weights"):  # written to config.yaml
            if any("\ud800" <= c <= "\udfff" for c in getattr(self, name) or ""):
                raise UserError(f"{name} = {getattr(self, name)!r}: expected a path of UTF-8; rename it")
        if self.pretrained and self.weights is not None:
            raise UserError(f"pretrained and weights = {self.weights!r}: give only one")
        for name in FIXED_OPTIONS.keys() & self.model_kwargs.keys():
            raise UserError(f"model_kwargs {name} = {self.model_kwargs[name]!r}: {FIXED_OPTIONS[name]}")
        if "stochastic_depth" in self.model_kwargs and self.recipe.stochastic_depth is not None:
            raise UserError("stochastic_depth is set in the recipe and in model_kwargs: set it in one of them")
        if self.memory is not None and "memory" in self.model_kwargs:
            raise UserError(f"memory = {self.memory!r} and memory in model_kwargs: give only one")

    @property
    def label(self) -> Label:
        """The model with its scheme and options."""
        return Label(self.model, self.scheme, self.model_kwargs)

    def read_data(self) -> Data:
        """Read the data set."""
        return get_data(self.data, self.data_root, **self.data_options)

    @property
    def data_options(self) -> dict[str, Any]:
        """The options of `get_data`."""
        options = {name: getattr(self, name) for name in ("image_size", "val_share", "context")}
        return {**options, "vocabulary": self.tokens}

    @property
    def changed_settings(self) -> dict[str, Any]:
        """The settings of `IN_FOLDER_NAME` that differ from the default."""
        plain = TrainConfig(self.model)
        return {name: value for name in IN_FOLDER_NAME if (value := getattr(self, name)) != getattr(plain, name)}

    def write(self, path: Path) -> None:
        """Write the config as YAML, atomically."""
        with atomic_file(path) as partial:
            partial.write_text(yaml.safe_dump(dataclasses.asdict(self), sort_keys=False))

    @classmethod
    def read(cls, path: Path) -> TrainConfig:
        """Read `config.yaml`, or a handwritten file with `recipe: fast` and fields of the recipe at the top level."""
        what = f"{path}: not the config of a stepnet run"
        return read_as(cls, _with_whole_recipe(read_yaml(path, what)), what, extra="forbid")

    def differences(self, other: TrainConfig) -> list[str]:
        """Return the fields, with both values, in which another config changes what is computed."""
        mine, theirs = map(_fields, (self, other))
        unknown = {"network"} | {name for name in FINGERPRINTS if None in (mine[name], theirs[name])}
        if self.recipe.extends_to(other.recipe):
            unknown |= {"recipe.epochs", "recipe.min_steps"}
        return [
            f"{name} = {mine[name]!r} there, {theirs[name]!r} here"
            for name in mine
            if name not in {*INCIDENTAL, *unknown, "recipe"} and mine[name] != theirs[name]
        ]


def _fields(config: TrainConfig) -> dict[str, object]:
    """Return the fields of a config, and those of its recipe as `recipe.NAME`."""
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    fields["task"] = (config.task or TaskRecord()).name
    fields["model_kwargs"] = _as_written(config.model_kwargs)
    return fields | {f"recipe.{field.name}": getattr(config.recipe, field.name) for field in dataclasses.fields(Recipe)}


def _as_written(value: object) -> object:
    """Return options as a YAML file returns them, with lists for tuples."""
    if isinstance(value, Mapping):
        return {name: _as_written(part) for name, part in value.items()}
    return [_as_written(part) for part in value] if isinstance(value, list | tuple) else value


def _with_whole_recipe(values: object) -> object:
    """Complete the recipe of a handwritten config: the named or default recipe with the changes."""
    if not isinstance(values, dict):
        return values
    fields = {field.name for field in dataclasses.fields(Recipe)}
    top = {name: values[name] for name in values if name in fields}
    recipe = values.get("recipe")
    if isinstance(recipe, dict) and recipe.keys() >= REQUIRED and not top:  # as a run writes it
        return values
    model, data = str(values.get("model", "")), str(values.get("data", "digits"))
    base = get_recipe(recipe if isinstance(recipe, str) else default_recipe(model, data))
    changes = (recipe if isinstance(recipe, dict) else {}) | top
    epochs = changes.get("epochs")
    base = base.override({"epochs": epochs}) if isinstance(epochs, int) and epochs >= 1 else base
    whole = dataclasses.asdict(base) | changes
    return {name: value for name, value in values.items() if name not in top} | {"recipe": whole}


def read_label(label: str) -> Label:
    """Split a label `NAME[:SCHEME][,OPTION=VALUE…]`."""
    whole, *options = re.split(r",(?=\w+=)", label)
    name, _, scheme = whole.rpartition(":")
    plain = not name or "/" in scheme
    return Label(whole if plain else name, None if plain else scheme, read_kwargs(options))


def write_label(label: Label) -> str:
    """Write a label as `read_label` reads it."""
    options = [f",{name}={value!r}" for name, value in label.kwargs.items()]
    return "".join([label.model, f":{label.scheme}" if label.scheme else "", *options])


def read_kwargs(words: Sequence[str]) -> dict[str, Any]:
    """Parse `dt=0.5 k_per_channel=True`: values are Python literals, otherwise text."""
    kwargs: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise UserError(f"option {word!r}: expected NAME=VALUE, as in dt=0.5")
        try:
            read = ast.literal_eval(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            read = value
        kwargs[name] = list(read) if isinstance(read, tuple) else read  # as YAML reads it back
    return kwargs


def default_folder(config: TrainConfig) -> Path:
    """Return the folder of a run: the same for the same command, another one for another option or recipe."""
    usual = get_recipe(default_recipe(config.model, config.data))
    name = recipe_name(config.recipe)
    changed = [] if name in ("custom", recipe_name(usual)) else [name]
    if name == "custom":
        moved = usual.override({"epochs": config.recipe.epochs, "min_steps": config.recipe.min_steps})
        changed = [f"{field}={value}" for field, value in changed_fields(config.recipe, moved).items()]
    options = [f"{name}={value}" for name, value in sorted(config.model_kwargs.items())]
    others = [f"{name}={value}" for name, value in config.changed_settings.items()]
    parts = [config.model, *([config.scheme] if config.scheme else []), *options, *changed, *others]
    words = "-".join(map(file_name, parts))
    recipe = config.recipe
    last = f"{f'{recipe.epochs}ep' if recipe.min_steps is None else f'{recipe.min_steps}steps'}-seed{config.seed}"
    if len(words) > 150:  # a name may have 255 characters on most file systems
        words = f"{words[:130]}-{zlib.crc32(words.encode()):08x}"
    return Path("runs") / (file_name(Path(config.data).name) or "data") / f"{words}-{last}"


def file_name(text: str) -> str:
    """Replace characters that do not belong in a file name by hyphens."""
    return re.sub(r"[^\w.=+-]+", "-", text).strip("-")
