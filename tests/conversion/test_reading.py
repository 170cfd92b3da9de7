"""`stepnet.read`: known matrices of other libraries' networks, of ours, and of small ones that apply theirs wrongly."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import stepnet
from stepnet.conversion import read

SMALL = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50}
TOKENS = {"input_ids": torch.tensor([[1, 4, 2, 3, 7]])}
IMAGE = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
WIDTH = 8


def lower(count: int, dt: float | list[float] = 1.0) -> np.ndarray[Any, Any]:
    """Euler: what block j adds arrives with dt at every later block, and at the end."""
    return np.tril(np.ones((count + 1, count)), -1) * dt


class Branch(nn.Module):
    """A right-hand side."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, u: Tensor) -> Tensor:
        return torch.tanh(self.linear(self.norm(u)))


class Block(nn.Module):
    """`u + f(u)`."""

    def __init__(self) -> None:
        super().__init__()
        self.f = Branch()

    def forward(self, u: Tensor) -> Tensor:
        return u + self.f(u)


# Networks of transformers, from their configurations


def transformer(name: str) -> tuple[nn.Module, Any, list[np.ndarray[Any, Any]]]:
    hf = pytest.importorskip("transformers")
    hf.logging.set_verbosity_error()
    grouped = {**SMALL, "num_key_value_heads": 1}
    conformer = {key: value for key, value in SMALL.items() if key != "vocab_size"}
    speech = {"conv_dim": (8,), "conv_kernel": (10,), "conv_stride": (5,)}
    speech |= {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
    t5 = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    both = {**TOKENS, "decoder_input_ids": TOKENS["input_ids"]}
    made: dict[str, Any] = {
        "gpt2": lambda: (hf.GPT2Model(hf.GPT2Config(**SMALL)), TOKENS, [lower(6)]),
        "llama": lambda: (hf.LlamaModel(hf.LlamaConfig(**grouped)), TOKENS, [lower(6)]),
        "granite": lambda: (
            hf.GraniteModel(hf.GraniteConfig(**grouped, residual_multiplier=0.22)), TOKENS, [lower(6, 0.22)]
        ),
        "gpt_neox": lambda: (hf.GPTNeoXModel(hf.GPTNeoXConfig(**SMALL)), TOKENS, [lower(3)]),  # one sum of two branches
        "vit": lambda: (
            hf.ViTModel(hf.ViTConfig(**conformer, image_size=64, patch_size=16)), IMAGE, [lower(6)]
        ),
        "t5": lambda: (hf.T5Model(hf.T5Config(**t5)), both, [lower(4), lower(6)]),
        "bert": lambda: (hf.BertModel(hf.BertConfig(**SMALL)), TOKENS, [np.eye(7, 6, -1)]),  # a norm after each sum
        "conformer": lambda: (
            hf.Wav2Vec2ConformerModel(hf.Wav2Vec2ConformerConfig(**conformer, **speech)),
            {"input_values": torch.randn(1, 400)},
            [lower(4, [0.5, 1, 1, 0.5])] * 3,  # Macaron's layer: a norm at its end
        ),
    }  # fmt: skip
    torch.manual_seed(0)
    model, example, matrices = made[name]()
    return model, example, matrices


@pytest.mark.parametrize("name", ["gpt2", "llama", "granite", "gpt_neox", "vit", "t5", "bert", "conformer"])
def test_transformers(name: str) -> None:
    model, example, matrices = transformer(name)
    reading = read(model, example)
    assert len(reading.stages) == len(matrices)
    for stage, matrix in zip(reading.stages, matrices, strict=True):
        np.testing.assert_allclose(stage.matrix, matrix, atol=1e-6)
        assert stage.nearest is not None
        assert stage.nearest.scheme == "euler"
    assert stepnet.assert_scheme(model, "euler", example).stages[0].layout.activated == (name == "bert")


def test_attention_and_mlp_of_a_layer_are_two() -> None:
    model, example, _ = transformer("gpt2")
    assert read(model, example).stages[0].blocks[:3] == ("h.0.attn", "h.0.mlp", "h.1.attn")
    text = str(read(model, example))
    assert text.startswith("GPT2Model: 6 evaluations of blocks in 1 stage\n\nh.0.attn … h.2.mlp: euler, dt = 1\n")
    assert "    3 h.1.attn    1  1  1\n" in text


# Families of timm


@pytest.mark.parametrize(
    ("name", "options", "blocks", "dt"),
    [
        ("vit_tiny_patch16_224", {"depth": 2, "img_size": 64}, [4], 1.0),
        ("deit3_small_patch16_224", {"depth": 2, "img_size": 64}, [4], 1e-6),  # LayerScale at its start
        ("cait_xxs24_224", {"depth": 2, "img_size": 64}, [4, 4], 1e-5),
        ("mixer_s32_224", {"img_size": 64}, [16], 1.0),
        ("convnext_atto", {"depths": (2, 2, 3, 2)}, [2, 2, 3, 2], 1e-6),
        ("swin_tiny_patch4_window7_224", {"img_size": 64, "window_size": 4, "depths": (2, 2)}, [4, 4], 1.0),
        ("poolformer_s12", {}, [4, 4, 12, 4], 1e-5),
        ("resnetv2_50", {"layers": (3, 2)}, [3, 2], 1.0),
        ("resmlp_12_224", {"img_size": 64}, [24], 1e-4),
        ("mobilenetv2_035", {}, [1, 2, 3, 2, 2], 1.0),
        ("resnet18", {}, [2, 2, 2, 2], 1.0),
    ],
)
def test_timm(name: str, options: dict[str, Any], blocks: list[int], dt: float) -> None:
    pytest.importorskip("timm")
    from stepnet.conversion import load_foreign

    reading = read(load_foreign(f"timm/{name}", num_classes=2, **options), IMAGE)
    assert [len(stage.blocks) for stage in reading.stages] == blocks
    for stage in reading.stages:
        assert stage.layout.activated == (name == "resnet18")
        count = len(stage.blocks)
        known = np.eye(count + 1, count, -1) if stage.layout.activated else lower(count, dt)
        np.testing.assert_allclose(stage.matrix, known, rtol=1e-6, atol=1e-12)
        assert stage.nearest is not None
        assert (stage.nearest.scheme, len(stage.nearest.dt)) == ("euler", 1)
        np.testing.assert_allclose(stage.nearest.dt, [dt], rtol=1e-6)


# Networks of ours: what was read is what they declare


def own(name: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a scheme that rarely acts
        return stepnet.create_model(name, **options)


METHODS = {name: stepnet.get_scheme(name) for name in stepnet.list_schemes()}
NETWORKS = [
    name
    for name, scheme in METHODS.items()
    if scheme.makes_network and len(scheme.functions) == 1 and not any(one.varies for one in scheme.learned)
]


@pytest.mark.parametrize("family", ["resnet20", "preact_resnet20"])
@pytest.mark.parametrize("scheme", NETWORKS)
def test_every_scheme_is_what_it_declares(scheme: str, family: str) -> None:
    model = own(family, scheme=scheme, dt=0.5)
    for stage in read(model).stages:
        assert stage.declared == scheme
        if stepnet.get_scheme(scheme).streams and family == "resnet20":  # streams that pass an activation
            assert stage.deviation is None
            continue
        assert stage.deviation is not None
        assert stage.deviation < 1e-6
        assert stage.layout.activated == (family == "resnet20")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lm_resnet20", {"stochastic_depth": 0.5}),
        ("lm_resnet20", {"k_per_channel": True}),
        ("lm_resnext29_8x64d", {}),
        ("revnet38", {}),
        ("lm_revnet38", {}),
        ("fractalnet20", {}),
        ("poly2_resnet20", {}),
        ("gpt3x16", {"scheme": "lm"}),
        ("gpt3x16", {"scheme": "strang"}),
    ],
)
def test_every_family_is_what_it_declares(name: str, options: dict[str, Any]) -> None:
    for stage in read(own(name, **options)).stages:
        assert stage.deviation is not None
        assert stage.deviation < 1e-6


