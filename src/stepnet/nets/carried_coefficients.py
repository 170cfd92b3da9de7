"""The coefficients of a network on another grid of steps, such that it follows the same flow.

With steps `h_n`, one of these stays the same as a function of time; the scheme states which (`in_time`).

    value    hyper-connections' U and B: dt multiplies f anyway
    rate     (r - 1) / h and x / h of x0, (V - I) / h of hyper-connections: u' = (r - 1)/h u + x/h u_0 + f
    ratio    k_n h_{n-1} / h_n of LM, b_n h_{n-1} / h_n of momentum: they multiply a displacement over h_{n-1}, so that
             (1 + k) u' = f stays the same equation if a step and the one before it differ in length

A step without coefficients is Euler's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stepnet.errors import UserError
from stepnet.nets.bounds import FREE, AnyBound, Bound
from stepnet.nets.stage import Stage
from stepnet.schemes import InTime

TINY = 1e-8  # least weight under a softmax


@dataclass(frozen=True)
class GridStep:
    """A step of the new network: its block as a mean of old blocks, by their numbers in the stage, and its length."""

    blocks: Mapping[int, float]  # weights that sum to 1
    dt: float


def carried(
    in_time: InTime,
    before: Sequence[float],
    owned: Mapping[int, Tensor],
    steps: Sequence[GridStep],
    owners: Iterable[int],
    euler: Callable[[int], Tensor],
) -> list[Tensor]:
    """Return the coefficients of the new `owners`, from those of the old steps, whose lengths are `before`."""
    after = [step.dt for step in steps]
    values = []
    for n in owners:
        first = euler(n)
        zero = torch.zeros_like(first)
        value = first
        if in_time != "value":
            deviations = {m: (k - first) / _factor(in_time, before, m) for m, k in owned.items()}
            mean = sum((share * deviations.get(m, zero) for m, share in steps[n].blocks.items()), zero)
            value = first + mean * _factor(in_time, after, n)
        elif all(m in owned for m in steps[n].blocks):
            value = sum((share * owned[m] for m, share in steps[n].blocks.items()), zero)
        values.append(value)
    return values


def _factor(in_time: InTime, dts: Sequence[float], n: int) -> float:
    """Return the divisor that makes the deviation from Euler's coefficient a function of time."""
    if in_time == "rate":
        return dts[n]
    return dts[n] / dts[n - 1] if n else 1.0


def carried_coefficients(old: Stage, new: Stage, steps: Sequence[GridStep]) -> dict[str, Tensor]:
    """Return the parameters of the new stage's coefficients, by their names in it."""
    if new.mixing is not None:
        return {f"mixing.{name}": tensor for name, tensor in _named(old, new, steps).items()}
    made = new.coefficients
    if made is None:
        return {}
    old_ks = () if old.coefficients is None else old.coefficients.detach().unbind()
    owned = dict(zip(old.plan.owners, old_ks, strict=True))
    ks = carried("ratio", old.dts, owned, steps, new.plan.owners, lambda n: torch.zeros_like(made[0]))
    return {"k" if new.bound is None else "k_free": free_k(new.bound, torch.stack(ks))}


def _named(old: Stage, new: Stage, steps: Sequence[GridStep]) -> dict[str, Tensor]:
    """Return the parameters of named coefficients."""
    assert new.mixing is not None
    layout, parameters = new.mixing.layout, {}
    owned: dict[str, dict[int, Tensor]] = {}
    for step, name, value in () if old.mixing is None else old.mixing.named():
        owned.setdefault(name, {})[step] = value.detach()
    like = next(new.mixing.parameters())
    for one in new.scheme.euler_start:
        assert one.in_time is not None
        values = carried(
            one.in_time,
            old.dts,
            owned.get(one.name, {}),
            steps,
            layout.owners,
            lambda n, one=one: torch.tensor(np.array(one.at(n), dtype=float)).to(like),  # type: ignore[misc]
        )
        bound = layout.bounds[one.name]
        parameters[one.name if bound is None else one.name + FREE] = free_k(bound, torch.stack(values), one.name)
    return parameters


def free_k(bound: AnyBound | None, k: Tensor, name: str = "k") -> Tensor:
    """Return the parameter of a coefficient; raise if its bound does not allow it."""
    if bound is None:
        return k
    inside = (bound.low < k) & (k < bound.high) if isinstance(bound, Bound) else k >= 0
    if not bool(inside.all()):
        raise UserError(f"{name} = {k.flatten().tolist()} on the new grid does not lie in its bound, {bound}")
    return bound.free(k) if isinstance(bound, Bound) else k.clamp_min(TINY).log()
