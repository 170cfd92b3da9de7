"""`stepnet train` and `stepnet evaluate`, and the flags that `stepnet compare` shares."""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, Self

import tyro
from tyro.conf import OmitArgPrefixes, Positional

from stepnet.commands.parsing import ImportFlag
from stepnet.data import list_data
from stepnet.errors import UserError, counted, first_line
from stepnet.escaping import echo, print_json
from stepnet.files import lasting_place
from stepnet.training import (
    Recipe,
    TrainConfig,
    default_folder,
    default_recipe,
    get_recipe,
    read_kwargs,
    read_label,
)

if TYPE_CHECKING:
    from stepnet.training import ClassErrors, Display


def _flags_of(config: type[TrainConfig | Recipe], optional: bool) -> Any:
    """Return a dataclass of the fields that are flags: config, flags and the saved file have one definition."""
    hints, members = typing.get_type_hints(config), []
    for f in dataclasses.fields(config):
        if "help" in f.metadata:
            kind = Optional[hints[f.name]] if optional else hints[f.name]  # noqa: UP045
            default = None if optional else f.default
            text = f"{f.metadata['help'][:1].upper()}{f.metadata['help'][1:]}."
            members.append((f.name, Annotated[kind, tyro.conf.arg(help=text)], field(default=default)))
    return dataclasses.make_dataclass(f"{config.__name__}Flags", members, kw_only=True)


Overrides: Any = _flags_of(Recipe, optional=True)
Overrides.__doc__ = "Options that are not set keep the value of the recipe."

MATRIX = 20  # classes: a confusion matrix of more is left to --json

# Parts of the messages of torch's allocators, CUDA and oneDNN when memory runs out.
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "could not create a memory object")
# A run over fewer images than this ends before compiling has paid off.
COMPILE_FROM = 500_000
TRAINING_IMAGES = {"cifar10": 50_000, "cifar100": 50_000, "imagenet": 1_281_167}  # others: unknown before they are read


@dataclass(kw_only=True)
class TrainingFlags(_flags_of(TrainConfig, optional=False)):  # type: ignore[misc]
    """The flags that `train`, `compare` and `transfer` share."""

    recipe: str | None = None
    """Name of a recipe, such as fast; by default the paper's for this model and data, photos for a folder."""
    model_kwargs: list[str] = field(default_factory=list)
    """Options of the model, as create_model takes them: dt=0.5 k_per_channel=True."""
    compile: bool | None = None
    """Use torch.compile; by default for long runs only."""
    imports: Annotated[list[str], tyro.conf.arg(name="import", metavar="MODULE")] = field(default_factory=list)
    """Python modules that register your models, schemes or data sets; the run remembers them."""
    config: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Start from this config, such as a run's config.yaml; flags override it."""
    overrides: Annotated[OmitArgPrefixes[Overrides], tyro.conf.arg(name="recipe")] = field(default_factory=Overrides)
    from_file: tyro.conf.Suppress[Any] = None

    @classmethod
    def defaults(cls, words: Sequence[str]) -> Self | None:
        """Return the values of the file of --config, which flags override; None without --config."""
        after = [*words[1:], ""]
        named = [w.partition("=")[2] or after[i] for i, w in enumerate(words) if w.partition("=")[0] == "--config"]
        if not named:
            return None
        config = TrainConfig.read(Path(named[-1]))
        fields = {f.name for f in dataclasses.fields(cls)}
        shared = fields & {f.name for f in dataclasses.fields(TrainConfig)} - {"recipe", "out"}
        values = {name: getattr(config, name) for name in shared} | {"imports": list(config.imports)}
        values["model_kwargs"] = [f"{name}={value!r}" for name, value in config.model_kwargs.items()]
        if "models" in fields:
            values["models"] = [config.model]
        return cls(**values, config=Path(named[-1]), from_file=config)

    def run_config(self, model: str, out: Path | None = None) -> TrainConfig:
        """Return the config of one run."""
        from stepnet.conversion import check_own_name
        from stepnet.nets import list_models
        from stepnet.training import import_modules

        import_modules(self.imports)
        label = read_label(model).under(self.scheme)
        check_own_name(label.model, list_models())
        changes = {k: v for k, v in dataclasses.asdict(self.overrides).items() if v is not None}
        usual = get_recipe(self.recipe or default_recipe(label.model, self.data))
        recipe = (usual if self.from_file is None or self.recipe else self.from_file.recipe).override(changes)
        shared = {f.name for f in dataclasses.fields(TrainConfig)} & {f.name for f in dataclasses.fields(TrainingFlags)}
        options = {name: getattr(self, name) for name in shared}
        images = TRAINING_IMAGES.get(self.data, 0) * recipe.epochs
        config = dataclasses.replace(
            self.from_file or TrainConfig(label.model),
            **options
            | {
                "model": label.model,
                "scheme": label.scheme,
                "model_kwargs": {**read_kwargs(self.model_kwargs), **label.kwargs},
                "data": self.data if self.data in list_data() else lasting_place(self.data),
                "weights": None if self.weights is None else lasting_place(self.weights),
                "imports": tuple(self.imports),
                "recipe": recipe,
                "compile": images >= COMPILE_FROM if self.compile is None else self.compile,
            },
        )
        return dataclasses.replace(config, out=str(out or default_folder(config)))


