"""Stochastic depth: the law of its gates, what a dropped block costs, and what it leaves behind."""

import gc
import itertools
import math

import pytest
import torch
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from stepnet import UserError, create_model
from stepnet.nets import Stage
from stepnet.nets.resnet import cifar_resnet
from stepnet.nets.stochastic import StochasticDepth
from stepnet.schemes import get_scheme, list_schemes
from stepnet.schemes.noises import falling

SCHEMES = [name for name in list_schemes() if len(get_scheme(name).functions) == 1]
SCHEMES = [name for name in SCHEMES if name not in ("backward_euler", "dynamic_hyper")]  # which need more than blocks


class Linear(nn.Module):
    """`f(u) = a u`, counting its calls."""

    def __init__(self, a: float) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(a, dtype=torch.float64))
        self.calls = 0

    def forward(self, u, i=0):
        self.calls += 1
        return self.a * u


def linear_stage(scheme, depth=4):
    return Stage(get_scheme(scheme), [Linear(0.3 - 0.2 * n) for n in range(depth)])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("scaling", ["mean", "inverse"])
def test_the_expectation_over_all_gates_is_the_evaluation(scheme, scaling):
    """On a linear f the gated stage is linear in each gate, so that its mean is the stage at the gates' means."""
    stage, law = linear_stage(scheme), StochasticDepth(0.4, 4, scaling=scaling)
    x = torch.tensor([1.0, -2.0], dtype=torch.float64)
    mean = torch.zeros_like(x)
    for pattern in itertools.product((0.0, 1.0), repeat=4):
        chance = math.prod(p if eta else 1 - p for eta, p in zip(pattern, law.probabilities, strict=True))
        gates = [eta if scaling == "mean" else eta / p for eta, p in zip(pattern, law.probabilities, strict=True)]
        mean += chance * stage(x, gates=gates)
    torch.testing.assert_close(mean, stage(x, gates=law.means), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"scaling": "inverse"}, {"dt": 0.25}], ids=str)
def test_the_mean_over_many_draws_agrees_with_the_evaluation(options):
    stage, law = linear_stage("lm"), StochasticDepth(0.4, 4, **options)
    x = torch.ones((), dtype=torch.float64)
    with torch.no_grad():
        outputs = torch.stack([stage(x, gates=law.draw(7, step)) for step in range(2000)])
        wanted = stage(x, gates=law.means)
    assert abs(outputs.mean() - wanted) < 4 * outputs.std() / math.sqrt(len(outputs))
    assert outputs.std() > 0


def test_survival_falls_linearly_to_p_L():
    assert StochasticDepth(0.8, 4).probabilities == pytest.approx([0.95, 0.9, 0.85, 0.8])
    assert StochasticDepth(0.8, 4).means == StochasticDepth(0.8, 4).probabilities
    assert StochasticDepth(0.8, 4, scaling="inverse").means == [1.0] * 4
    assert StochasticDepth(1.0, 3).draw(0, 0) == [1.0] * 3
    assert StochasticDepth(0.0, 3).draw(0, 0)[-1] == 0.0


def test_the_released_code_drops_by_another_rule():
    """`i/(n-1) (1 - p_L)` for i = 0 … n-1, and what survives divided by its probability: docs/errata.md."""
    n, last = 5, 0.5
    released = [1 - i / (n - 1) * (1 - last) for i in range(n)]
    ours = StochasticDepth(last, n, scaling="inverse")
    assert released[0] == 1 > ours.probabilities[0] and released[-1] == ours.probabilities[-1] == last
    drawn = [ours.draw(0, step) for step in range(40)]
    for gates, p in zip(zip(*drawn, strict=True), ours.probabilities, strict=True):
        assert set(gates) == {0.0, 1 / p}


def test_gates_are_a_function_of_seed_and_step():
    law = StochasticDepth(0.5, 27)
    assert law.draw(1, 5) == StochasticDepth(0.5, 27).draw(1, 5)
    assert len({tuple(law.draw(seed, step)) for seed in range(3) for step in range(3)}) == 9
    assert all(type(gate) is float and gate in (0, 1) for gate in law.draw(1, 5))


def test_every_block_survives_as_often_as_it_should():
    law, draws = StochasticDepth(0.3, 10), 4000
    kept = torch.tensor([law.draw(3, step) for step in range(draws)]).mean(0)
    p = torch.tensor(law.probabilities)
    assert ((kept - p).abs() < 4 * (p * (1 - p) / draws).sqrt() + 1e-9).all()