@pytest.mark.parametrize("scheme", ["x0", "nesterov", "hyper", "mhc", "altup", "dense", "multistep"])
def test_trained_coefficients_are_what_they_declare(scheme: str) -> None:
    model = own("gpt3x16", scheme=scheme).double()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    (stage,) = read(model).stages
    assert stage.deviation is not None
    assert stage.deviation < 1e-12
    assert not np.allclose(stage.matrix, lower(6), atol=0.01)


@pytest.mark.parametrize("scheme", ["mhc", "altup", "dense", "momentum"])
def test_the_name_of_the_declared_scheme(scheme: str) -> None:
    """Also where its coefficients are too many to fit; of another network such a name says too little."""
    model = own("gpt2x16", scheme=scheme)
    stepnet.assert_scheme(model, scheme, tolerance=1e-6)
    with pytest.raises(AssertionError, match=r"its weights differ from hyper by inf: .* as declared"):
        stepnet.assert_scheme(model, "hyper")
    plain = nn.Sequential(Block(), Block())
    if scheme == "momentum":
        stepnet.assert_scheme(plain, scheme, torch.randn(2, WIDTH))
        return
    with pytest.raises(stepnet.UserError, match=rf"^scheme '{scheme}' leaves so many .* give the matrix"):
        stepnet.assert_scheme(plain, scheme, torch.randn(2, WIDTH))


