"""The paper's recipes as data, and a fast one ("Implementation Details" of sections 2 and 3)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from stepnet.arguments import LARGEST, Count, NotNegative, Positive, Probability, Share, checked
from stepnet.data import is_text, list_data
from stepnet.errors import UserError
from stepnet.files import is_folder
from stepnet.registry import Registry

DepthRule = Literal["1/L", "1/sqrt(L)"]


def flag(help: str, default: Any) -> Any:
    """Return a dataclass field that is also a command-line flag."""
    return field(default=default, metadata={"help": help})


@checked
@dataclass(frozen=True)
class Recipe:
    """How a network is trained: an optimiser, a schedule of the learning rate, regularisation, augmentation."""

    epochs: Count = flag("passes over the training set; milestones move in proportion", 160)
    epoch_steps: Count | None = flag(
        "largest number of steps in an epoch; by default a full pass over the training set", None
    )
    min_steps: Count | None = flag(
        "smallest number of steps in the run: a small training set is given more epochs", None
    )
    batch_size: Count = flag("items in a batch, over all processes", 128)
    optimizer: str = flag("optimizer of torch.optim in lower case, such as sgd or adamw", "sgd")
    lr: Positive = flag("initial (steps) or highest learning rate", 0.1)
    schedule: Literal["steps", "one_cycle", "cosine", "constant"] = flag(
        "learning rate: steps divides it at milestones; the others warm up, then fall linearly, as a cosine, or not",
        "steps",
    )
    milestones: tuple[int, ...] = flag("epochs after which the learning rate is divided by 10", (80, 120))
    warmup: Share = flag("share of the run in which the learning rate rises, unless --schedule is steps", 0.25)
    momentum: Share = flag("momentum of SGD", 0.9)
    betas: tuple[Share, Share] = flag("decay rates of the running means of Adam and its variants", (0.9, 0.999))
    clip: Positive | None = flag("largest norm of the gradient; a larger one is scaled down to it", None)
    ema: Share | None = flag(
        "decay of a moving average of the weights, such as 0.999; the average is evaluated and saved", None
    )
    patience: Count | None = flag(
        "stop after this many epochs without improvement on the validation set (see --holdout)", None
    )
    class_weights: Literal["none", "balanced"] = flag(
        "weights of the classes in the loss; balanced: inversely proportional to their numbers of images", "none"
    )
    accumulate: Count = flag("gradient accumulation: number of parts that a batch is split into", 1)
    head_lr: NotNegative = flag("learning rate of the classifier, as a multiple of lr", 1.0)
    k_lr: NotNegative = flag("learning rate of the coefficients k, as a multiple of lr", 1.0)
    nesterov: bool = flag("Nesterov's form of momentum", False)
    weight_decay: NotNegative = flag("weight decay; also on k, unless --decay-vectors False", 1e-4)
    decay_vectors: bool = flag("also decay norms, biases and k, as the paper's SGD does", True)
    label_smoothing: Share = flag("share of a label that is spread over all classes", 0.0)
    randaugment: Annotated[int, Ge(0), Le(30)] = flag("magnitude of RandAugment, such as 9; 0 for none", 0)
    mixup: NotNegative = flag("alpha of mixup's Beta distribution, such as 0.2; 0 for none", 0.0)
    cutmix: NotNegative = flag(
        "alpha of cutmix's Beta distribution, such as 1.0; with mixup, each batch uses one of them", 0.0
    )
    stochastic_depth: Probability | None = flag("survival probability p_L of the last block (section 3)", None)
    stochastic_mode: Literal["batch", "drop_path"] = flag(
        "gates of stochastic depth: one for each block (batch), or for each block and image (drop_path)", "batch"
    )
    running_cost: Literal["weight_decay", "kinetic", "both"] = flag(
        "regularisation (section 3): weight decay, the kinetic cost instead, or both", "weight_decay"
    )
    kinetic: NotNegative = flag("weight of the kinetic running cost sum |f(X_n)|^2 dt", 1e-4)

    levels: tuple[Count, ...] = flag(
        "multilevel training: depths such as 20 38 56 for a resnet56, each network refined into the next", ()
    )
    level_epochs: tuple[Count, ...] = flag("epochs on each level; by default nearly equal shares", ())
    tuned_at_depth: Count | None = flag(
        "depth at which this recipe was tuned: the step size and learning rates of the blocks follow --depth-rule",
        None,
    )
    depth_rule: DepthRule = flag("how the step size decreases with the depth L, with --tuned-at-depth", "1/L")

    def __post_init__(self) -> None:
        checks = {
            "milestones": (list(self.milestones) == sorted(set(self.milestones)), "rising epochs"),
            "k_lr": (self.lr * self.k_lr <= LARGEST, f"at most {LARGEST / self.lr:.4g} with lr = {self.lr}"),
            "head_lr": (self.lr * self.head_lr <= LARGEST, f"at most {LARGEST / self.lr:.4g} with lr = {self.lr}"),
            "nesterov": (not self.nesterov or self.momentum > 0, "momentum with it, as in --momentum 0.9"),
            "stochastic_mode": (
                self.stochastic_mode == "batch" or self.stochastic_depth is not None,
                "a survival probability with it, as in --stochastic-depth 0.8",
            ),
            "levels": (
                list(self.levels) == sorted(set(self.levels)) and len(self.levels) <= self.epochs,
                f"rising depths, as 20 38 56, and no more of them than the {self.epochs} epochs",
            ),
            "level_epochs": (
                not self.level_epochs
                or (len(self.level_epochs) == len(self.levels) and sum(self.level_epochs) == self.epochs),
                f"{self.epochs} epochs in all, some for each of {len(self.levels)} levels",
            ),
            "tuned_at_depth": (
                self.tuned_at_depth is None or not self.levels,
                "no --levels with it: their networks differ in depth",
            ),
        }
        for name, (holds, expected) in checks.items():
            if not holds:
                raise UserError(f"{name} = {getattr(self, name)!r}: expected {expected}")

    def override(self, changes: dict[str, Any]) -> Recipe:
        """Return the recipe with some fields replaced; new `epochs` scale the milestones and unset `min_steps`."""
        if "epochs" in changes and "min_steps" not in changes:
            changes = {**changes, "min_steps": None}
        epochs = changes.get("epochs")
        if isinstance(epochs, int) and epochs >= 1 and "milestones" not in changes:
            share = epochs / self.epochs
            changes = {**changes, "milestones": tuple(sorted({max(1, round(m * share)) for m in self.milestones}))}
        return dataclasses.replace(self, **changes)

    def sized(self, items: int) -> Recipe:
        """Return the recipe for a training set of `items` items, with enough epochs for `min_steps`."""
        if self.min_steps is None:
            return self
        an_epoch = min(math.ceil(items / self.batch_size), self.epoch_steps or items)
        epochs = max(self.epochs, math.ceil(self.min_steps / an_epoch))
        return self.override({"epochs": epochs, "min_steps": self.min_steps})

    def extends_to(self, other: Recipe) -> bool:
        """Whether a run of this recipe is the first part of a longer run of `other`, with the same learning rates."""
        if self.epochs >= other.epochs or self.levels or other.levels:
            return False
        times = [epoch + part for epoch in range(self.epochs) for part in (0.0, 0.5, 0.99)]
        return all(self.learning_rate(t) == other.learning_rate(t) for t in times)

    def learning_rate(self, epoch: float) -> float:
        """Return the learning rate at time t in epochs; a function, so that a resumed run needs no state.

        steps: `lr / 10^j` after j milestones. The others rise to lr in the first `w` epochs, w the warm-up's share of
        all T, as `(t + 0.01) / w`; the 0.01 moves the first step. Then, with `s = (t - w) / (T - w)`, one_cycle falls
        as `1 - s`, cosine as `(1 + cos(pi s)) / 2`, and constant stays.
        """
        if self.schedule == "steps":
            return self.lr * 0.1 ** sum(epoch >= milestone for milestone in self.milestones)
        rise = self.warmup * self.epochs
        begun = min(1.0, (epoch + 1e-2) / rise) if rise else 1.0
        left = (self.epochs - epoch) / (self.epochs - rise)  # 1 - s
        fall = {"one_cycle": left, "cosine": (1 - math.cos(math.pi * min(1.0, left))) / 2, "constant": 1.0}
        return self.lr * min(begun, fall[self.schedule])


_paper = Recipe()
_long = _paper.override({"epochs": 300, "milestones": (150, 225)})
# Huang et al. train with Nesterov's momentum, and the paper uses their settings. They also hold out 5,000 of the 50,000
# training images, and report the test error of the epoch that is best on them.
_huang = _paper.override({"epochs": 500, "milestones": (250, 375), "nesterov": True, "stochastic_depth": 0.5})
_adamw = Recipe(optimizer="adamw", schedule="cosine", milestones=(), warmup=0.1, decay_vectors=False)

RECIPES: Registry[Recipe] = Registry("recipe")
for _name, _recipe in {
    "cifar10": _paper,
    "cifar100": _long,
    "resnext_cifar": _long.override({"weight_decay": 5e-4}),
    # The paper states batch size, momentum and decay for ImageNet but no schedule: this is the one of fb.resnet.torch,
    # 90 epochs with steps at 30 and 60. (He et al. divided the rate when the error stopped falling, in 120 epochs.)
    "imagenet": _paper.override({"epochs": 90, "milestones": (30, 60), "batch_size": 256}),
    "stochastic_depth": _huang,  # p_L = 0.5: Huang et al. at every depth, the paper for 110 layers
    "stochastic_depth_56": _huang.override({"stochastic_depth": 0.8}),
    "fast": Recipe(
        epochs=15, lr=0.2, schedule="one_cycle", milestones=(), nesterov=True, weight_decay=5e-4, decay_vectors=False
    ),
    # For a folder of hundreds or thousands of photos. No randaugment, mixup or cutmix: in 600 steps on 244 images they
    # did not lower the error; the page on your images has the figures.
    "photos": dataclasses.replace(
        _adamw, epochs=30, min_steps=600, batch_size=32, lr=2e-3, weight_decay=0.05, label_smoothing=0.1
    ),
    "digits": Recipe(epochs=12, batch_size=64, lr=0.1, schedule="one_cycle", milestones=(), decay_vectors=False),
    # 600 steps. With gpt12x48 on Shakespeare, lr = 0.003, 0.006 and 0.01 gave a test loss of 2.09, 2.02 and 1.98.
    "text": dataclasses.replace(
        _adamw, epochs=6, epoch_steps=100, batch_size=16, lr=1e-2, betas=(0.9, 0.99), clip=1.0, weight_decay=0.01
    ),
}.items():
    RECIPES.add(_name, _recipe)


@checked
def get_recipe(name: str) -> Recipe:
    """Return the recipe of that name."""
    return RECIPES[name]


def recipe_name(recipe: Recipe) -> str:
    """Return the name of a recipe; `custom` if it is not a registered one."""
    return next((name for name in RECIPES if _at_pace_of(RECIPES[name], recipe) == recipe), "custom")


def _at_pace_of(known: Recipe, recipe: Recipe) -> Recipe:
    """Return the recipe `known`, with the epochs of `recipe` if both have the same `min_steps`."""
    same = recipe.min_steps is not None and known.min_steps == recipe.min_steps and known.epochs <= recipe.epochs
    return known.override({"epochs": recipe.epochs, "min_steps": recipe.min_steps}) if same else known


def changed_fields(recipe: Recipe, known: Recipe) -> dict[str, Any]:
    """Return the fields in which a recipe differs from another."""
    values = ((field.name, getattr(recipe, field.name)) for field in dataclasses.fields(Recipe))
    return {name: value for name, value in values if value != getattr(known, name)}


def recipe_words(recipe: Recipe) -> str:
    """Describe a recipe by the nearest registered one and the differences: `fast, epochs=20, lr=0.1`."""

    def changes(name: str) -> list[str]:
        known = _at_pace_of(RECIPES[name], recipe)
        epochs = [] if known.epochs == recipe.epochs else [f"epochs={recipe.epochs}"]
        moved = known.override({"epochs": recipe.epochs, "min_steps": known.min_steps})
        return [*epochs, *(f"{field}={value}" for field, value in changed_fields(recipe, moved).items())]

    nearest = min(RECIPES, key=lambda name: len(changes(name)))
    return ", ".join([nearest, *changes(nearest)])


def default_recipe(model: str, data: str) -> str:
    """Return the paper's recipe for a model on a data set, or ours for digits, text and photos."""
    if is_text(data):
        return "text"
    if data in ("digits", "imagenet"):
        return data
    if data not in list_data() and is_folder(Path(data)):
        return "photos"
    if "resnext" in model:
        return "resnext_cifar"
    return "cifar100" if data == "cifar100" else "cifar10"
