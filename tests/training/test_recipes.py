import dataclasses

import pytest

from stepnet import UserError
from stepnet.training.recipes import RECIPES, Recipe, default_recipe, get_recipe, recipe_name, recipe_words

SGD = {  # what a recipe is where the table below says nothing
    "optimizer": "sgd",
    "betas": (0.9, 0.999),  # of Adam's kin
    "clip": None,
    "ema": None,
    "accumulate": 1,
    "batch_size": 128,
    "epoch_steps": None,
    "min_steps": None,
    "patience": None,
    "class_weights": "none",
    "randaugment": 0,
    "mixup": 0.0,
    "cutmix": 0.0,
    "lr": 0.1,
    "schedule": "steps",
    "warmup": 0.25,
    "momentum": 0.9,
    "nesterov": False,
    "weight_decay": 1e-4,
    "decay_vectors": True,
    "label_smoothing": 0.0,
    "stochastic_depth": None,
    "stochastic_mode": "batch",
    "running_cost": "weight_decay",
    "kinetic": 1e-4,
    "head_lr": 1.0,
    "k_lr": 1.0,
    "levels": (),
    "level_epochs": (),
    "tuned_at_depth": None,
    "depth_rule": "1/L",
}
ONE_CYCLE = {"schedule": "one_cycle", "milestones": (), "decay_vectors": False}
ADAMW = {
    "optimizer": "adamw",
    "betas": (0.9, 0.99),
    "schedule": "cosine",
    "warmup": 0.1,
    "milestones": (),
    "decay_vectors": False,
}
HUANG = {"epochs": 500, "milestones": (250, 375), "nesterov": True}
TABLE = {
    # "Implementation Details" of section 2
    "cifar10": {"epochs": 160, "milestones": (80, 120)},
    "cifar100": {"epochs": 300, "milestones": (150, 225)},
    "resnext_cifar": {"epochs": 300, "milestones": (150, 225), "weight_decay": 5e-4},
    "imagenet": {"epochs": 90, "milestones": (30, 60), "batch_size": 256},  # the schedule is He et al.'s
    # "Implementation Details" of section 3: p_L = 0.8 for 56 layers, 0.5 for 110; the rest is Huang et al.'s
    "stochastic_depth_56": {**HUANG, "stochastic_depth": 0.8},
    "stochastic_depth": {**HUANG, "stochastic_depth": 0.5},
    # ours: docs/results.md says in full what `fast` is
    "fast": {**ONE_CYCLE, "epochs": 15, "lr": 0.2, "nesterov": True, "weight_decay": 5e-4},
    "digits": {**ONE_CYCLE, "epochs": 12, "batch_size": 64},
    "photos": {
        **ADAMW,
        "betas": (0.9, 0.999),
        "epochs": 30,
        "min_steps": 600,
        "batch_size": 32,
        "lr": 2e-3,
        "weight_decay": 0.05,
        "label_smoothing": 0.1,
    },
    "text": {**ADAMW, "epochs": 6, "epoch_steps": 100, "batch_size": 16, "lr": 1e-2, "weight_decay": 0.01, "clip": 1.0},
}


@pytest.mark.parametrize("name", TABLE)
def test_a_recipe_is_what_its_table_says(name):
    wanted = {**SGD, **TABLE[name]}
    assert {field: getattr(get_recipe(name), field) for field in wanted} == wanted
    assert wanted.keys() == {field.name for field in dataclasses.fields(Recipe)}
    assert recipe_name(get_recipe(name)) == name and recipe_name(get_recipe(name).override({"lr": 7.0})) == "custom"


def test_the_table_has_every_recipe():
    assert set(RECIPES) == set(TABLE)


def test_no_recipe_has_two_names():
    recipes = [RECIPES[name] for name in RECIPES]
    assert len(set(recipes)) == len(recipes)