def test_the_matrix_of_lm_by_its_recursion() -> None:
    model = own("preact_resnet32", scheme="lm", k=-0.25)
    stage = read(model).stages[0]
    rows = [np.zeros(5), np.eye(5)[0]]
    for n in range(1, 5):
        rows.append(1.25 * rows[n] - 0.25 * rows[n - 1] + np.eye(5)[n])
    np.testing.assert_allclose(stage.matrix, np.array(rows), atol=1e-6)
    assert stage.streams == 2
    assert stage.verdict.startswith("lm, dt = 1, k = -0.25, -0.25, -0.25, -0.25, as declared")


def test_a_stage_that_does_not_do_what_it_declares() -> None:
    """Its parameters say another k than the steps take."""
    from stepnet.conversion import marches

    model = own("preact_resnet20", scheme="lm", k=-0.25)
    declared = marches._declared_by

    def other(*args: Any) -> Any:
        found = declared(*args)
        found.ks = [None if k is None else 0.5 for k in found.ks]
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marches, "_declared_by", other)
        stage = read(model).stages[0]
        assert stage.verdict.startswith("NOT the lm that it declares: off by ")
        assert "nearest is lm, dt = 1, k = -0.25, -0.25" in stage.verdict
        with pytest.raises(AssertionError, match="the lm that it declares"):
            stepnet.assert_scheme(model, "lm")


# Converted networks


@pytest.mark.parametrize("scheme", ["euler", "lm", "ab2", "heun"])
@pytest.mark.parametrize("name", ["gpt2", "bert", "vit"])
def test_a_converted_network_is_what_it_declares(name: str, scheme: str) -> None:
    model, example, _ = transformer(name)
    example = example if isinstance(example, Tensor) else {**example, **({} if name == "vit" else {"use_cache": False})}
    for memory in ("stored", "recompute"):
        (stage,) = read(stepnet.convert(model, scheme, example, memory=memory), example).stages
        assert (stage.declared, len(set(stage.blocks))) == (scheme, 3)
        assert stage.deviation is not None
        assert stage.deviation < 1e-6


@pytest.mark.parametrize("scheme", ["x0", "momentum", "hyper", "mhc", "dense"])
def test_converted_streams_are_what_they_declare(scheme: str) -> None:
    model, example, _ = transformer("gpt2")
    converted = stepnet.convert(model, scheme, example)
    for name, parameter in converted.named_parameters():
        if "step_" in name:
            parameter.data.add_(0.2)
    (stage,) = read(converted, example).stages
    assert stage.declared == scheme
    assert stage.deviation is not None
    assert stage.deviation < 1e-6
    assert not np.allclose(stage.matrix, lower(3), atol=0.01) or scheme in ("hyper", "mhc")


