"""Each residual sum inside a layer's forward is a step of its own: GPT-2, Llama, ViT and BERT by one rule."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tests.conversion.agreement import run
from tests.conversion.test_transformers import IDS, build
from tests.nets.test_general_linear import NAMES, REFERENCES
from torch import Tensor, nn

import stepnet
from stepnet.conversion.step import ConvertedStep
from stepnet.errors import UserError
from stepnet.nets import KineticCost
from stepnet.report.residual_connections import residual_schemes

hf = pytest.importorskip("transformers")

Sublayers = list[tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]]  # f, and what follows the sum


def move(model: nn.Module) -> nn.Module:
    """Coefficients away from their start."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".step_" in name:
                parameter += 0.2 * torch.randn(parameter.shape, generator=generator).to(parameter)
    return model


def sublayers(model: nn.Module, attention: str, example: dict[str, Any]) -> tuple[Tensor, Sublayers]:
    """`u_0` and the sublayers of a network, written out here; attention gets the masks that the network gives it."""
    parts = [part for name, part in model.named_modules() if name.endswith(f".{attention}")]
    layers = [part for part in model.modules() if attention in dict(part.named_children())]
    masks: list[Callable[..., Tensor]] = []
    states: list[Tensor] = []

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        names = ("hidden_states", "past_key_values", "use_cache")
        masks.append(partial(at_state, args[1:], {k: v for k, v in kwargs.items() if k not in names}))

    hooks = [part.register_forward_pre_hook(note, with_kwargs=True) for part in parts]
    hooks.append(layers[0].register_forward_pre_hook(lambda m, args: states.append(args[0])))
    model(**example)
    for hook in hooks:
        hook.remove()
    found: Sublayers = []
    for layer, masked in zip(layers, masks, strict=True):
        found += BRANCHES[type(layer).__name__](layer, masked)
    return states[0], found


def at_state(args: tuple[Any, ...], kwargs: dict[str, Any], attention: Callable[..., Any], u: Tensor) -> Tensor:
    output: Tensor = attention(u, *args, **kwargs)[0]
    return output


def same(u: Tensor) -> Tensor:
    return u


BRANCHES: dict[str, Callable[[Any, Any], Sublayers]] = {
    "GPT2Block": lambda b, masked: [
        (lambda u: masked(b.attn, b.ln_1(u)), same),
        (lambda u: b.mlp(b.ln_2(u)), same),
    ],
    "LlamaDecoderLayer": lambda b, masked: [
        (lambda u: masked(b.self_attn, b.input_layernorm(u)), same),
        (lambda u: b.mlp(b.post_attention_layernorm(u)), same),
    ],
    "ViTLayer": lambda b, masked: [
        (lambda u: masked(b.attention, b.layernorm_before(u)), same),
        (lambda u: b.mlp(b.layernorm_after(u)), same),
    ],
    "BertLayer": lambda b, masked: [
        (lambda u: b.attention.output.dense(masked(b.attention.self, u)), b.attention.output.LayerNorm),
        (lambda u: b.output.dense(b.intermediate(u)), b.output.LayerNorm),
    ],
}


def lm(u: Tensor, fs: Sublayers, ks: list[Tensor | float]) -> Tensor:
    """`u_{n+1} = after(u_n + f(u_n) + k_n (u_{n-1} - u_n))`."""
    past = u
    for (f, after), k in zip(fs, ks, strict=True):
        past, u = u, after(u + f(u) + k * (past - u))
    return u


def adams(u: Tensor, fs: Any, own: Any) -> Tensor:
    older = None
    for f in fs:
        new = f(u)
        u, older = u + (new if older is None else 1.5 * new - 0.5 * older), new
    return u


def midpoint(u: Tensor, fs: Any, own: Any) -> Tensor:
    past, u = u, u + fs[0](u)
    for f in fs[1:]:
        past, u = u, past + 2 * f(u)
    return u


FIXED = {"ab2": adams, "midpoint2": midpoint}


def coefficients(model: nn.Module) -> dict[str, dict[int, Tensor]]:
    """The named coefficients by name and step, with their gradients."""
    found: dict[str, dict[int, Tensor]] = {}
    for block in (module for module in model.modules() if isinstance(module, ConvertedStep)):
        owners = [role.place for role in block.step_roles if role.k_index is not None]
        for name, value in block.named_coefficients():
            step, _, coefficient = name.partition(":")
            number = int(step.partition(".")[2] or 0)
            found.setdefault(coefficient or "k", {})[owners[number]] = value
    return found


