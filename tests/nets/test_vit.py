"""ViT under Euler, against torch's own encoder layers; other schemes are those of `test_gpt`."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import stepnet
from stepnet.errors import UserError
from stepnet.nets.vit import ViT, positions


def network(scheme: str = "euler", **options: object) -> ViT:
    torch.manual_seed(0)
    model = stepnet.create_model("vit2x16", scheme=scheme, in_channels=1, patch=2, heads=2, **options)  # type: ignore[arg-type]
    assert isinstance(model, ViT)
    return model.double()


def by_torch(model: ViT, x: Tensor) -> Tensor:
    """Patches cut out by hand, then `nn.TransformerEncoderLayer`."""
    w = {name: value.detach() for name, value in model.state_dict().items()}
    patches = torch.stack([x[:, :, i : i + 2, j : j + 2].flatten(1) for i in (0, 2, 4) for j in (0, 2)], 1)
    u = patches @ w["stem.weight"].flatten(1).T + w["stem.bias"] + place(3, 2, 16)
    for n in range(model.layers):
        layer = nn.TransformerEncoderLayer(
            16, 2, 64, 0.0, "gelu", batch_first=True, norm_first=True, bias=False, dtype=torch.float64
        )
        attention, feed = f"stages.0.blocks.{2 * n}.", f"stages.0.blocks.{2 * n + 1}."
        layer.load_state_dict(
            {
                "self_attn.in_proj_weight": w[f"{attention}qkv.weight"],
                "self_attn.out_proj.weight": w[f"{attention}project.weight"],
                "linear1.weight": w[f"{feed}expand.weight"],
                "linear2.weight": w[f"{feed}project.weight"],
                "norm1.weight": w[f"{attention}norm.weight"],
                "norm2.weight": w[f"{feed}norm.weight"],
            }
        )
        u = layer(u)
    u = nn.functional.layer_norm(u, (16,), w["norm.weight"])
    return u.mean(1) @ w["head.weight"].T + w["head.bias"]


def place(rows: int, columns: int, width: int) -> Tensor:
    """sin and cos of row and of column, each with wavelengths from 2 pi to 20000 pi."""
    quarter = width // 4
    return torch.tensor(
        [
            [
                turn(at * 10_000 ** (-f / (quarter - 1)))
                for at in (i, j)
                for turn in (math.sin, math.cos)
                for f in range(quarter)
            ]
            for i in range(rows)
            for j in range(columns)
        ],
        dtype=torch.float64,
    )


def test_logits_are_those_of_torchs_encoder_layers() -> None:
    model, x = network(), torch.randn(2, 1, 6, 4, dtype=torch.float64)
    torch.testing.assert_close(model(x), by_torch(model, x), rtol=0, atol=1e-6)  # positions are float32
    torch.testing.assert_close(positions(3, 2, 16).double(), place(3, 2, 16), rtol=0, atol=1e-6)


@pytest.mark.parametrize("scheme", ["lm", "x0", "hyper", "heun"])
def test_schemes_step_its_sublayers(scheme: str) -> None:
    model = network(scheme)
    model(torch.randn(2, 1, 4, 4, dtype=torch.float64)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_features_are_maps() -> None:
    model, x = network(num_classes=3), torch.randn(2, 1, 6, 4, dtype=torch.float64)
    assert model.forward_features(x).shape == (2, 16, 3, 2) and model(x).shape == (2, 3)


def test_wrong_images_are_one_line() -> None:
    with pytest.raises(UserError, match=r"image of 5 x 4 pixels: expected multiples of the patch, 2"):
        network()(torch.zeros(1, 1, 5, 4, dtype=torch.float64))
    with pytest.raises(UserError, match=r"width 18: expected a multiple of 4"):
        stepnet.create_model("vit1x18")
