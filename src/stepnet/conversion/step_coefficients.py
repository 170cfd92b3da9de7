"""The trained coefficients of a block's steps, as parameters of the block.

step_k               k of each step that has one; with a bound, `step_k_free` is its argument
step_mixing_NAME     of a scheme whose coefficients have names
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from stepnet.conversion.carried_past import Role
from stepnet.nets import STEP_MIXING, CoefficientLayout, InstanceMixin, initial_k
from stepnet.schemes import Coefficient

STEP = "step"
K, K_FREE = "step_k", "step_k_free"  # names that no other library uses


class StepCoefficients(InstanceMixin):
    """The part of a converted step that owns coefficients."""

    step_roles: tuple[Role, ...]  # one for each step of the block, in order
    step_layout: CoefficientLayout | None = None  # of named coefficients

    @property
    def step_role(self) -> Role:
        """The role of the first step; those of other calls differ in their place and their coefficient only."""
        return self.step_roles[0]

    def step_coefficients_of(self, role: Role) -> Coefficient:
        """Return the k of a step: a tensor, a dict of named coefficients, or the scheme's default."""
        layout = self.step_layout
        if layout is not None and role.k_index is not None:
            return layout.by_step(self._step_stored)[role.k_index]
        return self.step_k_of(role) if role.scheme.trainable else role.scheme.k

    def _step_stored(self, name: str) -> Tensor:
        value: Tensor = getattr(self, STEP_MIXING + name)
        return value

    def step_k_of(self, role: Role) -> Tensor | None:
        """Return the coefficient of a step, or None if it has none."""
        if role.k_index is None:
            return None
        ks: Tensor | None = getattr(self, K if role.bound is None else K_FREE, None)
        if ks is None:
            return None
        ks = ks if role.bound is None else role.bound.k(ks)
        return ks if len(self.step_roles) == 1 else ks[role.k_index : role.k_index + 1]

    def named_coefficients(self) -> Iterator[tuple[str, Tensor]]:
        """Return each learned coefficient; numbered, if the block takes several steps."""
        if self.step_layout is not None:
            for n, name, value in self.step_layout.named(self._step_stored):
                number = self.step_layout.owners.index(n)
                yield f"{STEP if len(self.step_roles) == 1 else f'{STEP}.{number}'}:{name}", value
        for role in self.step_roles:
            if (k := self.step_k_of(role)) is not None:
                yield K if len(self.step_roles) == 1 else f"{K}.{role.k_index}", k

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, strict: bool, missing: list[str],
        unexpected: list[str], errors: list[str],
    ) -> None:  # fmt: skip
        """Load as the block does; a checkpoint of the original network has no `k`, and leaves ours unchanged."""
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, errors)
        ours = [name for name in missing if name in (prefix + K, prefix + K_FREE)]
        ours += [name for name in missing if name.startswith(prefix + STEP_MIXING)]
        for name in ours:
            missing.remove(name)


def add_coefficients(block: StepCoefficients, init: str | float, like: Tensor) -> None:
    """Register the coefficients of a block's steps, with the dtype and device of `like`.

    `init` is "paper" for the law of the scheme, "identity" for those of Euler's step, or a number.
    """
    scheme, bound = block.step_role.scheme, block.step_role.bound
    owners = [role.place for role in block.step_roles if role.k_index is not None]
    if not owners:
        return
    if scheme.learned:
        block.step_layout = layout = CoefficientLayout(scheme, owners, block.step_role.width)
        starts = layout.at_euler() if init == "identity" else layout.starts(scheme.learned)
        for name, start in starts.items():
            block.register_parameter(STEP_MIXING + name, nn.Parameter(start.to(like)))
        return
    value = None if init == "paper" else 0.0 if init == "identity" else float(init)
    k = initial_k(scheme, (len(owners),), value, bound, like.dtype).to(like)
    block.register_parameter(K if bound is None else K_FREE, nn.Parameter(k if bound is None else bound.free(k)))


def remove_coefficients(block: nn.Module) -> None:
    """Remove the coefficients of a block's steps."""
    vars(block).pop("step_layout", None)
    for name in list(block._parameters):
        if name in (K, K_FREE) or name.startswith(STEP_MIXING):
            del block._parameters[name]