@pytest.mark.parametrize("scheme", ["lm", *NAMES, *FIXED])
def test_gpt2_is_a_loop_over_its_sublayers(scheme: str) -> None:
    """To the bit at the start; then outputs, and gradients of weights and coefficients, in double precision."""
    plain = build("gpt2")[0].transformer.double()
    example = {"input_ids": IDS}
    init = "paper" if scheme in FIXED else "identity"
    model = stepnet.convert(plain, scheme, example, step="sublayer", init=init)
    if scheme not in FIXED:
        assert torch.equal(model(**example)[0], plain(**example)[0])
    move(model)
    reading = stepnet.read(model, example)
    assert len(reading.stages) == 1 and len(reading.stages[0].blocks) == 6
    assert reading.stages[0].declared == scheme and reading.stages[0].deviation == pytest.approx(0, abs=1e-12)
    original = copy.deepcopy(plain)
    original.load_state_dict({k: v for k, v in model.state_dict().items() if "step_" not in k})
    u, fs = sublayers(original, "attn", example)
    own = coefficients(model)
    if scheme == "lm":
        reference = lm(u, fs, [0.0, *(own["k"][n] for n in range(1, 6))])
    else:
        reference = (REFERENCES | FIXED)[scheme](u, [f for f, _ in fs], own)
    wanted, found = original.ln_f(reference), model(**example)[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    weights = torch.randn(found.shape, dtype=found.dtype, generator=torch.Generator().manual_seed(1))
    ours = dict(model.named_parameters())
    theirs = dict(original.named_parameters()) | {k: v for k, v in ours.items() if "step_" in k}
    gradients = [
        torch.autograd.grad((out * weights).sum(), [named[k] for k in ours], allow_unused=True)
        for out, named in ((found, ours), (wanted, theirs))
    ]
    for name, got, want in zip(ours, *gradients, strict=True):
        assert got is not None, name
        torch.testing.assert_close(got, torch.zeros_like(got) if want is None else want, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "attention"), [("gpt2", "attn"), ("llama", "self_attn"), ("vit", "attention"), ("bert", "attention")]
)
def test_one_rule_for_all_transformers(name: str, attention: str) -> None:
    """All outputs are the original's at k = 0; the states are those of LM's formula, in BERT inside the norm."""
    plain, example = build(name)
    model = stepnet.convert(plain, "lm", example, step="sublayer", init="identity")
    for got, want in zip(run(model, example), run(plain, example), strict=True):
        assert torch.equal(got, want)
    plain, example = plain.double(), in_double(example)
    model = stepnet.convert(plain, "lm", example, step="sublayer", init=-0.3)
    u, fs = sublayers(plain, attention, example)
    (states,) = model.trajectory(**example)
    assert len(states) == 7
    torch.testing.assert_close(states[-1], lm(u, fs, [0.0, *[-0.3] * 5]), rtol=0, atol=1e-12)
    torch.testing.assert_close(states[-2], lm(u, fs[:-1], [0.0, *[-0.3] * 4]), rtol=0, atol=1e-12)
    assert stepnet.read(model, example).stages[0].deviation == pytest.approx(0, abs=1e-12)
    inside = "inside the norm that follows it" in str(model.step_conversion)
    assert inside == (name == "bert")
    names = list(stepnet.coefficients(model))
    assert len(names) == 5 and names[1].endswith("1.step_k.0") and names[2].endswith("1.step_k.1")
    assert run(stepnet.revert(model), example)[0].equal(run(plain, example)[0])


def in_double(example: dict[str, Any]) -> dict[str, Any]:
    floating = lambda v: isinstance(v, Tensor) and v.is_floating_point()  # noqa: E731
    return {k: v.double() if floating(v) else v for k, v in example.items() if not k.startswith("output")}


@pytest.mark.parametrize("scheme", ["lm", "mhc"])
def test_generation_with_a_cache_is_generation_without(scheme: str) -> None:
    model, example = build("llama")
    converted = move(stepnet.convert(model, scheme, example, step="sublayer"))
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    options |= {"return_dict_in_generate": True, "output_logits": True}
    cached, whole = (converted.generate(IDS[:1], use_cache=use, **options) for use in (True, False))
    torch.testing.assert_close(torch.stack(cached.logits), torch.stack(whole.logits))
    assert not torch.allclose(cached.logits[-1], model.generate(IDS[:1], **options).logits[-1])