def test_ab2_remembers_0_for_a_dropped_f():
    stage = linear_stage("ab2", 3)
    a = [block.a.item() for block in stage.blocks]
    u1 = 1 + a[0]
    u3 = u1 + 1.5 * a[2] * u1  # - a[1] u_1 / 2 is missing
    assert stage(torch.ones(1, dtype=torch.float64), gates=[1.0, 0.0, 1.0]).item() == pytest.approx(u3, rel=1e-14)


def test_a_runge_kutta_step_is_gated_once():
    """`u + p (increment)`, and not the increment of `p f`, which would hold powers of p."""
    stage = linear_stage("rk4", 1)
    z = stage.blocks[0].a.item()
    increment = z + z**2 / 2 + z**3 / 6 + z**4 / 24
    assert stage(torch.ones(1, dtype=torch.float64), gates=[0.5]).item() == pytest.approx(1 + increment / 2, rel=1e-14)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_gate_multiplies_the_whole_increment(scheme):
    """`carry + gate (u_ungated - carry)`, where dropping the step shows what is carried."""
    stage, x = linear_stage(scheme), torch.ones(1, dtype=torch.float64)
    carried, whole, half = (stage(x, gates=[1.0, 1.0, 1.0, gate]) for gate in (0.0, 1.0, 0.5))
    torch.testing.assert_close(half, carried + (whole - carried) / 2, rtol=1e-13, atol=1e-13)
    assert (whole - carried).abs().item() > 1e-3


def test_lm_carries_its_past_when_a_block_is_dropped():
    """`(1 - k) X_n + k X_{n-1} + eta f(X_n)`, with eta = 0."""
    stage = linear_stage("lm", 3).double()
    k, a = stage.k.tolist(), [block.a.item() for block in stage.blocks]
    x1 = 1 + a[0]
    x2 = (1 - k[0]) * x1 + k[0]
    x3 = (1 - k[1] + a[2]) * x2 + k[1] * x1
    assert stage(torch.ones(1, dtype=torch.float64), gates=[1.0, 0.0, 1.0]).item() == pytest.approx(x3, rel=1e-14)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_dropped_block_is_not_computed(scheme):
    stage = linear_stage(scheme)
    stage(torch.ones(1, dtype=torch.float64), gates=[1.0, 0.0, 1.0, 0.0])
    assert [block.calls > 0 for block in stage.blocks] == [True, False, True, False]


@pytest.mark.parametrize("scheme", ["euler", "rk4", "ab2"])
def test_a_dropped_block_keeps_its_running_statistics(scheme):
    model = create_model("resnet20", scheme=scheme, stochastic_depth=0.5)
    gates = [1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    model(torch.randn(2, 3, 8, 8), noise=gates)
    blocks = [block for stage in model.stages for block in stage.steps]
    seen = [any(int(b) for name, b in block.named_buffers() if "num_batches" in name) for block in blocks]
    assert seen == [bool(gate) for gate in gates]


def test_away_from_dt_1_no_block_is_skipped():
    law = StochasticDepth(0.5, 6, dt=0.25)
    assert 0 not in law.draw(0, 0)
    p = law.probabilities[-1]
    gates = {law.draw(0, step)[-1] for step in range(50)}
    weights = sorted(0.25 * gate for gate in gates)
    assert weights == pytest.approx([p * (0.25 - 0.5), 0.25 * p + 0.5 * (1 - p)])


def test_drop_path_draws_for_each_sample_and_ranks_take_slices():
    law = StochasticDepth(0.5, 3, mode="drop_path")
    gates = law.draw(0, 2, range(8))
    assert [gate.shape for gate in gates] == [(8, 1, 1, 1)] * 3
    assert 0 < gates[-1].mean() < 1
    for whole, part in zip(gates, law.draw(0, 2, range(4, 8)), strict=True):
        assert torch.equal(whole[4:], part)
    with pytest.raises(UserError, match="places"):
        law.draw(0, 2)


def test_drop_path_treats_each_sample_as_a_batch_of_its_own():
    stage = linear_stage("ab2")
    x = torch.randn(8, 2, 1, 1, dtype=torch.float64)
    gates = StochasticDepth(0.5, 4, mode="drop_path").draw(0, 0, range(8))
    together = stage(x, gates=gates)
    for n in range(8):
        alone = stage(x[n : n + 1], gates=[float(gate[n]) for gate in gates])
        torch.testing.assert_close(together[n : n + 1], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"survival": 1.2}, "survival = 1.2"),
        ({"survival": -0.1}, "survival = -0.1"),
        ({"survival": float("nan")}, "survival = nan"),
        ({"survival": 0.0, "scaling": "inverse"}, "inverse"),
        ({"survival": 0.5, "dt": 0}, "dt = 0"),
        ({"survival": 0.5, "dt": -1.0}, "dt = -1.0"),
        ({"survival": 0.5, "mode": "droppath"}, "did you mean 'drop_path'"),
        ({"survival": 0.5, "scaling": "invers"}, "did you mean 'inverse'"),
        ({"survival": 0.5, "dt": "small"}, "dt = 'small'"),
        ({"survival": 0.5, "seed": -1}, "seed = -1"),
        ({"survival": "half"}, "survival = 'half'"),
        ({"mode": "batch"}, "survival = None"),
        ({"survival": 0.5, "scale": "mean"}, "did you mean 'scaling'"),
        ({"survival": 0.5, "depth": 4}, "unknown option of stochastic depth 'depth'"),
        ("half", "stochastic_depth = 'half': expected a number or a dict"),
    ],
    ids=str,
)
def test_bad_input(options, message):
    with pytest.raises(UserError, match=message):
        create_model("resnet20", stochastic_depth=options)


