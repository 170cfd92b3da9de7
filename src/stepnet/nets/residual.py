"""The residual network: stem, stages, head. Families differ in their blocks, widths and depths only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.arguments import Count, checked
from stepnet.errors import UserError
from stepnet.nets.blocks import PostActivation, PreActivation, Shortcut, Subsample, conv, initialise
from stepnet.nets.bounds import BoundOption
from stepnet.nets.draws import Draw, SeededNoise, untraced, zero_gradient
from stepnet.nets.early_exit import EarlyExit, early_exit
from stepnet.nets.network import FeatureInfo, Network
from stepnet.nets.options import BackboneOptions, Depths, StepSizes
from stepnet.nets.stage import Gates, Stage, check_makes_network
from stepnet.nets.stochastic import AddedNoise, BlockNoise, add_noise, noise_of
from stepnet.nets.trajectories import KineticCost
from stepnet.nets.transitions import CoupledTransition, SharedTransition, Transition, entry_of
from stepnet.schemes import Scheme, get_scheme, is_number, plan, warn_if_rarely_used

Convolutions = Callable[[int, int, int], list[nn.Conv2d]]  # (inputs, outputs, stride) -> the chain of one block


@checked
@dataclass(frozen=True)
class Backbone:
    """What a family of residual networks fixes."""

    convolutions: Convolutions
    widths: Sequence[Count]  # channels of each stage's state
    depths: Sequence[Count]  # blocks of each stage
    stem_width: Count
    pre_activation: bool = False
    shortcut: Shortcut = "subsample"
    project_past: bool = False  # LM-ResNeXt: a stage change projects the past state, too
    large_images: bool = False  # ImageNet's stem: 7x7 at stride 2, max-pool

    def with_depths(self, depths: Sequence[int] | None) -> Backbone:
        """Return the family with other numbers of blocks."""
        if depths is None:
            return self
        if len(depths) != len(self.widths):
            raise UserError(f"depths = {tuple(depths)}: expected the blocks of each of {len(self.widths)} stages")
        return replace(self, depths=tuple(depths))

    def entry(self, index: int, parts: int = 1) -> tuple[int, int, int, bool]:
        """The channels before a stage and in it, its stride, and whether a state changes its shape there.

        The stem's channels are those of all parts of a state together.
        """
        inputs, stride = (self.widths[index - 1], 2) if index else (self.stem_width // parts, 1)
        width = self.widths[index]
        return inputs, width, stride, stride > 1 or inputs != width

    def evaluations(self, index: int, scheme: Scheme, transition: Transition | CoupledTransition | None) -> list[int]:
        """Return how often each block after the transition is evaluated in its step."""
        return plan(scheme, self.depths[index], entry_of(transition)).evaluations[transition is not None :]

    def blocks(self, index: int, scheme: Scheme) -> tuple[Transition | None, list[nn.Module]]:
        """Build the transition and the blocks of a stage, with batch-norm statistics for each evaluation."""
        inputs, width, stride, changes = self.entry(index)
        transition = None
        if changes:
            # A step across the change evaluates f once, at the old shape. Named coefficients are those of schemes that
            # read older f, or more than the one past state that is projected: they begin again.
            reads_past = index > 0 and scheme.trainable and not scheme.learned and scheme.steps > 1
            reads_past = reads_past and scheme.stages == 1
            past = conv(inputs, width, 1, stride) if self.project_past and reads_past else None
            block = self.make_block(inputs, width, stride)
            shares = self.shortcut == "projection" and isinstance(block, PreActivation)
            kind = SharedTransition if shares else Transition
            transition = kind(block, self.make_shortcut(inputs, width, stride), past)
        counts = self.evaluations(index, scheme, transition)
        return transition, [self.make_block(width, width, 1, count) for count in counts]

    def make_block(self, inputs: int, outputs: int, stride: int, evaluations: int = 1) -> nn.Module:
        """Build the right-hand side of one step, which is evaluated `evaluations` times."""
        block = PreActivation if self.pre_activation else PostActivation
        return block(self.convolutions(inputs, outputs, stride), evaluations)

    def make_shortcut(self, inputs: int, outputs: int, stride: int) -> nn.Module:
        """Build the projection of a state to another shape: see `Shortcut`."""
        if self.shortcut == "subsample":
            return Subsample(inputs, outputs, stride)
        project = conv(inputs, outputs, 1, stride)
        if self.shortcut == "released":
            return nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), project)
        return project if self.pre_activation else nn.Sequential(project, nn.BatchNorm2d(outputs))

    def make_stem(self, in_channels: int) -> nn.Module:
        """Build the layers that compute the first state from an image."""
        width = self.stem_width
        if self.large_images:
            first = nn.Conv2d(in_channels, width, 7, stride=2, padding=3, bias=False)
            return nn.Sequential(first, nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1))
        first = conv(in_channels, width, 3)
        return first if self.pre_activation else nn.Sequential(first, nn.BatchNorm2d(width), nn.ReLU())

    @property
    def reduction(self) -> int:
        """The product of all strides."""
        halvings = len(self.widths) - 1 + (2 if self.large_images else 0)
        return 1 << halvings

    def feature_info(self, parts: int = 1) -> list[FeatureInfo]:
        """Describe the outputs of the stages, for states of `parts` parts."""
        first = self.reduction >> (len(self.widths) - 1)
        return [
            {"num_chs": parts * width, "reduction": first << n, "module": f"stages.{n}"}
            for n, width in enumerate(self.widths)
        ]


class BackboneNetwork(Network):
    """A scheme marching the blocks of a backbone, stage by stage: stem, stages, norm, head.

    `depths` are the blocks of each stage where they are not the backbone's. `dt` is the step size, or for each stage a
    list of those of its steps. `k_bound` keeps trainable coefficients in an interval: "stable" for the scheme's.
    """

    parts: ClassVar[int] = 1  # of a state: 2 for a pair (X, Y)
    steps_per_block = 1

    def __init__(
        self,
        backbone: Backbone,
        scheme: str | Scheme,
        num_classes: int = 10,
        in_channels: int = 3,
        dt: StepSizes = 1,
        k: float | None = None,
        k_per_channel: bool = False,
        k_bound: BoundOption = None,
        depths: Depths | None = None,
    ) -> None:
        super().__init__(num_classes, in_channels)
        self.scheme = get_scheme(scheme)
        check_makes_network(self.scheme, pair=self.parts == 2)
        backbone = backbone.with_depths(depths)
        dts = sizes_by_stage(dt, len(backbone.widths))
        self.stem = backbone.make_stem(in_channels)
        self.pre_activation = backbone.pre_activation
        after = None if backbone.pre_activation else torch.relu
        stages = []
        for index, width in enumerate(backbone.widths):
            transition, blocks = self.make_blocks(backbone, index)
            channels = width if k_per_channel else None
            stages.append(Stage(self.scheme, blocks, transition, dts[index], after, k, channels, k_bound, width=width))
        warn_if_rarely_used(self.scheme, (stage.plan for stage in stages))
        self.stages = nn.ModuleList(stages)
        self.num_features = self.parts * backbone.widths[-1]
        self.norm: nn.Module = nn.BatchNorm2d(self.num_features) if backbone.pre_activation else nn.Identity()
        self.reduction = backbone.reduction
        self.feature_info = backbone.feature_info(self.parts)
        self.reset_classifier(num_classes)
        initialise(self)

    def make_blocks(
        self, backbone: Backbone, index: int
    ) -> tuple[Transition | CoupledTransition | None, Sequence[nn.Module]]:
        """Build the transition and the blocks of a stage."""
        return backbone.blocks(index, self.scheme)


class ResidualNetwork(BackboneNetwork, SeededNoise):
    """A network whose states are feature maps, with noise in its blocks as an option.

    `stochastic_depth` is the survival probability `p_L` of the last block, or the options of `StochasticDepth`:
    `{"survival": 0.8, "scaling": "inverse", "mode": "drop_path"}`. `noise` puts a registered noise into every block
    instead: `{"name": "additive", "sigma": 0.001}`. If steps have different sizes, gates are drawn as for `dt = 1`.
    """

    def __init__(
        self,
        backbone: Backbone,
        scheme: str | Scheme = "euler",
        stochastic_depth: float | Mapping[str, Any] | None = None,
        noise: str | Mapping[str, Any] | None = None,
        **options: Unpack[BackboneOptions],
    ) -> None:
        super().__init__(backbone, scheme, **options)
        self.projects_past = any(cast(Stage, stage).plan.entry == "with past" for stage in self.stages)
        dt = options.get("dt", 1)
        self.stochastic = noise_of(stochastic_depth, noise, self.depth, dt if isinstance(dt, int | float) else 1)
        self.seed = 0 if self.stochastic is None else self.stochastic.seed
        self.adds_noise = isinstance(self.stochastic, BlockNoise) and self.stochastic.noise.additive
        if self.adds_noise:
            self._set_noise([None] * self.depth)
            for block in self.blocks:
                block.register_forward_hook(add_noise)

    @property
    def blocks(self) -> list[nn.Module]:
        """The block of each step, in order of depth."""
        return [block for stage in self.stages for block in cast(Stage, stage).steps]

    @property
    def depth(self) -> int:
        """The number of steps, which is that of gates."""
        return len(self.blocks)

    def _set_noise(self, added: Sequence[AddedNoise | None]) -> None:
        """Set the noise that each block adds to its f in the next pass."""
        for block, noise in zip(self.blocks, added, strict=True):
            vars(block)["drawn_noise"] = noise  # `replay` sets it again when it evaluates a block once more

    @property
    def compile_by_block(self) -> bool:
        """Whether its draws are Python numbers, which would be constants of a compiled graph."""
        return self.stochastic is not None

    def draw(self, seed: int, step: int, places: range) -> Draw:
        """Draw the gates of stochastic depth or the noise, one entry for each block."""
        return None if self.stochastic is None else self.stochastic.draw(seed, step, places)

    def forward_features(
        self,
        x: Tensor,
        noise: Draw = None,
        *,
        cost: KineticCost | None = None,
        exit: float | EarlyExit | None = None,
    ) -> Tensor:
        """Return the last feature map.

        `noise` is the result of `draw`: gates that multiply the steps' increments, or what the blocks add to their f.
        Without it, a noisy network uses the gates' means in evaluation, and its next draw in training. With `exit=0.1`
        an image skips the rest of a stage after a step that changes its state by a tenth or less.
        """
        self.check_input(x)
        gates: Gates | None = untraced(noise)
        cost = untraced(cost)
        early = early_exit(exit, cost)
        if gates is None and self.stochastic is not None:
            gates = self.next_draw(x) if self.training else self.stochastic.means
        if gates is not None and len(gates) != self.depth:
            raise UserError(f"{len(gates)} gates: the network has {self.depth} blocks, and takes one gate for each")
        if self.adds_noise and gates is not None:
            self._set_noise(gates)
            features = self._march(x, None, cost, early)
            self._set_noise([None] * self.depth)
            return features
        return self._march(x, gates, cost, early)

    def _march(self, x: Tensor, gates: Gates | None, cost: KineticCost | None, exit: EarlyExit | None) -> Tensor:
        """Apply stem, stages and last norm."""
        unused: list[nn.Parameter] = []
        u, past = self.stem(x), None
        first = 0
        for stage in self.stages:
            assert isinstance(stage, Stage)
            stage_gates: Gates | None = None
            if gates is not None:
                part = gates[first : first + stage.depth]
                stage_gates = [gate.to(u) if isinstance(gate, Tensor) else gate for gate in part]
                first += stage.depth
                dropped = (block for block, gate in zip(stage.steps, stage_gates, strict=True) if is_number(gate, 0))
                unused.extend(p for block in dropped for p in block.parameters())
            if self.projects_past:
                recent: deque[Tensor] = deque(maxlen=2)  # u_{N-1} and u_N
                u = stage(u, past, stage_gates, cost=cost, visit=recent.append, exit=exit)
                past = recent[0]
            else:
                u = stage(u, None, stage_gates, cost=cost, exit=exit)
        features = F.relu(self.norm(u)) if self.pre_activation else self.norm(u)
        return zero_gradient(features, unused) if unused else features

    def forward(
        self,
        x: Tensor,
        noise: Draw = None,
        *,
        cost: KineticCost | None = None,
        exit: float | EarlyExit | None = None,
    ) -> Tensor:
        return self.forward_head(self.forward_features(x, noise, cost=cost, exit=exit))


def sizes_by_stage(dt: StepSizes, stages: int) -> Sequence[float | Sequence[float]]:
    """Return the step sizes of each stage."""
    if isinstance(dt, int | float):
        return [dt] * stages
    if len(dt) != stages:
        raise UserError(f"dt = {dt!r}: expected a number, or for each of {stages} stages the step sizes of its steps")
    return dt
