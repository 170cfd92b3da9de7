"""Modes of memory: which one "auto" takes, how long a repeated segment is, and what is refused."""

import pytest
import torch

from nets.test_reversible import lm_stage
from stepnet import UserError, create_model, get_scheme
from stepnet.nets.march import segment_length
from stepnet.nets.model_registry import origin_of


def test_auto_chooses_by_the_coefficients_and_says_so() -> None:
    away, near = lm_stage(-0.9), lm_stage(-0.05)
    for stage, chosen in ((away, "reversible"), (near, "recompute")):
        stage.set_memory("auto")
        assert stage.memory_in_use == chosen
        assert f"memory=auto ({chosen})" in repr(stage)
    deep = lm_stage(-0.9, 150)  # more than the spare bits: a pair of states is kept, where 150 would be
    deep.set_memory("auto")
    assert deep.memory_in_use == "reversible"
    with torch.no_grad():
        away.k.mul_(0.01)  # type: ignore[union-attr]
    assert away.memory_in_use == "recompute"


def test_modes_that_cannot_be() -> None:
    with pytest.raises(UserError, match="a ReLU after each step cannot be undone"):
        create_model("resnet20", scheme="lm", memory="reversible")
    with pytest.raises(UserError, match="did you mean 'recompute'"):
        create_model("lm_resnet20", memory="recomputed")


def test_a_network_without_stages_says_that_it_stores() -> None:
    dense = create_model("densenet100_k24", memory="stored")
    dense.set_grad_checkpointing(False)
    with pytest.raises(UserError, match="DenseNet has no stages"):
        dense.set_grad_checkpointing()
    with pytest.raises(UserError, match="DenseNet has no stages"):
        create_model("densenet100_k24", memory="recompute")


def test_a_fractal_repeats_its_layers_with_the_paths_that_were_drawn() -> None:
    images = torch.randn(2, 3, 16, 16)
    gradients = []
    for memory in ("stored", "recompute"):
        torch.manual_seed(0)
        net = create_model("fractalnet20", widths=(4, 8), drop_path=0.5, memory=memory)  # type: ignore[arg-type]
        net(images).square().sum().backward()
        gradients.append([p.grad for p in net.parameters()])
        assert {stage.memory for stage in net.stages} == {memory}
        assert origin_of(net).options["memory"] == memory  # type: ignore[union-attr]
    assert all(map(torch.equal, *gradients))


@pytest.mark.parametrize(("scheme", "depth"), [("euler", 1), ("euler", 100), ("lm", 18), ("lm", 200), ("heun", 64)])
def test_a_segment_keeps_least(scheme: str, depth: int) -> None:
    """`s N / m + 4 c m` states, s being read by a step and c evaluations in it, at the m that was chosen."""
    method = get_scheme(scheme)

    def kept(m: int) -> float:
        return min(m, method.steps) * depth / m + 4 * method.stages * m

    chosen = segment_length(method, depth)
    assert 1 <= chosen <= depth and all(kept(chosen) <= kept(m) for m in range(1, depth + 1))
    assert (chosen == 1) == (depth <= 18)