def test_a_wrong_number_of_gates():
    with pytest.raises(UserError, match="8 gates: the network has 9 blocks"):
        create_model("resnet20")(torch.zeros(1, 3, 8, 8), noise=[1.0] * 8)


def test_the_network_takes_means_in_evaluation_and_draws_in_training():
    x = torch.randn(2, 3, 8, 8)
    model = create_model("lm_resnet20", stochastic_depth=0.5).eval()
    law = model.stochastic
    assert torch.equal(model(x), model(x, noise=law.means))
    model.train()
    first = model(x)
    assert torch.equal(first, model(x, noise=model.draw(law.seed, 0, range(2))))
    assert model.drawn == 1
    assert not torch.equal(first, model(x))


def test_drop_path_in_a_network_follows_the_state_s_type():
    model = create_model("lm_resnet20", stochastic_depth={"survival": 0.5, "mode": "drop_path"}).double()
    assert model(torch.randn(4, 3, 8, 8, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("name", ["resnet20", "lm_resnet20"])
def test_the_gradient_of_a_dropped_block_is_zero_rather_than_missing(name):
    model = create_model(name, stochastic_depth=0.5)
    gates = [1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0]  # a plain block, a transition, two in a row
    model(torch.randn(2, 3, 8, 8), noise=gates).square().sum().backward()
    blocks = [block for stage in model.stages for block in stage.steps]
    for block, gate in zip(blocks, gates, strict=True):
        moved = any(p.grad.abs().sum() > 0 for p in block.parameters())
        assert moved == bool(gate)
    assert all(p.grad is not None for p in model.parameters())
    before = blocks[1].convs[0].weight.detach().clone()
    torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5).step()
    torch.testing.assert_close(blocks[1].convs[0].weight.detach(), 0.95 * before)  # weight decay goes on


def train(images, targets, steps, wrap):
    """A few steps of SGD with gates; the norms keep their statistics, which are each rank's own otherwise."""
    torch.manual_seed(0)
    net = create_model("lm_resnet20", stochastic_depth=0.5).double()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    model, optimizer = wrap(net), torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-3)
    for step in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images, noise=net.draw(11, step, range(len(images)))), targets)
        loss.backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def rank_of_two(rank, folder, images, targets):
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    part = slice(4 * rank, 4 * rank + 4)
    found = train(images[part], targets[part], 4, DistributedDataParallel)
    torch.save(found, f"{folder}/rank{rank}.pt")
    gc.collect()  # a DistributedDataParallel that outlives its process group may wait for its threads for ever
    torch.distributed.destroy_process_group()


def test_two_processes_do_what_one_does_and_none_waits(tmp_path):
    """Plain DistributedDataParallel, without find_unused_parameters, over steps that drop different blocks."""
    torch.manual_seed(1)
    images, targets = torch.randn(8, 3, 8, 8, dtype=torch.float64), torch.arange(8)
    multiprocessing.spawn(rank_of_two, (str(tmp_path), images, targets), nprocs=2)
    first, second = (torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2))
    assert torch.equal(first, second)
    torch.testing.assert_close(first, train(images, targets, 4, lambda net: net), rtol=1e-10, atol=1e-12)


def noisy(scheme="euler", memory="stored", **options):
    torch.manual_seed(0)
    made = cifar_resnet(14, pre_activation=True, scheme=scheme, noise={"name": "additive", "sigma": 0.3}, **options)
    made.set_memory(memory)
    return made.double()


