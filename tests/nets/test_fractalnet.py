"""FractalNet is its scheme with Larsson's layers as base maps: joins, columns, drop-path."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stepnet.analysis import order
from stepnet.errors import UserError
from stepnet.nets import Stage
from stepnet.nets.blocks import UnsharedWeights
from stepnet.nets.cost import on_meta
from stepnet.nets.fractalnet import ConvolvedState, FractalNet, LayerMinusIdentity, cifar_fractalnet
from stepnet.schemes import Equation

WIDTHS = (4, 8, 8, 8, 8)


def net(depth: int = 20, **options: object) -> FractalNet:
    torch.manual_seed(0)
    return cifar_fractalnet(depth, WIDTHS, **options).double().eval()


def image() -> Tensor:
    return torch.randn(2, 3, 32, 32, dtype=torch.float64)


def layer(stage: Stage, i: int, u: Tensor) -> Tensor:
    """Larsson's layer B_i."""
    (fractal,) = stage.blocks
    assert isinstance(fractal, UnsharedWeights)
    map_minus_identity = fractal.fs[i]
    assert isinstance(map_minus_identity, LayerMinusIdentity)
    return map_minus_identity(u).end


# The layers of each column, the shallowest column first, by our number of the evaluation.
COLUMNS = {
    20: [[0], [1, 4], [2, 3, 5, 6]],
    40: [[0], [1, 8], [2, 5, 9, 12], [3, 4, 6, 7, 10, 11, 13, 14]],
}


def larsson(model: FractalNet, x: Tensor, layers: list[list[int]]) -> Tensor:
    """The features of Larsson's network as his generator wires it, one layer of every column after the other.

    Layers are conv, batch norm, relu. At depth l the deepest `j` columns meet, where `2^(j-1)` is the largest power of
    2 that divides l; after the last layer each column is max-pooled before all of them meet.
    """
    deepest = len(layers)
    for entry, stage in zip(model.entries, model.stages, strict=True):
        x = entry(x)
        (fractal,) = stage.blocks
        last = [x] * deepest
        pending = [iter(numbers) for numbers in layers]
        depth = 2 ** (deepest - 1)
        for made in range(1, depth + 1):
            for column in range(deepest):
                if made % 2 ** (deepest - 1 - column) == 0:
                    convolution, norm, _ = fractal.fs[next(pending[column])]
                    v = F.conv2d(last[column], convolution.weight, padding=1)
                    statistics = (None, None) if model.training else (norm.running_mean, norm.running_var)
                    v = F.batch_norm(v, *statistics, norm.weight, norm.bias, model.training, 0.0, norm.eps)
                    last[column] = torch.relu(v)
            if made == depth:
                last = [F.max_pool2d(v, 2) for v in last]
            meeting = 1
            while made % 2**meeting == 0:
                meeting += 1
            if meeting > 1:
                mean = sum(last[-meeting:]) / meeting
                last[-meeting:] = [mean] * meeting
        x = last[0]
    return x


@pytest.mark.parametrize("depth", [20, 40])
@pytest.mark.parametrize("training", [False, True])
def test_it_is_larssons_network(depth: int, training: bool) -> None:
    model, x = net(depth).train(training), image()
    for norm in (module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)):
        torch.nn.init.normal_(norm.weight, 1, 0.1), torch.nn.init.normal_(norm.bias, 0, 0.1)
        torch.nn.init.normal_(norm.running_mean, 0, 0.1), torch.nn.init.uniform_(norm.running_var, 0.5, 1)
    expected = larsson(model, x, COLUMNS[depth])
    assert expected.shape == (2, 8, 1, 1)
    torch.testing.assert_close(model.forward_features(x), expected, rtol=1e-12, atol=1e-12)


def test_dropout_stands_between_convolution_and_norm_and_rises_with_depth() -> None:
    model, x = net(10, dropout=0.4).train(), image()
    rates = [layer.dropout for stage in model.stages for layer in stage.blocks[0].fs]
    assert rates == pytest.approx([rate for rate in (0, 0.1, 0.2, 0.3, 0.4) for _ in range(3)])
    assert not torch.equal(model.forward_features(x), model.forward_features(x))  # it is drawn
    model.eval()
    torch.testing.assert_close(model.forward_features(x), larsson(model, x, [[0], [1, 2]]), rtol=1e-12, atol=1e-12)
    one, u = LayerMinusIdentity(8, dropout=0.5).double().train(), torch.randn(2, 8, 4, 4, dtype=torch.float64)
    torch.manual_seed(1)
    end = one(u).end
    torch.manual_seed(1)
    normalised = F.batch_norm(F.dropout(one[0](u), 0.5), None, None, training=True)
    torch.testing.assert_close(end, torch.relu(normalised), rtol=1e-12, atol=1e-12)


