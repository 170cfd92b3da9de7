import pytest

from stepnet import UserError
from stepnet.training.recipes import RECIPES, Recipe, default_recipe, get_recipe


def test_the_papers_figures():
    cifar10, cifar100, resnext = RECIPES["cifar10"], RECIPES["cifar100"], RECIPES["resnext_cifar"]
    assert (cifar10.epochs, cifar10.milestones, cifar10.batch_size) == (160, (80, 120), 128)
    assert (cifar10.lr, cifar10.momentum, cifar10.weight_decay) == (0.1, 0.9, 1e-4)
    assert (cifar100.epochs, cifar100.milestones, cifar100.weight_decay) == (300, (150, 225), 1e-4)
    assert (resnext.epochs, resnext.milestones, resnext.weight_decay) == (300, (150, 225), 5e-4)
    assert RECIPES["imagenet"].batch_size == 256
    depth56, depth110 = RECIPES["stochastic_depth_56"], RECIPES["stochastic_depth"]
    assert (depth56.epochs, depth56.milestones, depth56.stochastic_depth) == (500, (250, 375), 0.8)
    assert (depth110.epochs, depth110.milestones, depth110.stochastic_depth) == (500, (250, 375), 0.5)
    assert depth56.nesterov and depth110.nesterov and not cifar10.nesterov


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