@pytest.mark.parametrize("scheme", ["lm", "x0", "dense"])
def test_a_layer_is_evaluated_again_for_its_gradient(scheme: str) -> None:
    """By `memory="recompute"` and by transformers' gradient checkpointing: the same gradients, dropout included."""
    example = {"input_ids": IDS, "use_cache": False}
    model = move(stepnet.convert(build("gpt2")[0], scheme, example, step="sublayer")).train()
    again = stepnet.convert(build("gpt2")[0], scheme, example, step="sublayer", memory="recompute").train()
    again.load_state_dict(model.state_dict())

    def gradients(network: nn.Module) -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        return torch.autograd.grad(network(**example).logits.square().sum(), list(network.parameters()))

    wanted = gradients(model)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for network in (again, model):
        for got, want in zip(gradients(network), wanted, strict=True):
            assert torch.equal(got, want)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(UserError, match=r"'transformer.h.0:0' cannot be evaluated again .* choose use_reentrant=False"):
        model(**example)


def test_gates_drop_the_increment_of_a_sublayer() -> None:
    """Gate 0 leaves the carry, and its parameters have the gradient 0."""
    plain = build("gpt2")[0].transformer.double()
    example = {"input_ids": IDS}
    model = stepnet.convert(plain, "lm", example, step="sublayer", init=-0.3, stochastic_depth=0.5).train()
    u, fs = sublayers(plain, "attn", example)
    gates = [1, 0, 1, 1, 0, 1]
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    cost = KineticCost()
    found = model(**example, noise=gates, cost=cost)[0]
    again = stepnet.convert(plain, "lm", example, step="sublayer", init=-0.3, stochastic_depth=0.5, memory="recompute")
    assert cost.total > 0
    dropped = [(f if gate else torch.zeros_like, after) for (f, after), gate in zip(fs, gates, strict=True)]
    torch.testing.assert_close(found, plain.ln_f(lm(u, dropped, [0.0, *[-0.3] * 5])), rtol=0, atol=1e-12)
    found.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    assert not model.h[0].mlp.c_fc.weight.grad.any() and model.h[0].attn.c_attn.weight.grad.any()
    for module in again.train().modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    again(**example, noise=gates, cost=KineticCost())[0].sum().backward()
    for p, q in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)  # type: ignore[arg-type]


def test_it_compiles_as_one_graph() -> None:
    model = move(stepnet.convert(layers(), "lm", X, step="sublayer"))
    torch._dynamo.reset()
    assert torch.equal(torch.compile(model, backend="eager", fullgraph=True)(X), model(X))


class Layer(nn.Module):
    """Two branches, one after the other, or as `kind` says; a third one with `more`."""

    def __init__(self, kind: str = "") -> None:
        super().__init__()
        self.one, self.two, self.kind, self.more = nn.Linear(4, 4), nn.Linear(4, 4), kind, False

    def forward(self, u: Tensor) -> Tensor:
        if self.kind == "parallel":
            return u + self.one(u) + self.two(u)
        if self.kind == "positions":
            u = u + self.one(u + 0.1 * torch.ones_like(u))
        elif self.kind == "in place":
            u = u + self.one(u)
            u += self.two(u)
            return u
        elif self.kind == "copied":
            u = (u + self.one(u)).clone()
        else:
            u = u + self.one(u)
        if self.more:
            u = u + torch.tanh(u)
        return self.two(u) + u


def layers(kind: str = "", depth: int = 2) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Layer(kind) for _ in range(depth))).double()


X = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_which_sums_are_steps() -> None:
    """Branches that read the same state are one step; an addition inside a branch is none; one layer is enough."""
    kinds = {}
    for kind in ("", "parallel", "positions"):
        model = stepnet.convert(layers(kind), "lm", X, step="sublayer", init="identity")
        assert torch.equal(model(X), layers(kind)(X))
        kinds[kind] = (model.step_conversion.steps, model[0].step_role.kinds)
    assert kinds == {"": (4, ("sum", "sum")), "parallel": (2, ()), "positions": (4, ("branch", "sum", "sum"))}
    assert stepnet.convert(layers(depth=1), "lm", X, step="sublayer").step_conversion.steps == 2
    assert stepnet.convert(layers(), "lm", X).step_conversion.steps == 2  # as it always was