def test_the_learning_rate_falls_by_ten_at_each_milestone():
    recipe = RECIPES["cifar10"]
    rates = [recipe.learning_rate(epoch) for epoch in (0, 79.99, 80, 119.9, 120, 159)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def test_one_cycle_rises_to_its_peak_and_falls_to_zero():
    recipe = RECIPES["fast"]
    peak = recipe.warmup * recipe.epochs
    rates = [recipe.learning_rate(epoch / 10) for epoch in range(10 * recipe.epochs)]
    assert max(rates) == pytest.approx(recipe.lr, rel=0.03)
    assert rates.index(max(rates)) == pytest.approx(10 * peak, abs=1)
    assert 0 < rates[0] < 0.01 * recipe.lr
    assert 0 < rates[-1] < 0.02 * recipe.lr


def test_new_epochs_move_the_milestones_in_proportion():
    with pytest.raises(UserError, match="epochs = 'two': expected a whole number"):
        RECIPES["cifar10"].override({"epochs": "two"})
    assert RECIPES["cifar10"].override({"epochs": 16}).milestones == (8, 12)
    assert RECIPES["cifar10"].override({"epochs": 16, "milestones": (1, 2)}).milestones == (1, 2)
    assert RECIPES["cifar10"].override({"epochs": 1}).learning_rate(0) == 0.1  # the first epoch is no milestone


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epochs", 0),
        ("batch_size", 0),
        ("lr", float("nan")),
        ("lr", -1.0),
        ("momentum", 1.0),
        ("milestones", (3, 2)),
        ("stochastic_depth", 1.5),
        ("stochastic_mode", "drop_path"),
        ("weight_decay", -1e-4),
    ],
)
def test_a_bad_field_is_named_with_its_value(field, value):
    with pytest.raises(UserError, match=f"^{field} = .*: expected"):
        Recipe(**{field: value})


def test_an_unknown_recipe_suggests_the_nearest():
    with pytest.raises(UserError, match="did you mean 'cifar100' or 'cifar10'"):
        get_recipe("cifar1000")


def test_each_model_has_the_papers_recipe():
    assert default_recipe("lm_resnet20", "cifar10") == "cifar10"
    assert default_recipe("lm_resnext29_8x64d", "cifar100") == "resnext_cifar"
    assert default_recipe("lm_resnet110", "cifar100") == "cifar100"
    assert default_recipe("lm_resnet50", "imagenet") == "imagenet"


def test_a_folder_of_photos_has_a_recipe_of_its_own(tmp_path):
    assert default_recipe("lm_resnext29_8x64d", str(tmp_path)) == "photos"
    assert default_recipe("lm_resnet20", "elsewhere") == "cifar10"


@pytest.mark.parametrize(
    ("items", "epochs"),
    [(244, 75), (1_000, 30), (5_000, 30), (10, 600)],  # steps an epoch: 8, 32, 157, 1
)
def test_a_small_training_set_gets_more_epochs(items, epochs):
    sized = get_recipe("photos").sized(items)
    assert (sized.epochs, sized.min_steps) == (epochs, 600) and sized.sized(items) == sized
    assert recipe_name(sized) == "photos" == recipe_words(sized)
    assert get_recipe("photos").override({"epochs": 3}).sized(items).epochs == 3
    assert get_recipe("fast").sized(items) == get_recipe("fast")


def test_a_recipe_in_words_names_the_nearest_and_what_was_changed():
    assert all(recipe_words(RECIPES[name]) == name for name in RECIPES)
    assert recipe_words(get_recipe("fast").override({"epochs": 20})) == "fast, epochs=20"
    assert recipe_words(get_recipe("cifar10").override({"epochs": 80})) == "cifar10, epochs=80"  # milestones move along
    assert recipe_words(get_recipe("fast").override({"lr": 0.02, "epochs": 5})) == "fast, epochs=5, lr=0.02"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lr": 1e300}, "lr = 1e\\+300: expected 3.4028.* or less"),
        ({"weight_decay": 1e300}, "weight_decay = 1e\\+300: expected 3.4028.* or less"),
        ({"lr": 1e30, "k_lr": 1e30}, "k_lr = 1e\\+30: expected at most 3.403e\\+08 with lr = 1e\\+30"),
    ],
)
def test_a_figure_that_float32_does_not_hold_is_refused(changes, said):
    with pytest.raises(UserError, match=said):
        Recipe(**changes)