@dataclass(kw_only=True)
class Train(TrainingFlags):
    """Train one network; the same command again resumes it.

    Under `torchrun` or `accelerate launch` the same command trains on many processes or machines.
    """

    model: Annotated[Positional[str], tyro.conf.arg(metavar="MODEL")]
    """A name from `stepnet models`, timm/NAME or torchvision/NAME; NAME:SCHEME steps its blocks with that scheme."""
    out: Path | None = None
    """Folder for the run; by default runs/DATA/MODEL-…"""
    resume: bool = True
    """Resume from the checkpoint in this folder; with --no-resume, refuse a folder that has a run."""
    overwrite: bool = False
    """Replace the run in this folder, if there is one."""

    def __call__(self) -> None:
        from stepnet.training import Display, train_config

        config = self.run_config(self.model, self.out)
        with shown(Display(self.model)) as display:
            run = train_config(config, self.resume, [display], overwrite=self.overwrite)
        if display.quiet:
            return
        lines, (metric, *others) = run.finished(), run.task.metrics
        last, scores = lines[-1], [float(line[f"test_{metric.name}"]) for line in lines]
        best = run.task.best_epoch(lines)
        on = ", chosen on the validation set" if f"val_{metric.name}" in last else ""
        echo(
            f"{run.folder}: test {metric} {metric.show(scores[-1])} after the last epoch, "
            f"{metric.show(scores[best])} at best (epoch {lines[best]['epoch'] + 1}{on})"
        )
        for other in others:
            if f"test_{other.name}" in last:
                echo(f"{other} {other.show(last[f'test_{other.name}'])} after the last epoch")
        print_coefficients(last["k"])