def test_a_converted_resnet_before_its_activations() -> None:
    pytest.importorskip("timm")
    from stepnet.conversion import load_foreign

    plain = load_foreign("timm/resnet18", num_classes=2)
    reading = read(stepnet.convert(plain, "lm", IMAGE, init=-0.5, dt=0.5), IMAGE)
    assert [len(stage.blocks) for stage in reading.stages] == [2, 2, 2, 2]
    for stage in reading.stages:
        np.testing.assert_allclose(stage.weights[-1, :, 0], [-0.5, 0, 0.5, 1.5, 0], atol=1e-6)


# Residual connections that others write by hand


class TwoStreams(nn.Module):
    """Static hyper-connections: `Y = U y`, `y <- V y + B f(Y)`, with V applied as it is, transposed, or not at all."""

    def __init__(self, applied: Literal["right", "transposed", "not"]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Branch() for _ in range(4))
        generator = torch.Generator().manual_seed(1)
        self.u = nn.Parameter(torch.rand(4, 2, generator=generator))
        self.v = nn.Parameter(torch.rand(4, 2, 2, generator=generator))
        self.b = nn.Parameter(torch.rand(4, 2, generator=generator))
        self.applied = applied

    def forward(self, x: Tensor) -> Tensor:
        y = torch.stack([x, x])
        for u, v, b, block in zip(self.u, self.v, self.b, self.blocks, strict=True):
            f = block(torch.einsum("s,s...->...", u, y))
            mixing = {"right": v, "transposed": v.T, "not": torch.eye(2)}[self.applied]
            y = torch.einsum("st,t...->s...", mixing, y) + torch.einsum("s,...->s...", b, f)
        return y.sum(0)

    def declared(self) -> np.ndarray[Any, Any]:
        """`U_i V_{i-1} … V_{j+1} B_j`, the weight of block j at block i."""
        u, v, b = (parameter.detach().double().numpy() for parameter in (self.u, self.v, self.b))
        matrix = np.zeros((4, 4))
        for j in range(4):
            arrived = b[j]
            for i in range(j + 1, 4):
                matrix[i, j] = u[i] @ arrived
                arrived = v[i] @ arrived
        return matrix


def test_two_streams_as_declared() -> None:
    network = TwoStreams("right")
    reading = stepnet.assert_scheme(network, network.declared(), torch.randn(2, WIDTH), 1e-6, blocks="blocks.*")
    assert reading.stages[0].streams == 2
    assert "a general linear method of 2 streams; nearest is " in reading.stages[0].verdict


@pytest.mark.parametrize("applied", ["transposed", "not"])
def test_two_streams_applied_wrongly(applied: Literal["transposed", "not"]) -> None:
    network = TwoStreams(applied)
    with pytest.raises(AssertionError, match=r"its weights differ from the matrix by 0\.\d"):
        stepnet.assert_scheme(network, network.declared(), torch.randn(2, WIDTH), blocks=Branch)


class Mixed(nn.Module):
    """nanochat's `u <- r u + x u_0` before every block."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.r, self.x = nn.Parameter(torch.tensor([1.0, 0.9, 0.8])), nn.Parameter(torch.tensor([0.0, 0.2, 0.3]))

    def forward(self, x: Tensor) -> Tensor:
        u = x = 1 * x
        for r, weight, block in zip(self.r, self.x, self.blocks, strict=True):
            u = block(r * u + weight * x)
        return u


def test_states_mixed_between_blocks() -> None:
    (stage,) = read(Mixed(), torch.randn(2, WIDTH)).stages
    np.testing.assert_allclose(stage.matrix, [[0, 0, 0], [0.9, 0, 0], [0.72, 0.8, 0], [0.72, 0.8, 1]], atol=1e-6)
    np.testing.assert_allclose(stage.weights[:, 0, 0], [1, 1.1, 1.1 * 0.8 + 0.3, 1.1 * 0.8 + 0.3], atol=1e-6)


class LinearMultistep(nn.Module):
    """Someone's own LM network."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Branch() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        past, u = x, x + 0.5 * self.blocks[0](x)
        for n in range(1, 4):
            past, u = u, 1.25 * u - 0.25 * past + 0.5 * self.blocks[n](u)
        return u