def test_the_papers_formula_is_heun_with_two_maps() -> None:
    """Short path the identity: `x + (f_1(x) + f_2(x + f_1(x))) / 2` with `f = B - I`."""
    model = net(10, scheme="fractal2")
    stage = model.stages[1]
    assert isinstance(stage, Stage)
    u = torch.randn(2, 8, 8, 8, dtype=torch.float64)
    f1 = layer(stage, 0, u) - u
    f2 = layer(stage, 1, u + f1) - (u + f1)
    torch.testing.assert_close(stage(u), u + (f1 + f2) / 2, rtol=1e-12, atol=1e-12)


def convolved(depth: int = 10) -> tuple[Stage, list[ConvolvedState]]:
    """The second fractal with the paper's convolutions, and its maps."""
    stage = net(depth, convolutions=True).stages[1]
    assert isinstance(stage, Stage)
    (fractal,) = stage.blocks
    assert isinstance(fractal, UnsharedWeights)
    maps = [each for each in fractal.fs if isinstance(each, ConvolvedState)]
    assert len(maps) == len(fractal.fs)
    return stage, maps


def test_the_papers_formula_with_its_convolutions() -> None:
    """`k_1 * x + k_2 * (k_3 * x + f_1(x)) + f_2(k_3 * x + f_1(x))`, halved where the recursion halves, and trained."""
    stage, (first, inner, outer) = convolved()
    assert first.layer is None
    for each in (first, inner, outer):
        torch.nn.init.normal_(each.k.weight, std=0.1)
    x = torch.randn(2, 8, 8, 8, dtype=torch.float64)
    k3_x = F.conv2d(x, inner.k.weight, padding=1)
    y = k3_x + inner.layer(x)
    expected = (F.conv2d(x, first.k.weight, padding=1) + F.conv2d(y, outer.k.weight, padding=1) + outer.layer(y)) / 2
    found = stage(x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    gradients = torch.autograd.grad(found.square().sum(), [each.k.weight for each in (first, inner, outer)])
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


def test_the_convolutions_begin_as_heuns_method() -> None:
    stage, (_, inner, outer) = convolved()
    x = torch.randn(2, 8, 8, 8, dtype=torch.float64)
    f1 = inner.layer(x)
    torch.testing.assert_close(stage(x), x + (f1 + outer.layer(x + f1)) / 2, rtol=1e-12, atol=1e-12)


def test_deeper_convolutions_stand_on_the_short_paths_of_all_levels() -> None:
    stage, maps = convolved(20)
    assert [each.layer is None for each in maps] == [True, True, False, False, True, False, False]
    for each in maps:
        torch.nn.init.normal_(each.k.weight, std=0.1)
    x = torch.randn(2, 8, 8, 8, dtype=torch.float64)

    def f1(each: ConvolvedState, v: Tensor) -> Tensor:
        return F.conv2d(v, each.k.weight, padding=1) + each.layer(v)

    def f2(short: ConvolvedState, one: ConvolvedState, two: ConvolvedState, v: Tensor) -> Tensor:
        return (F.conv2d(v, short.k.weight, padding=1) + f1(two, f1(one, v))) / 2

    expected = (F.conv2d(x, maps[0].k.weight, padding=1) + f2(*maps[4:7], f2(*maps[1:4], x))) / 2
    torch.testing.assert_close(stage(x), expected, rtol=1e-12, atol=1e-12)


def test_convolutions_need_short_paths_of_their_own() -> None:
    with pytest.raises(UserError, match=r"short paths of scheme 'fractal2' are the identity; leave the scheme out$"):
        net(10, scheme="fractal2", convolutions=True)


def test_whole_maps_have_no_step_size() -> None:
    with pytest.raises(UserError, match=r"dt = 0.5: the layers of scheme 'full_fractal3' are whole maps B\(u\)"):
        net(dt=0.5)
    assert net(dt=0.5, scheme="fractal3")(image()).shape == (2, 10)


def test_one_column_is_a_chain_of_layers_to_the_bit() -> None:
    model = net(5)
    stage = model.stages[0]
    assert isinstance(stage, Stage)
    u = model.entries[0](image())
    assert torch.equal(stage(u), layer(stage, 0, u))


@pytest.mark.parametrize("column", [1, 2, 3])
def test_columns(column: int) -> None:
    """A column is a chain of layers, pooled after each fractal, and the network with all other paths dropped."""
    model, x = net(), image()
    plain = model.extract_column(column)
    assert torch.equal(plain(x), model(x, model.column_joins(column)))
    assert len(plain.forward_intermediates(x, intermediates_only=True)) == len(model.stages)
    u = x
    for n, stage in enumerate(model.stages):
        assert isinstance(stage, Stage)
        u = model.entries[n](u)
        for i in COLUMNS[20][column - 1]:
            u = layer(stage, i, u)
    assert u.shape[-1] == 1 and torch.equal(plain.forward_features(x), u)


def test_no_such_column() -> None:
    with pytest.raises(UserError, match=r"column 4: expected 1 \(shallowest\) to 3 \(deepest\)"):
        net().extract_column(4)


def test_local_drop_path_keeps_one_path_at_least() -> None:
    """Larsson's join drops each of its inputs alike, keeps one of them where all are dropped, and takes the mean."""
    model = net(40, drop_path=0.3)
    drawn = [tuple(join) for step in range(60) for fractal in model.draw(0, step, range(1)) for join in fractal]
    assert len(drawn) == 60 * 5 * 4 and all(sum(join) == 1 for join in drawn)
    pairs, triples, all_four = ([join for join in drawn if len(join) == n] for n in (2, 3, 4))
    assert (len(pairs), len(triples), len(all_four)) == (600, 300, 300)
    # both kept: (1-p)^2 = 0.49; otherwise one, either with the same probability
    assert [pairs.count(join) / 600 for join in ((0.5, 0.5), (1, 0), (0, 1))] == pytest.approx(
        [0.49, 0.255, 0.255], abs=0.06
    )
    assert all_four.count((Fraction(1, 4),) * 4) / 300 == pytest.approx(0.7**4, abs=0.06)


def test_a_dropped_path_is_not_in_the_mean_and_not_computed() -> None:
    """Three columns meet and the middle one is dropped: the mean of the other two, without its last layer."""
    model = net()
    stage = model.stages[1]
    assert isinstance(stage, Stage)
    u = torch.randn(2, 8, 8, 8, dtype=torch.float64)
    called = []
    for i, each in enumerate(stage.blocks[0].fs):
        each.register_forward_hook(lambda *_, i=i: called.append(i))
    found = stage(u, ks=[[(Fraction(1, 2), 0, Fraction(1, 2)), (0, 1)]])
    assert called == [0, 2, 3, 5, 6]
    deepest = u
    for i in (2, 3, 5, 6):
        deepest = layer(stage, i, deepest)
    torch.testing.assert_close(found, (layer(stage, 0, u) + deepest) / 2, rtol=1e-12, atol=1e-12)


def test_global_drop_path_is_one_column_of_the_whole_network() -> None:
    model = net(global_drop=1.0)
    columns = [model.column_joins(c) for c in (1, 2, 3)]
    drawn = [model.draw(0, step, range(1)) for step in range(60)]
    assert all(joins in columns for joins in drawn)
    assert all(columns[c] in drawn for c in range(3))


def test_drop_path_acts_in_training_only_and_leaves_zero_gradients() -> None:
    model = net(global_drop=1.0)
    x = image()
    assert torch.equal(model(x), model(x))
    model.train()
    model(x).sum().backward()
    gradients = [p.grad for p in model.parameters()]
    assert all(g is not None for g in gradients)
    assert any(g is not None and not g.any() for g in gradients)


def test_the_draw_is_a_function_of_seed_and_step() -> None:
    model = net(drop_path=0.3, seed=7).train()
    draws = [model.draw(7, step, range(1)) for step in range(3)]
    assert draws == [model.draw(7, step, range(1)) for step in range(3)]
    assert draws[0] != draws[1] != draws[2] and draws[0] != model.draw(8, 0, range(1))
    x = image()
    own, given = ([float(model(x, *joins).sum()) for joins in each] for each in ([()] * 3, [(j,) for j in draws]))
    assert own == given  # what the network draws itself is the same sequence


def test_bad_options() -> None:
    with pytest.raises(UserError, match=r"FractalNet of depth 30: expected one of 5, 10, 20, 40, 80"):
        cifar_fractalnet(30)
    with pytest.raises(UserError, match=r"drop_path = 1.5: expected 1 or less"):
        net(drop_path=1.5)
    with pytest.raises(UserError, match=r"scheme 'heun' on FractalNet: each stage is one fractal step"):
        net(scheme="heun", drop_path=0.1)
    with pytest.raises(UserError, match=r"at least 32"):
        net()(torch.zeros(1, 3, 16, 16, dtype=torch.float64))


def test_no_doubling_widths_have_the_papers_count_for_40_layers() -> None:
    """22.9M lies between the neighbours b = 33 and 34: docs/errata.md."""
    counts = []
    for b in (33, 34):
        with torch.device("meta"):
            model = cifar_fractalnet(40, (b, 2 * b, 4 * b, 8 * b, 8 * b), num_classes=100)
        counts.append(round(sum(p.numel() for p in model.parameters()) / 1e6, 1))
    assert counts == [22.0, 23.4]


@pytest.mark.parametrize(
    ("name", "scheme", "equation"),
    [("fractalnet20", "full_fractal3", "(3/7) u' = f"), ("fractalnet40", "full_fractal4", "(4/15) u' = f")],
)
def test_the_networks_solve_equations_of_their_own(name: str, scheme: str, equation: str) -> None:
    own = on_meta(name).scheme
    assert own.name == scheme and str(own.equation) == equation
    assert order(own) == 1 and order(own, against=Equation()) == 0