@dataclass
class Evaluate(ImportFlag):
    """Measure the test error of a run or a model file, or of pretrained weights by their name."""

    run: Annotated[Positional[str], tyro.conf.arg(metavar="RUN|MODEL")]
    """The folder of a run, a model file, or the name of pretrained weights."""
    which: Literal["best", "last"] = "last"
    """Which epoch of a run; the best one is chosen on the validation set, or on the test set if there is none."""
    data: str | None = None
    """Data set or folder of images to test on; by default the one it was trained on."""
    val_share: float | None = None
    """The share of another folder without val/ or test/ to test on."""
    data_root: str | None = None
    """Folder of all data sets; by default $STEPNET_DATA or ~/.cache/stepnet."""
    record: Path | None = None
    """Write the figures of a finished run to this file, such as results/NAME.json, for `stepnet table`."""
    classes: bool = False
    """Also print errors by class, the confusion matrix and the images most wrong; a run keeps them for its report."""
    json: bool = False
    """Print the exact figures as JSON instead."""

    def __call__(self) -> None:
        from stepnet.training import Run, evaluate

        self.import_modules([self.run])
        run, by_class = Run(Path(self.run)), None
        if self.classes:
            from stepnet.training import class_errors

            result, by_class = class_errors(self.run, self.which, self.data_root, self.data, self.val_share)
            if run.config_file.exists() and self.which == "last" and self.data is None:
                with suppress(OSError):  # the folder of another user
                    by_class.write(run)
        else:
            result = evaluate(self.run, self.which, self.data_root, self.data, val_share=self.val_share)
        if self.json:
            facts = {"run": str(self.run), "which": self.which, "loss": result.loss, **result.metrics}
            facts |= {result.task.items: result.items, "epochs": result.epochs}
            if by_class:
                facts["class_errors"] = dict(zip(by_class.classes, by_class.errors, strict=True))
                facts["confusion"] = by_class.confusion
                facts["mistakes"] = [dataclasses.asdict(mistake) for mistake in by_class.mistakes]
            print_json(facts)
        else:
            which = f"{self.which}, " if Path(self.run).is_dir() else ""
            metrics = [f"{m} {m.show(result.metrics[m.name])}" for m in result.task.metrics if m.name in result.metrics]
            echo(
                f"{self.run} ({which}after {counted(result.epochs, 'epoch')}): "
                f"test {', '.join(metrics)}, loss {result.loss:.4f}, {result.items:,} {result.task.items}"
            )
            if by_class:
                print_class_errors(by_class)
        if self.record is not None:
            from stepnet.report import record

            wanted = run.config.recipe.epochs
            if self.which != "last" or result.epochs < wanted:
                raise UserError(f"--record: {self.run} is at {result.epochs} of {wanted} epochs; record a finished run")
            record(run, result, self.record)


def print_class_errors(by_class: ClassErrors) -> None:
    """Print a row for each class, the confusion matrix unless it is large, and the most confident mistakes."""
    from stepnet.commands.columns import RIGHT, print_table

    print_table(["class", RIGHT + "images", RIGHT + "error %", "wrong predictions (how often)"], by_class.rows())
    if len(by_class.classes) <= MATRIX:
        cells = [[name, *map(str, row)] for name, row in zip(by_class.classes, by_class.confusion, strict=True)]
        print_table(
            ["class", *(RIGHT + name for name in by_class.classes)], cells, "\nconfusion matrix (columns: predicted)"
        )
    if by_class.mistakes:
        wrong = [[m.image, m.label, m.prediction, f"{100 * m.probability:.1f}"] for m in by_class.mistakes]
        print_table(["image", "class", "predicted", RIGHT + "probability %"], wrong, "\nmost wrong")


@contextmanager
def shown(display: Display) -> Iterator[Display]:
    """Display a run; turn a stop by a signal into its exit code, and a lack of memory into a message."""
    from stepnet.training import Interrupted

    try:
        with display:
            yield display
    except Interrupted as stop:
        echo(f"stepnet: {stop}", file=sys.stderr)
        raise SystemExit(stop.exit_code) from None
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and not any(sign in str(error) for sign in OUT_OF_MEMORY):
            raise
        detail = first_line(error)[:80]
        advice = "lower --batch-size or --eval-batch-size, or try --memory auto"
        raise UserError(f"no memory left ({detail}): {advice}") from None


def print_coefficients(ks: Mapping[str, float | list[float]], title: str = "") -> None:
    """Print the learned k_n, eight to a line; the mean over channels, or over the entries of a matrix."""
    from stepnet.schemes import by_name

    for name, layers in by_name(ks).items():
        values = [k if isinstance(k, float) else fmean(k) for k in layers.values()]
        means = "" if all(isinstance(k, float) for k in layers.values()) else ", means over channels"
        means = means if name == "k" else means.replace("channels", "its entries")
        echo(f"{title}{name}_n by layer{means}:")
        for start in range(0, len(values), 8):
            echo("  " + " ".join(f"{k:+.3f}" for k in values[start : start + 8]))
