"""A network as a dynamical system, against numpy on a network small enough to know all of its Jacobian."""

import numpy as np
import pytest
import torch
from torch import nn

from stepnet import convert, create_model
from stepnet.errors import UserError
from stepnet.nets.stage import Stage
from stepnet.nets.transitions import Coupling
from stepnet.report.dynamics import (
    effective_steps,
    jacobian_eigenvalues,
    network_steps,
    principal_plane,
    right_hand_side,
    roots,
    spectra,
    verdict,
)
from stepnet.schemes import get_scheme

SHAPE = (1, 3, 3, 4)  # 36 numbers


class Mixing(nn.Module):
    """`f(u) = tanh(W u)`, W dense."""

    def __init__(self, size: int = 36) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size, dtype=torch.float64)

    def forward(self, u: torch.Tensor, i: int = 0) -> torch.Tensor:
        return torch.tanh(self.linear(u.flatten(1))).view_as(u)


class Tiny(nn.Module):
    def __init__(self, scheme: str = "lm", steps: int = 3, **options) -> None:
        super().__init__()
        self.stage = Stage(get_scheme(scheme), [Mixing() for _ in range(steps)], **options).double()

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return self.stage(u)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def dense_eigenvalues(f, u: torch.Tensor) -> np.ndarray:
    matrix = torch.autograd.functional.jacobian(f, u).reshape(u.numel(), u.numel())
    values = np.linalg.eigvals(matrix.numpy())
    return values[np.argsort(-np.abs(values))]


def test_arnoldi_finds_the_eigenvalues_that_numpy_finds() -> None:
    block, u = Mixing(), torch.randn(SHAPE, dtype=torch.float64)
    found = jacobian_eigenvalues(right_hand_side(block), u, 6, tolerance=1e-10)
    expected = dense_eigenvalues(block, u)
    assert np.abs(found) == pytest.approx(np.abs(expected[:6]), abs=1e-8)
    assert np.abs(found[:, None] - expected).min(axis=1) == pytest.approx(0, abs=1e-8)  # arguments too
    assert np.abs(found.imag).max() > 0.01


def test_all_of_a_small_spectrum() -> None:
    block, u = Mixing(4), torch.randn(1, 4, 1, 1, dtype=torch.float64)
    assert len(jacobian_eigenvalues(right_hand_side(block), u, 6)) == 4


def test_the_jacobian_of_a_pair_couples_its_parts() -> None:
    pair, (x, y) = Coupling(Mixing(18), Mixing(18)), torch.randn(2, 1, 3, 3, 2, dtype=torch.float64)
    a, b = (torch.autograd.functional.jacobian(f, u).reshape(18, 18) for f, u in ((pair.f, y), (pair.g, x)))
    matrix = np.block([[np.zeros((18, 18)), a.numpy()], [b.numpy(), np.zeros((18, 18))]])
    largest = np.abs(np.linalg.eigvals(matrix)).max()
    found = jacobian_eigenvalues(right_hand_side(pair), (x, y), 4, tolerance=1e-10)
    assert np.abs(found).max() == pytest.approx(largest, rel=1e-7)


def test_every_step_has_its_spectrum_at_its_own_state() -> None:
    model, u = Tiny(dt=0.5), torch.randn(SHAPE, dtype=torch.float64)
    states = list(model.stage.states(u))
    for n, one in enumerate(spectra(model, u, count=3)):
        expected = 0.5 * dense_eigenvalues(model.stage.blocks[n], states[n])[:3]
        assert np.abs(one.z) == pytest.approx(np.abs(expected), rel=1e-2)
        assert one.step.name == f"stage.blocks.{n}"
    first = spectra(model, u, count=3)[0]
    assert first.step.scheme.steps == 1  # the starter: there is no past
    assert first.growth == pytest.approx(np.abs(1 + first.z).max())


def test_the_two_roots_of_lm_are_1_and_minus_k() -> None:
    for k in (-0.3, 0.7):
        assert np.sort(roots(get_scheme("lm"), k).real) == pytest.approx(sorted((1, -k)))
        at = -0.4 + 0.2j  # zeta^2 - (1 - k + z) zeta - k
        assert np.sort_complex(roots(get_scheme("lm"), k, at)) == pytest.approx(
            np.sort_complex(np.roots([1, -(1 - k + at), -k]))
        )
    assert roots(get_scheme("rk4"), None, -1) == pytest.approx([1 - 1 + 1 / 2 - 1 / 6 + 1 / 24])


@pytest.mark.parametrize(("k", "word"), [(-0.3, "accelerates"), (0.2, "damps"), (0.0, "Euler")])
def test_what_a_coefficient_does(k, word) -> None:
    assert verdict(get_scheme("lm"), k) == word


@pytest.mark.parametrize("k", [-3.3, -1.0, 1.2])
def test_a_k_outside_its_interval_is_told(k) -> None:
    assert verdict(get_scheme("lm"), k) == "outside the stable interval (-1, 1]"


def test_the_effective_step_by_hand() -> None:
    model, u = Tiny("euler", steps=1), torch.randn(2, *SHAPE[1:], dtype=torch.float64)
    f = model.stage.blocks[0](u).detach().flatten(1)
    expected = (f.norm(dim=1) / u.flatten(1).norm(dim=1)).mean()
    assert effective_steps(model, u) == [[pytest.approx(float(expected))]]


def test_the_plane_keeps_what_lies_in_it() -> None:
    directions = torch.linalg.qr(torch.randn(36, 2, dtype=torch.float64))[0]
    places = torch.randn(4, 5, 2, dtype=torch.float64)  # states, images
    found = principal_plane([(place @ directions.T).view(5, *SHAPE[1:]) for place in places])
    flat, seen = places.reshape(-1, 2), torch.from_numpy(found).reshape(-1, 2)
    assert torch.cdist(seen, seen).numpy() == pytest.approx(torch.cdist(flat, flat).numpy(), abs=1e-9)


def test_steps_of_our_networks_and_of_converted_ones() -> None:
    names = [step.name for stage in network_steps(create_model("lm_resnet20")) for step in stage]
    assert names[:4] == ["stages.0.blocks.0", "stages.0.blocks.1", "stages.0.blocks.2", "stages.1.transition"]
    plain = create_model("preact_resnet20")
    with pytest.raises(UserError, match="has no scheme"):
        network_steps(nn.Linear(2, 2))

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = Mixing()

        def forward(self, u: torch.Tensor) -> torch.Tensor:
            return u + self.f(u)

    u = torch.randn(SHAPE, dtype=torch.float64)
    converted = convert(nn.Sequential(*(Whole() for _ in range(3))), "lm", u)
    (steps,) = network_steps(converted)
    assert [step.scheme.steps for step in steps] == [1, 2, 2]
    assert torch.allclose(right_hand_side(steps[1].block)(u), steps[1].block.f(u))
    assert len(spectra(converted, u, count=2)) == 3
    assert [step.k for stage in network_steps(plain) for step in stage] == [None] * 9
    with pytest.raises(UserError, match="2 images"):
        spectra(converted, torch.cat([u, u]))
