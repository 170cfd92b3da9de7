"""Noise in the blocks of a residual network, for every scheme of the library, LM included (paper, section 3).

Stochastic depth (Huang et al. 2016):

    X_{n+1} = carry + gate_n increment,    P(eta_n = 1) = p_n,    p_l = 1 - l/L (1 - p_L)

The gate multiplies the step's whole increment, so a Runge–Kutta step is gated once, and a multistep method reads 0 for
an f that was dropped. Evaluation uses the gates' means. Gates are a function of (seed, step, block), drawn
before the forward pass: so that resumed runs and all ranks of a distributed one draw the same.

`BlockNoise` puts any registered noise with one f into every block: gates for each image, or numbers added to f.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from stepnet.arguments import Count, Positive, Probability, Seed, checked
from stepnet.errors import UserError, check_known
from stepnet.randomness import Stream, random_words, uniform, uniforms_by_place
from stepnet.schemes import stochastic_gate

if TYPE_CHECKING:
    from stepnet.schemes.noises import Noise

Gate = float | Tensor  # of a block: for the batch, or one for each image
Mode = Literal["batch", "drop_path"]
Scaling = Literal["mean", "inverse"]


@checked
@dataclass
class StochasticDepth:
    """The distribution of the gates of a network with `depth` blocks.

    `mode`: "batch" draws one gate for each block and batch, a Python number, and a block whose gate is 0 is not
    computed; "drop_path" draws one for each block and sample, which regularises more finely and saves nothing.
    `scaling`: "mean" is Huang's, gates eta in training and p at evaluation; "inverse" has eta/p and 1.
    `dt` is that of the paper's general form: away from 1 a dropped block keeps the weight `p (dt - sqrt(dt))`
    instead of 0, so every block is computed.
    """

    survival: Probability  # p_L, of the last block
    depth: Count
    mode: Mode = "batch"
    scaling: Scaling = "mean"
    dt: Positive = 1
    seed: Seed = 0  # of the gates that the network draws if its caller passes none

    @classmethod
    def of(cls, option: float | Mapping[str, Any], depth: int, dt: float) -> StochasticDepth:
        """Build from the option of a network: `p_L`, or options by name; dt is by default that of the network."""
        options = option if isinstance(option, Mapping) else {"survival": option}
        known = [field.name for field in fields(cls) if field.name != "depth"]
        for name in options:
            check_known("option of stochastic depth", name, known)
        return cls(**{"survival": None, "dt": dt, **options, "depth": depth})

    def __post_init__(self) -> None:
        if self.scaling == "inverse" and self.survival == 0:
            raise UserError("survival probability p_L = 0 with inverse scaling: 1/p_L is infinite; take scaling='mean'")

    @property
    def probabilities(self) -> list[float]:
        """`p_1 … p_L`: the survival probability falls linearly from the input to `p_L`."""
        return [1 - block / self.depth * (1 - self.survival) for block in range(1, self.depth + 1)]

    @property
    def means(self) -> list[float]:
        """The gates of evaluation: `E gate`, one for each block."""
        return self.probabilities if self.scaling == "mean" else [1.0] * self.depth

    def draw(self, seed: int, step: int, places: range | None = None) -> list[Gate]:
        """Draw the gates of training step `step`, one for each block; drop_path needs the images' `places`."""
        if self.mode == "batch":
            return self._gates(uniform(random_words(self.depth, seed, step, Stream.GATES)).tolist())
        if places is None:
            raise UserError("drop_path draws one gate for each image: pass draw(seed, step, places=range(batch size))")
        uniforms = torch.from_numpy(uniforms_by_place(self.depth, places, seed, step, Stream.GATES))
        return self._gates(uniforms.T.reshape(self.depth, -1, 1, 1, 1))

    def _gates(self, uniforms: Iterable[Gate]) -> list[Gate]:
        gates: list[Gate] = []
        for u, p in zip(uniforms, self.probabilities, strict=True):
            eta = (u < p).float() if isinstance(u, Tensor) else float(u < p)
            gate = stochastic_gate(eta, p, self.dt)
            gates.append(gate if self.scaling == "mean" else gate / p)
        return gates