def test_wrong_input_is_one_line() -> None:
    for kind in ("in place", "copied"):
        with pytest.raises(UserError, match=r"step='sublayer': '0' adds 2 branches, and its state cannot be followed"):
            stepnet.convert(layers(kind), "lm", X, step="sublayer")
    with pytest.raises(UserError, match=r"scheme 'heun' evaluates f several times in a step, and the sums inside"):
        stepnet.convert(layers(), "heun", X, step="sublayer")
    with pytest.raises(UserError, match=r"memory='reversible': steps inside a layer cannot be taken back"):
        stepnet.convert(layers(), "lm", X, step="sublayer", memory="reversible")
    model = stepnet.convert(layers(), "lm", X, step="sublayer", memory="auto")
    assert model[1].memory_in_use == "recompute"
    with pytest.raises(UserError, match=r"step '1:0' of scheme 'lm' got a state that its run did not make"):
        model[1](X)
    model[1].more = True
    with pytest.raises(UserError, match=r"'1' adds to its state in another way than on the example, on which it took"):
        model(X)
    with pytest.raises(UserError, match=r"torch.fx cannot record the steps inside '0:0'"):
        torch.fx.symbolic_trace(model)


def test_copies_and_files_keep_the_steps(tmp_path: Any) -> None:
    model = move(stepnet.convert(layers(), "lm", X, step="sublayer", k_bound="stable"))
    stepnet.save(model, tmp_path / "model.safetensors")
    loaded = stepnet.load(tmp_path / "model.safetensors", model=layers(), example=X)
    assert loaded.step_conversion.stages[0].blocks == ("0:0", "0:1", "1:0", "1:1")
    again = stepnet.convert(layers(), "lm", X, step="sublayer", k_bound="stable")
    again.load_state_dict(model.state_dict())
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded, again):
        assert torch.equal(other(X), model(X))
    with pytest.raises(UserError, match=r"'0:0': blocks that take several steps, or stand in"):
        stepnet.refine(model, 2)


class Logits(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.network(input_ids=tokens, use_cache=False).logits
        return logits


SCHEMES = residual_schemes()
STEPS = [
    (name, step) for name in SCHEMES for step in ("layer", "sublayer") if step == "layer" or not SCHEMES[name].splits
]


@pytest.mark.parametrize(("scheme", "step"), STEPS)
def test_every_residual_scheme_in_gpt2(scheme: str, step: Any, tmp_path: Any) -> None:
    """Every row of `stepnet table residual`: the same bits at first; trained, resumed, saved, loaded, exported, drawn.

    `parallel` and `strang` have no coefficient with which they would be the network as it is.
    """
    learned = stepnet.get_scheme(scheme).trainable
    config = hf.GPT2Config(n_embd=8, n_layer=4, n_head=2, n_positions=8, vocab_size=20, bos_token_id=0, eos_token_id=0)
    tokens = torch.randint(20, (2, 6), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    plain = hf.GPT2LMHeadModel(config).eval()
    init = "identity" if learned else "paper"
    model = stepnet.convert(plain, scheme, {"input_ids": tokens}, step=step, init=init)
    assert torch.equal(Logits(model)(tokens), Logits(plain)(tokens)) == (scheme not in ("parallel", "strang"))
    assert model.step_conversion.steps == (4 if step == "layer" else 8)

    def train(network: nn.Module, steps: int, optimizer_state: Any = None) -> Any:
        optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
        if optimizer_state is not None:
            optimizer.load_state_dict(copy.deepcopy(optimizer_state))
        for _ in range(steps):
            optimizer.zero_grad()
            logits = Logits(network)(tokens)[:, :-1]
            nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
        return optimizer.state_dict()

    before = stepnet.coefficients(model)
    state = copy.deepcopy(train(model, 2))
    resumed = stepnet.convert(plain, scheme, {"input_ids": tokens}, step=step)
    resumed.load_state_dict(model.state_dict())
    train(resumed, 1, state)
    train(model, 1, state)
    after = stepnet.coefficients(model)
    assert all(before[name] != after[name] for name in before) and bool(before) == learned
    assert torch.equal(Logits(resumed)(tokens), Logits(model)(tokens))
    model.save_pretrained(tmp_path)
    loaded = stepnet.load(tmp_path)
    assert torch.equal(Logits(loaded)(tokens), Logits(model)(tokens))
    program = torch.export.export(Logits(model), (tokens,), strict=False)
    torch.testing.assert_close(program.module()(tokens), Logits(model)(tokens))
    assert stepnet.plot_network(model).axes
    if learned:
        assert stepnet.plot_coefficients(model).axes
