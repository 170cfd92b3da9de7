"""Layers of other libraries as steps of a splitting, against loops over their branches."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from tests.conversion.test_sublayers import Layer, X, layers, sublayers
from tests.conversion.test_transformers import IDS, build
from tests.nets.test_splitting import step
from torch import Tensor, nn

import stepnet
from stepnet.conversion.step import ConvertedStep
from stepnet.errors import UserError
from stepnet.nets import KineticCost

SPLITTINGS = ["parallel", "lie_trotter", "strang", "strang+midpoint"]


@pytest.mark.parametrize("memory", ["stored", "recompute"])
@pytest.mark.parametrize("scheme", SPLITTINGS)
def test_gpt2_is_a_splitting_of_its_branches(scheme: str, memory: Any) -> None:
    """States, and gradients of the weights, in double precision; every weight is what `read` expects."""
    pytest.importorskip("transformers")
    plain = build("gpt2")[0].transformer.double()
    example = {"input_ids": IDS, "use_cache": False}
    model = stepnet.convert(plain, scheme, example, dt=0.7, memory=memory)
    u, fs = sublayers(plain, "attn", example)
    for n in range(0, len(fs), 2):
        u = step(scheme, u, fs[n][0], fs[n + 1][0], 0.7)
    (states,) = model.trajectory(**example)
    assert len(states) == len(fs) / 2 + 1
    wanted = plain.ln_f(u)
    torch.testing.assert_close(model.ln_f(states[-1]), wanted, rtol=0, atol=1e-12)
    without_dropout(model.train())
    found = model(**example)[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    weights = torch.randn(found.shape, dtype=found.dtype, generator=torch.Generator().manual_seed(1))
    ours, theirs = (
        torch.autograd.grad((out * weights).sum(), list(network.parameters()))
        for out, network in ((found, model), (wanted, plain))
    )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    (stage,) = stepnet.read(model.eval(), example).stages
    assert stage.declared == scheme and stage.deviation == pytest.approx(0, abs=1e-12)
    assert torch.equal(stepnet.revert(model)(**example)[0], plain(**example)[0])


def without_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


@pytest.mark.parametrize("name", ["gpt2", "llama", "vit"])
def test_lie_trotter_is_the_network_as_it_is(name: str) -> None:
    """To the bit, alone and under LM with k = 0, which then mixes whole layers."""
    pytest.importorskip("transformers")
    plain, example = build(name)
    wanted = plain(**example)[0]
    assert torch.equal(stepnet.convert(plain, "lie_trotter", example)(**example)[0], wanted)
    model = stepnet.convert(plain, "lm+lie_trotter", example, init="identity")
    assert torch.equal(model(**example)[0], wanted)
    layer = stepnet.convert(plain, "lm", example, step="layer", init=-0.3)
    model.load_state_dict(layer.state_dict())
    torch.testing.assert_close(model(**example)[0], layer(**example)[0])


@pytest.mark.parametrize("scheme", ["parallel", "strang"])
def test_generation_with_a_cache(scheme: str) -> None:
    """A cache holds one evaluation of attention: that of `parallel`; `strang` says what to do."""
    pytest.importorskip("transformers")
    model, example = build("llama")
    model = stepnet.convert(model, scheme, {**example, "use_cache": False})
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    options |= {"return_dict_in_generate": True, "output_logits": True}
    whole = model.generate(IDS[:1], use_cache=False, **options)
    if scheme == "strang":
        with pytest.raises(UserError, match=r"'strang' evaluates 'model.layers.0' more than once .* use_cache=False"):
            model.generate(IDS[:1], **options)
        return
    cached = model.generate(IDS[:1], **options)
    torch.testing.assert_close(torch.stack(cached.logits), torch.stack(whole.logits))


@pytest.mark.parametrize("scheme", SPLITTINGS)
def test_gates_drop_both_branches(scheme: str) -> None:
    """Gate 0 leaves the state as it is, and gate 1/2 half of the increment; the cost is that of first evaluations."""
    plain, gates = layers(depth=3), [1, 0, 0.5]
    model = stepnet.convert(plain, scheme, X, stochastic_depth=0.5).train()
    cost = KineticCost()
    u, first = X, dict[nn.Module, Tensor]()
    for layer, gate in zip(plain, gates, strict=True):
        if gate:
            new = step(scheme, u, noted(layer.one, first), noted(layer.two, first), 1)
            u = u + gate * (new - u)
    total = sum(f.square().sum() for f in first.values()) / len(X)
    torch.testing.assert_close(model(X, noise=gates, cost=cost), u, rtol=0, atol=1e-12)
    torch.testing.assert_close(cost.total, total, rtol=0, atol=1e-12)
    model(X, noise=gates).sum().backward()
    assert not model[1].one.weight.grad.any() and model[0].one.weight.grad.any()


def noted(f: nn.Module, first: dict[nn.Module, Tensor]) -> Any:
    def call(u: Tensor) -> Tensor:
        value: Tensor = f(u)
        first.setdefault(f, value)
        return value

    return call


@pytest.mark.parametrize("scheme", SPLITTINGS)
def test_copies_and_files_keep_the_steps(scheme: str, tmp_path: Any) -> None:
    model = stepnet.convert(layers(), scheme, X)
    assert model.step_conversion.stages[0].blocks == ("0", "1")
    stepnet.save(model, tmp_path / "model.safetensors")
    loaded = stepnet.load(tmp_path / "model.safetensors", model=layers(), example=X)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded):
        assert isinstance(other[0], ConvertedStep) and torch.equal(other(X), model(X))
    texts = {text.get_text() for text in stepnet.plot_network(model).axes[0].texts}
    assert {"$f_{0}$", "$g_{0}$"} <= texts


@pytest.mark.parametrize("scheme", ["parallel", "strang"])
def test_it_compiles_as_one_graph(scheme: str) -> None:
    model = stepnet.convert(layers(), scheme, X)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(model, backend="eager", fullgraph=True)(X), model(X))


class Normed(Layer):
    """A batch norm in its second branch."""

    def __init__(self) -> None:
        super().__init__()
        self.two = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))


def test_wrong_input_is_one_line() -> None:
    why = (
        r"^scheme 'strang' splits u' = f \+ g: it needs layers of two branches, added one after the other without a.*$"
    )
    for network in (layers("parallel"), layers("copied"), layers("in place")):
        with pytest.raises(UserError, match=why):
            stepnet.convert(network, "strang", X)
    with pytest.raises(UserError, match=r"^step='sublayer': a step of 'strang' has both branches of a layer"):
        stepnet.convert(layers(), "strang", X, step="sublayer")
    with pytest.raises(UserError, match=r"^memory='reversible': steps inside a layer .* take memory='recompute'"):
        stepnet.convert(layers(), "strang", X, memory="reversible")
    normed = nn.Sequential(Normed(), Normed()).double()
    with pytest.raises(UserError, match=r"^scheme 'strang' evaluates f several times in a step, and '0' cannot tell"):
        stepnet.convert(normed, "strang", X)
    assert torch.equal(stepnet.convert(normed, "lie_trotter", X).eval()(X), normed.eval()(X))
    with pytest.raises(UserError, match=r"blocks that take several steps"):
        stepnet.refine(stepnet.convert(layers(), "strang", X), 2)
    model = stepnet.convert(layers(), "strang", X)
    model[1].more = True
    with pytest.raises(UserError, match=r"^'1' adds to its state in another way than on the example"):
        model(X)


def test_a_post_norm_network_has_no_splitting() -> None:
    pytest.importorskip("transformers")
    model, example = build("bert")
    with pytest.raises(UserError, match=r"layers of two branches, added one after the other without a norm after them"):
        stepnet.convert(model, "strang", example)
