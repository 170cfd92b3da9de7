"""Stochastic depth (Huang et al. 2016) for every scheme of the library, LM included (paper, section 3).

    X_{n+1} = carry + gate_n increment,    P(eta_n = 1) = p_n,    p_l = 1 - l/L (1 - p_L)

The gate multiplies the step's whole increment, so a Runge–Kutta step is gated once, and a multistep method remembers
0 for an f that was dropped. Evaluation takes the gates' means. Gates are a function of (seed, step, block), drawn
before the forward pass: resumed runs and all ranks of a distributed one draw the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from stepnet.errors import UserError, check_count, check_known, check_probability
from stepnet.nets.stage import check_step_size
from stepnet.randomness import Stream, random_words, uniform, uniforms_by_place
from stepnet.schemes.gates import stochastic_gate

Mode = Literal["batch", "drop_path"]
Scaling = Literal["mean", "inverse"]


@dataclass
class StochasticDepth:
    """The law of the gates of a network with `depth` blocks.

    `mode`: "batch" draws one gate for each block and batch, a Python number, and a block whose gate is 0 is not
    computed; "drop_path" draws one for each block and sample, which regularises more finely and saves nothing.
    `scaling`: "mean" is Huang's, gates eta in training and p at evaluation; "inverse" has eta/p and 1.
    `dt` is that of the paper's general form: away from 1 a dropped block keeps the weight `p (dt - sqrt(dt))`
    instead of 0, so every block is computed.
    """

    survival: float  # p_L, of the last block
    depth: int
    mode: Mode = "batch"
    scaling: Scaling = "mean"
    dt: float = 1
    seed: int = 0  # of the gates that the network draws itself, where its caller passes none

    @classmethod
    def of(cls, given: float | Mapping[str, Any], depth: int, dt: float) -> StochasticDepth:
        """From what a network is given: `p_L`, or options by name; without one of its own, dt is the network's."""
        options = given if isinstance(given, Mapping) else {"survival": given}
        known = [option.name for option in fields(cls) if option.name != "depth"]
        for name in options:
            check_known("option of stochastic depth", name, known)
        return cls(**{"survival": None, "dt": dt, **options, "depth": depth})

    def __post_init__(self) -> None:
        check_probability("survival probability p_L", self.survival)
        check_count("seed of stochastic depth", self.seed, least=0)
        check_step_size(self.dt)
        check_known("mode of stochastic depth", self.mode, get_args(Mode))
        check_known("scaling of stochastic depth", self.scaling, get_args(Scaling))
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

    def draw(self, seed: int, step: int, places: range | None = None) -> list[Any]:
        """The gates of training step `step`, one for each block; drop_path needs the images' `places` in the batch."""
        if self.mode == "batch":
            return self._gates(uniform(random_words(self.depth, seed, step, Stream.GATES)).tolist())
        if places is None:
            raise UserError("drop_path draws one gate for each image: pass draw(seed, step, places=range(batch size))")
        uniforms = torch.from_numpy(uniforms_by_place(self.depth, places, seed, step, Stream.GATES))
        return self._gates(uniforms.T.reshape(self.depth, -1, 1, 1, 1))

    def _gates(self, uniforms: Iterable[Any]) -> list[Any]:
        gates = []
        for u, p in zip(uniforms, self.probabilities, strict=True):
            eta = (u < p).float() if isinstance(u, Tensor) else float(u < p)
            gate = stochastic_gate(eta, p, self.dt)
            gates.append(gate if self.scaling == "mean" else gate / p)
        return gates
