"""Converted networks on a finer and on a coarser grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepnet
from stepnet.conversion import load_foreign
from stepnet.errors import UserError
from stepnet.exchange import Preprocessing
from stepnet.nets.network_grid import on_grid


class Block(nn.Module):
    """`u + f(u)`, or with `whole` its ReLU."""

    def __init__(self, whole: bool = False) -> None:
        super().__init__()
        self.conv, self.norm, self.whole = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), whole

    def f(self, u: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.conv(u)))

    def forward(self, u: Tensor) -> Tensor:
        return torch.relu(u + self.f(u)) if self.whole else u + self.f(u)


IMAGES = torch.randn(5, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def network(whole: bool = False, blocks: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    row = nn.Sequential(*(Block(whole) for _ in range(blocks)))
    made = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), row, nn.AdaptiveAvgPool2d(1), nn.Flatten()).double()
    made.train()(IMAGES)
    return made.eval()


def test_a_refined_euler_network_by_hand() -> None:
    plain = network()
    fine = stepnet.refine(stepnet.convert(plain, "euler", IMAGES), 2)
    with torch.no_grad():
        u = plain[0](IMAGES)
        for block in plain[1]:
            u = u + block.f(u) / 2
            u = u + block.f(u) / 2
        torch.testing.assert_close(fine(IMAGES), plain[3](plain[2](u)), rtol=1e-10, atol=1e-10)
    assert [len(states) for states in fine.trajectory(IMAGES)] == [7]
    assert fine.step_conversion.steps == 6


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("scheme", ["euler", "lm", "rk4"])
@pytest.mark.parametrize("interpolation", ["copied", "linear"])
def test_coarsening_a_refined_network_gives_it_back(scheme: str, whole: bool, interpolation: Any) -> None:
    model = stepnet.convert(network(whole), scheme, IMAGES)
    fine = stepnet.refine(model, 3, interpolation=interpolation)
    back = stepnet.coarsen(fine, depths=on_grid(model).depths)
    with torch.no_grad():
        torch.testing.assert_close(back(IMAGES), model(IMAGES), rtol=1e-10, atol=1e-10)
        assert float((fine(IMAGES) - model(IMAGES)).abs().max()) > 1e-6
    torch.testing.assert_close(back.state_dict(), model.state_dict(), rtol=1e-10, atol=1e-10)


def test_refitted_steps_come_nearer() -> None:
    model = stepnet.convert(network(blocks=4), "lm", IMAGES)
    plain, fitted = (stepnet.coarsen(model, 0.5, IMAGES, refit=refit) for refit in (False, True))
    assert on_grid(fitted).depths == (2,)
    with torch.no_grad():
        before, after = (float((each(IMAGES) - model(IMAGES)).square().mean()) for each in (plain, fitted))
    assert after < 0.5 * before


def test_a_network_of_torchvision_is_saved_and_loaded(tmp_path: Path) -> None:
    images = IMAGES.float().repeat(1, 1, 4, 4)
    torch.manual_seed(0)
    model = stepnet.convert(load_foreign("torchvision/resnet18", num_classes=10).eval(), "lm", images)
    how = Preprocessing(
        channels=3, image_size=32, resize=32, mean=(0.0,) * 3, std=(1.0,) * 3
    )  # fmt: skip
    fine = stepnet.refine(model, depths=(3, 2, 3, 2))
    for other in (fine, stepnet.coarsen(fine, depths=(2, 2, 2, 2))):
        stepnet.save(other, tmp_path / "other.safetensors", preprocessing=how)
        loaded = stepnet.load(tmp_path / "other.safetensors")
        with torch.no_grad():
            assert torch.equal(loaded(images), other(images))
        assert loaded.stepnet_conversion == other.stepnet_conversion
        assert on_grid(loaded).depths == on_grid(other).depths


def test_a_network_of_transformers_counts_its_layers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=32, n_positions=16)
    plain = transformers.GPT2LMHeadModel(config).eval()
    tokens = torch.randint(32, (2, 8))
    model = stepnet.convert(plain, "lm", tokens, blocks="GPT2Block")
    fine = stepnet.refine(model, 2)
    assert fine.config.num_hidden_layers == 4
    assert [layer.attn.layer_idx for layer in fine.transformer.h] == [0, 1, 2, 3]
    assert plain.config.num_hidden_layers == model.config.num_hidden_layers == 2
    fine.save_pretrained(tmp_path / "fine")
    loaded = stepnet.load(tmp_path / "fine", example=tokens)
    with torch.no_grad():
        torch.testing.assert_close(loaded(tokens).logits, fine(tokens).logits)
        back = stepnet.coarsen(fine, 0.5)
        torch.testing.assert_close(back(tokens).logits, model(tokens).logits)
        small = stepnet.coarsen(fine, 0.75, tokens)
        assert small(tokens).logits.shape == (2, 8, 32)


def test_a_step_size_for_each_step_of_each_row() -> None:
    model = stepnet.convert(network(), "euler", IMAGES, dt=[[1.0, 0.5, 0.25]])
    assert on_grid(model).stages[0].dts == (1.0, 0.5, 0.25)
    with pytest.raises(UserError, match="2 step sizes for a stage of 3 steps"):
        stepnet.convert(network(), "euler", IMAGES, dt=[[1.0, 0.5]])


def test_what_cannot_be() -> None:
    with pytest.raises(UserError, match="Sequential has no stages"):
        stepnet.refine(network())
    model = stepnet.convert(network(), "euler", IMAGES)
    with pytest.raises(UserError, match="scheme 'x0' in a converted network"):
        stepnet.refine(stepnet.convert(network(), "x0", IMAGES))
    with pytest.raises(UserError, match="last layers of another library's blocks are not known"):
        stepnet.refine(model, dt=1)
    with pytest.raises(UserError, match=r"depths = \(1,\): expected \(2,\) blocks or more"):
        stepnet.coarsen(stepnet.convert(network(), "lm", IMAGES), depths=(1,))
    with pytest.raises(UserError, match="refit='matrix': the last layers of another library's blocks are not known"):
        stepnet.coarsen(model, 0.67, IMAGES, refit="matrix")
    with pytest.raises(UserError, match=r"keep = 0.1 of 3 blocks leaves a stage empty"):
        stepnet.coarsen(model, 0.1)