def test_someone_s_own_lm_by_the_names_of_its_blocks() -> None:
    example = torch.randn(2, WIDTH)
    (stage,) = stepnet.assert_scheme(LinearMultistep(), "lm", example, blocks="blocks.*").stages
    assert stage.nearest is not None
    assert stage.nearest.scheme == "lm"
    np.testing.assert_allclose(stage.nearest.dt, [0.5], atol=1e-5)
    np.testing.assert_allclose(stage.nearest.coefficients[:2], [-0.25] * 2, atol=1e-5)
    with pytest.raises(AssertionError, match="differ from euler by"):
        stepnet.assert_scheme(LinearMultistep(), "euler", example, blocks="blocks.*")
    with pytest.raises(AssertionError, match=r"differ from lm\(k=-0.5\)"):
        stepnet.assert_scheme(LinearMultistep(), stepnet.get_scheme("lm", k=-0.5), example, blocks="blocks.*")


def test_step_sizes_by_channel() -> None:
    class Scaled(Block):
        def __init__(self) -> None:
            super().__init__()
            self.gamma = nn.Parameter(torch.linspace(0.1, 0.8, WIDTH))

        def forward(self, u: Tensor) -> Tensor:
            return u + self.gamma * self.f(u)

    (stage,) = read(nn.Sequential(*(Scaled() for _ in range(3))), torch.randn(2, WIDTH)).stages
    np.testing.assert_allclose(stage.weights[3, 1], np.linspace(0.1, 0.8, WIDTH), atol=1e-6)
    assert stage.nearest is not None
    assert stage.nearest.scheme == "euler"
    assert stage.nearest.deviation < 1e-5


def test_a_normalisation_between_blocks_ends_a_stage() -> None:
    class Unit(nn.Module):
        def forward(self, u: Tensor) -> Tensor:
            return u / u.norm(dim=-1, keepdim=True)

    model = nn.Sequential(Block(), Block(), Unit(), Block(), Block())
    first, second = read(model, torch.randn(2, WIDTH)).stages
    assert (first.blocks, second.blocks) == (("0", "1"), ("3", "4"))
    assert second.note == "not linear behind the blocks before it"


def test_a_mixing_of_channels_is_no_multiple() -> None:
    """Rows and columns sum to 1: ones arrive as ones, another vector does not arrive as itself."""

    class Mixing(nn.Module):
        def forward(self, u: Tensor) -> Tensor:
            return 0.5 * u + 0.5 * u.mean(-1, keepdim=True)

    model = nn.Sequential(Block(), Block(), Mixing(), Block(), Block())
    assert [stage.blocks for stage in read(model, torch.randn(2, WIDTH)).stages] == [("0", "1"), ("3", "4")]


def test_nothing_to_read_is_one_line() -> None:
    with pytest.raises(stepnet.UserError, match="Sequential has no blocks to read") as error:
        read(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()), torch.randn(2, WIDTH))
    assert "\n" not in str(error.value)


def test_a_matrix_of_another_shape() -> None:
    with pytest.raises(stepnet.UserError, match=r"a matrix of shape \(2, 2\) for 0 …: expected \(4, 3\)"):
        stepnet.assert_scheme(nn.Sequential(*(Block() for _ in range(3))), np.eye(2), torch.randn(2, WIDTH))


def test_the_network_is_left_alone() -> None:
    model = nn.Sequential(*(Block() for _ in range(2))).train().requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    read(model, torch.randn(2, WIDTH))
    assert model.training
    assert not any(p.requires_grad or p.grad is not None for p in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
