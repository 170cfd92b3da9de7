"""`stepnet.train`: a model by name or any network, on data by name or any data set."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from stepnet.arguments import checked
from stepnet.data import AnyData, Data, get_data
from stepnet.errors import UserError, nearest
from stepnet.training.callbacks import Callback
from stepnet.training.config import FINGERPRINTS, Label, TrainConfig, default_folder, read_label
from stepnet.training.display import Display
from stepnet.training.loop import train_config
from stepnet.training.recipes import Recipe, default_recipe, get_recipe
from stepnet.training.run import Run
from stepnet.training.tasks import TASKS

WRITTEN = {"task", "network", *FINGERPRINTS}  # fields that the run writes
RECIPE_FIELDS = {field.name for field in dataclasses.fields(Recipe)}
OPTIONS = {field.name for field in dataclasses.fields(TrainConfig)} - {"model", "data", "recipe", "out", *WRITTEN}
# Options for a model by name, not for a module.
BUILDING = ("scheme", "model_kwargs", "memory", "weights", "pretrained", "start_like", "sync_bn")


@checked
def train(
    model: str | nn.Module | TrainConfig,
    data: AnyData | None = None,
    recipe: str | Recipe | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: bool = True,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    task: str | None = None,
    quiet: bool = False,
    **options: Any,
) -> Run:
    """Train a network and return its run, whose folder `stepnet.load`, `evaluate` and `report` open.

    Progress is shown as a bar on a terminal and in a notebook, as lines elsewhere; not with `quiet=True`.

    `model`: a label `NAME[:SCHEME][,OPTION=VALUE…]`, any module, or a whole `TrainConfig`.
    `data`: a name, a folder of images, a text file, `(train, test)` torch Datasets, or one of them and `val_share=0.1`.
    `recipe`: a name or a `Recipe`; by default the paper's for this model and data.
    `task`: a name of `register_task`; by default that of the data set, usually classification.
    `callbacks`: see `stepnet.training.Callback`.
    `options`: fields of the recipe, such as `epochs=2`, `lr=0.01`, and other fields of `TrainConfig`, such as `seed=1`,
    `scheme="lm"`, `model_kwargs={"dt": 0.5}`.

    Called again with the same arguments, it resumes where it stopped, and ends with the same bits. A folder with a run
    on other data or of another network raises: a module must have its initial weights again, so seed torch before it
    is built, or those of the checkpoint (`stepnet.load(out + "/last.safetensors", model=module)`). A resumed run may
    differ if a module keeps state outside of its `state_dict`, or draws from generators other than torch's (for noise,
    define `draw(seed, step, places)`, see `stepnet.nets.draws`); if items of a data set are random by generators other
    than torch's, numpy's and Python's; and with `precision="fp16"`, whose loss scale starts anew.
    """
    if isinstance(model, TrainConfig):
        if any(each is not None for each in (data, recipe, out, task)) or options:
            raise UserError("a TrainConfig holds all settings: leave out data, recipe, out, task and options")
        with Display(model.model) as display:
            shown = [*callbacks, *([] if quiet else [display])]
            return train_config(model, resume, shown, overwrite=overwrite)
    changes = {name: options.pop(name) for name in RECIPE_FIELDS & options.keys()}
    _check_names(options)
    settings = TrainConfig("", **options)  # raises for wrong values
    source = "digits" if data is None else data
    dataset = get_data(
        source, settings.data_root, **settings.data_options, of_classes=task is None or TASKS[task].of_classes
    )
    named = os.fspath(source) if isinstance(source, str | os.PathLike) else _identity(dataset)
    label = _label(model, options)
    chosen = recipe if isinstance(recipe, Recipe) else get_recipe(recipe or default_recipe(label.model, named))
    config = TrainConfig(label.model, named, label.scheme, label.kwargs, chosen.override(changes), **options)
    folder = Path(out) if out is not None else default_folder(config)
    config = dataclasses.replace(config, out=str(folder))
    network = None if isinstance(model, str) else model
    with Display(label.model.rpartition(".")[2]) as display:
        shown = [*callbacks, *([] if quiet else [display])]
        return train_config(config, resume, shown, overwrite=overwrite, network=network, data=dataset, task=task)


def _check_names(options: Mapping[str, object]) -> None:
    for name in options.keys() - OPTIONS:
        near = nearest(name, [*OPTIONS, *RECIPE_FIELDS]) or f"expected one of {', '.join(sorted(OPTIONS))}"
        raise UserError(f"train takes no option {name!r}: {near}")


def _label(model: str | nn.Module, options: dict[str, Any]) -> Label:
    """Return the label of a model, with the scheme and the options of the model, which are taken out of `options`."""
    if isinstance(model, str):
        label = read_label(model).under(options.pop("scheme", None))
        return label._replace(kwargs={**options.pop("model_kwargs", {}), **label.kwargs})
    for name in BUILDING:
        if options.get(name):
            raise UserError(
                f"{name} = {options[name]!r} is for a model by name, and this network is built already: give it what "
                "it needs first (stepnet.convert puts a scheme into it)"
            )
    return Label(f"{type(model).__module__}.{type(model).__qualname__}", None, {})


def _identity(data: Data) -> str:
    """Return the name of a data set that is a Python object; a run resumes only with data of the same name."""
    size = "x".join(map(str, data.train.shape))
    classes = f", {data.num_classes} classes" if data.num_classes else ""
    return f"{data.name} of {len(data.train)}+{len(data.test)} items {size}{classes}"