@pytest.mark.parametrize("scheme", ["euler", "lm", "heun"])
@pytest.mark.parametrize("dt", [1, 0.25])
def test_additive_noise_is_added_to_each_f(scheme, dt):
    """The states, marched by hand: `dt (f(X) + sigma xi / sqrt(dt))` for `dt f(X)`, the same in every evaluation."""
    model = noisy(scheme, dt=dt)
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    drawn = model.draw(3, 5, range(2))
    with torch.no_grad():
        found = model.train().trajectory(x, noise=drawn)[0]
        stage, f = model.stages[0], list(model.stages[0].blocks)
        xis = [own.like(found[0]) / (0.3 / math.sqrt(dt)) for own in drawn[:2]]
        assert 0.8 < torch.stack(xis).std() < 1.2 and abs(torch.stack(xis).mean()) < 0.2

        def rhs(n, u, i=0):
            return f[n](u, i) + 0.3 * xis[n] / math.sqrt(dt)

        u = [found[0]]
        for n in range(2):
            first = rhs(n, u[n])
            if scheme == "heun":
                u.append(u[n] + dt * (first + rhs(n, u[n] + dt * first, 1)) / 2)
            else:
                k = stage.k[0] if scheme == "lm" and n else 0
                u.append(u[n] + (k * (u[n - 1] - u[n]) if n else 0) + dt * first)
    for mine, theirs in zip(u, found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-6)


def test_additive_noise_is_a_function_of_seed_step_and_place():
    model, f = noisy(), torch.zeros(4, 16, 8, 8)
    whole = model.draw(1, 2, range(4))[3].like(f)
    assert torch.equal(whole[1:3], model.draw(1, 2, range(1, 3))[3].like(f[:2]))  # what another process draws
    others = [model.draw(*key, range(4))[n].like(f) for *key, n in ((1, 3, 3), (2, 2, 3), (1, 2, 4))]
    assert all(not torch.equal(whole, other) for other in others) and not torch.equal(whole[0], whole[1])


def test_evaluation_has_no_additive_noise_and_training_draws_its_own():
    model, plain = noisy(), cifar_resnet(14, pre_activation=True).double()
    plain.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    assert torch.equal(model.eval()(x), plain.eval()(x))
    model.train()
    assert not torch.equal(model(x), model(x))
    model.drawn = 0
    assert torch.equal(model(x), model(x, noise=model.draw(0, 0, range(2))))


@pytest.mark.parametrize("memory", ["recompute", "reversible"])
def test_additive_noise_is_added_again_in_a_backward_pass(memory):
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    gradients = []
    for mode in ("stored", memory):
        model = noisy("lm", mode, k=-0.5).train()
        outputs = [model(x, noise=model.draw(0, step, range(2))) for step in (0, 1)]  # two passes, then both backward
        sum(output.square().sum() for output in outputs).backward()
        gradients.append([p.grad for p in model.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_a_registered_noise_gates_every_image():
    """`eta ~ N(1, sigma^2)`, one for each block and image, from the law's own quantiles; its mean at evaluation."""
    model = cifar_resnet(8, noise={"name": "gaussian", "sigma": 0.5}, dt=0.25)
    drawn = torch.stack([gate for step in range(200) for gate in model.draw(0, step, range(4))])
    assert drawn.shape[1:] == (4, 1, 1, 1)
    assert abs(drawn.mean() - 1) < 0.1 and abs(drawn.std() - 0.5 / 0.25**0.5) < 0.1
    assert model.stochastic.means == [1.0] * 3
    falls = cifar_resnet(8, noise={"name": "stochastic_depth", "p": falling(0.4)})
    assert falls.stochastic.means == pytest.approx(StochasticDepth(0.4, 3).probabilities)
    assert {float(g) for gate in falls.draw(0, 0, range(50)) for g in gate.flatten()} == {0.0, 1.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": "shake_shake"}, "noise 'shake_shake' has weights for 2 branches"),
        ({"noise": "gaussian"}, "sigma is a symbol: sampling needs a number"),
        ({"noise": {"sigma": 0.1}}, "expected the name of a noise"),
        ({"noise": "gausian"}, "did you mean 'gaussian'"),
        ({"noise": {"name": "additive", "sigma": 0.1}, "stochastic_depth": 0.5}, "give one of them"),
    ],
)
def test_noises_that_cannot_be(options, message):
    with pytest.raises(UserError, match=message):
        create_model("resnet20", **options)