@dataclass
class AddedNoise:
    """What is added to the f of one block: separate numbers for each image, drawn when the shape of f is known."""

    noise: Noise
    time: float
    scale: float
    key: tuple[int, ...]
    places: range  # of the images in the global batch

    @_disable_dynamo
    def like(self, f: Tensor) -> Tensor:
        """Draw the numbers for an f of this shape, whose first dimension is the batch."""
        shape = f.shape[1:]
        if self.noise.normal:  # ten times as fast as quantiles
            xi = torch.stack([self._normal(shape, place) for place in self.places])
        else:
            uniforms = uniforms_by_place(shape.numel(), self.places, *self.key)
            xi = torch.from_numpy(self.noise.quantile(uniforms, self.time)).float().reshape(-1, *shape)
        return self.scale * xi.to(f)

    def _normal(self, shape: torch.Size, place: int) -> Tensor:
        (word,) = random_words(1, place, *self.key)
        return torch.randn(shape, generator=torch.Generator().manual_seed(int(word >> 1)))


def add_noise(block: nn.Module, args: object, f: Tensor) -> Tensor:
    """Forward hook: add to f the noise that the network drew for the block."""
    added: AddedNoise | None = vars(block)["drawn_noise"]
    return f if added is None else f + added.like(f)


@checked
def _checked_seed(seed: Seed) -> int:
    return seed


@dataclass
class BlockNoise:
    """A registered noise in each of `depth` blocks; the time of its distribution is that of the block, from 0 to 1.

    A noise that multiplies f draws one eta for each block and image; one that is added, for each entry of f.
    """

    noise: Noise
    depth: int
    dt: float = 1
    seed: int = 0

    @classmethod
    def of(cls, option: str | Mapping[str, Any], depth: int, dt: float) -> BlockNoise:
        """Build from the option of a network: the name of a noise, or a mapping with `name`, parameters and `seed`."""
        from stepnet.schemes.noises import get_noise, number

        options: dict[str, Any] = dict(option) if isinstance(option, Mapping) else {"name": option}
        name, seed = options.pop("name", None), options.pop("seed", 0)
        if not isinstance(name, str):
            raise UserError(f"noise = {option!r}: expected the name of a noise, or {{'name': …}} with its parameters")
        noise = get_noise(name, **options)
        if noise.branches != 1:
            raise UserError(
                f"noise {name!r} has weights for {noise.branches} branches, and a block has one f: take a shakeshake"
            )
        number(noise.mean), number(noise.deviation)  # raise for a missing parameter
        return cls(noise, depth, dt, _checked_seed(seed))

    @property
    def means(self) -> list[float] | None:
        """The gates of evaluation; None if the noise is added."""
        from stepnet.schemes.noises import number

        if self.noise.additive:
            return None
        return [float(number(self.noise.mean, time)) for time in self._times]

    @property
    def _times(self) -> list[float]:
        return [block / self.depth for block in range(1, self.depth + 1)]

    def draw(self, seed: int, step: int, places: range) -> list[Tensor | AddedNoise]:
        """Draw the gates of a training step, or what is added to the f of each block."""
        from stepnet.schemes.noises import number

        uniforms = None if self.noise.additive else uniforms_by_place(self.depth, places, seed, step, Stream.GATES)
        drawn: list[Tensor | AddedNoise] = []
        for n, time in enumerate(self._times):
            mean, deviation = (float(number(part, time)) for part in (self.noise.mean, self.noise.deviation))
            if uniforms is None:
                scale, key = float(stochastic_gate(deviation, 0.0, self.dt)), (seed, step, n, Stream.GATES)
                drawn.append(AddedNoise(self.noise, time, scale, key, places))
            else:
                eta = mean + deviation * torch.from_numpy(self.noise.quantile(uniforms[:, n], time)).float()
                drawn.append(stochastic_gate(eta, mean, self.dt).reshape(-1, 1, 1, 1))
        return drawn


def noise_of(
    stochastic_depth: float | Mapping[str, Any] | None, noise: str | Mapping[str, Any] | None, depth: int, dt: float
) -> StochasticDepth | BlockNoise | None:
    """Return the noise of the steps; raise if both options are set."""
    if stochastic_depth is not None and noise is not None:
        raise UserError(f"noise = {noise!r} with stochastic_depth = {stochastic_depth!r}: give one of them")
    if stochastic_depth is not None:
        return StochasticDepth.of(stochastic_depth, depth, dt)
    return None if noise is None else BlockNoise.of(noise, depth, dt)
