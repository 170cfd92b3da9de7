"""Steps in a network that others call, copy, compile, distribute and interrupt: the past is never another call's."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from captum.attr import LayerGradCam
from torch import Tensor, nn
from torch.ao.quantization import get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx
from torch.utils.checkpoint import checkpoint

import stepnet
from stepnet.conversion.carried_past import PAST
from stepnet.conversion.step import ConvertedStep
from stepnet.extras import import_extra


class Block(nn.Module):
    """A pre-norm residual block with an extra argument and an extra output."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, u: Tensor, shift: float = 0.0) -> tuple[Tensor, float]:
        return u + torch.tanh(self.linear(self.norm(u)) + shift), shift


class Net(nn.Module):
    """Blocks in a ModuleList, which the network's own loop calls."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.recompute: bool | None = None
        self.fail_at: int | None = None

    def forward(self, u: Tensor) -> Tensor:
        for n, block in enumerate(self.blocks):
            if n == self.fail_at:
                raise RuntimeError("half-way")
            if self.recompute is None:
                u, _ = block(u, shift=0.1)
            else:
                u, _ = checkpoint(block, u, 0.1, use_reentrant=self.recompute)
        return u


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return stepnet.convert(Net(), "lm", torch.randn(2, 8), init=-0.5)


@pytest.fixture
def u() -> Tensor:
    return torch.randn(3, 8, generator=torch.Generator().manual_seed(1))


def expected(net: nn.Module, u: Tensor) -> Tensor:
    """The LM recursion, written out."""
    past = None
    for block in net.blocks:  # type: ignore[union-attr]
        new = u + torch.tanh(block.linear(block.norm(u)) + 0.1)
        new = new if past is None else new + block.step_k * (past - u)
        past, u = u, new
    return u


def test_it_is_the_recursion_with_arguments_and_outputs_kept(net: Net, u: Tensor) -> None:
    torch.testing.assert_close(net(u), expected(net, u))
    assert net.blocks[0](u, shift=0.3)[1] == 0.3
    assert isinstance(net.blocks[1], Block) and type(net.blocks[1]).__name__ == "Block"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("scheme", ["euler", "heun", "lm", "lm+neumann2", "ab2", "leapfrog", "midpoint2"])
def test_padding_by_nested_tensors(scheme: str) -> None:
    """In evaluation torch's own encoder hands its layers nested tensors, which know few operations."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, dtype=torch.float64)
    encoder = nn.TransformerEncoder(layer, 4).eval()
    words = torch.randn(2, 5, 8, dtype=torch.float64)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    converted = stepnet.convert(encoder, scheme, words, **({"init": -0.3} if "lm" in scheme else {}))
    assert converted.step_conversion.steps == 4
    by_grad = converted(words, src_key_padding_mask=padding)  # with gradients torch takes dense tensors
    with torch.no_grad():
        nested = converted(words, src_key_padding_mask=padding)
    torch.testing.assert_close(nested[~padding], by_grad[~padding], rtol=1e-12, atol=1e-12)
    assert not nested[padding].any() and by_grad[padding].any()
    if scheme == "lm":
        converted = stepnet.convert(encoder, scheme, words, init="identity")
        with torch.no_grad():
            assert torch.equal(*(net(words, src_key_padding_mask=padding) for net in (encoder, converted)))


def test_compile_traces_the_whole_network(net: Net, u: Tensor) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(u), net(u))
    expected = net(u)
    for block in (net.blocks[0], net.blocks[2]):  # compiled and plain steps hand each other their past
        block.compile(backend="eager")
    torch.testing.assert_close(net(u), expected)


@pytest.mark.parametrize("strict", [False, True])
def test_export(net: Net, u: Tensor, strict: bool) -> None:
    program = torch.export.export(net.eval(), (u,), strict=strict)
    torch.testing.assert_close(program.module()(u), net(u))


@pytest.mark.parametrize("scheme", ["lm", "ab2", "heun", "lm+heun"])
@pytest.mark.parametrize("memory", ["stored", "recompute"])
def test_a_symbolic_graph_computes_the_same(u: Tensor, scheme: str, memory: Any) -> None:
    torch.manual_seed(0)
    net = stepnet.convert(Net(), scheme, u, memory=memory)
    graph = torch.fx.symbolic_trace(net)
    for _ in range(2):
        assert torch.equal(graph(u), net(u))
        found, expected = (torch.autograd.grad(f(u).sum(), list(net.parameters())) for f in (graph, net))
        torch.testing.assert_close(found, expected)
        with torch.no_grad():  # every k stays a parameter of the graph
            for parameter in net.parameters():
                parameter.mul_(-1.5)


@pytest.mark.parametrize("training", [True, False])
def test_a_graph_of_layers_keeps_the_statistics_of_evaluations_apart(training: bool) -> None:
    block = import_extra("torchvision.models").resnet.BasicBlock
    u = torch.randn(2, 4, 8, 8)
    heun = stepnet.convert(nn.Sequential(*(block(4, 4) for _ in range(2))), "heun", u)
    heun(u)
    graph = torch.fx.symbolic_trace(heun.train(training))
    other = copy.deepcopy(graph)
    assert torch.equal(other(u), heun(u))
    for name, buffer in other.named_buffers():
        assert torch.equal(buffer, heun.get_buffer(name)), name


def converted_resnet() -> tuple[nn.Module, Tensor]:
    """A small ResNet of torchvision under LM, and images for it."""
    models = import_extra("torchvision.models")
    torch.manual_seed(0)
    resnet = models.ResNet(models.resnet.BasicBlock, [2, 2, 1, 1], num_classes=3)
    images = torch.randn(2, 3, 32, 32)
    return stepnet.convert(resnet, "lm", images, init=-0.5).eval(), images


def test_grad_cam_of_a_stage_and_of_a_step() -> None:
    """Selvaraju et al. 2017: the channels weighted by the mean gradient of the logit."""
    net, images = converted_resnet()

    def by_hand(state: Tensor, logits: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(logits[:, 2].sum(), state)
        return (gradient.mean((2, 3), keepdim=True) * state).sum(1, keepdim=True)

    last = net.trajectory(images)[1][-1]
    logits = net.fc(net.avgpool(net.layer4(net.layer3(last))).flatten(1))
    torch.testing.assert_close(LayerGradCam(net, net.layer2).attribute(images, target=2), by_hand(last, logits))

    kept: list[Tensor] = []  # as pytorch-grad-cam does it
    net.layer1[0].register_forward_hook(lambda step, args, output: kept.append(output))
    logits = net(images)
    first = net.trajectory(images)[0][1]
    assert torch.equal(kept[0], first) and by_hand(kept[0], logits).any()
    with pytest.raises(stepnet.UserError, match=r"alter or clone no state .* \(captum clones: name a whole stage\)"):
        LayerGradCam(net, net.layer1[0]).attribute(images, target=2)


@pytest.mark.filterwarnings("ignore")  # torch moves its quantisation to another package
def test_features_and_quantisation_of_a_converted_network() -> None:
    net, images = converted_resnet()
    extract = import_extra("torchvision.models.feature_extraction").create_feature_extractor
    features = extract(net, ["layer1.1", "layer2"])(images)
    states = net.trajectory(images)
    assert torch.equal(features["layer1.1"], states[0][2]) and torch.equal(features["layer2"], states[1][-1])

    quantised = prepare_fx(net, get_default_qconfig_mapping(), (images,))
    quantised(images)
    quantised = convert_fx(quantised)
    assert "quantized" in type(quantised.get_submodule("layer2.1.conv1")).__module__
    own = net(images)
    assert (quantised(images) - own).norm() < 0.2 * own.norm()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "error::torch.jit.TracerWarning")
@pytest.mark.parametrize("gradients", [True, False])
def test_jit_traces_with_gradients_and_without(gradients: bool) -> None:
    timm = pytest.importorskip("timm")
    net = stepnet.convert(timm.create_model("resnet18", num_classes=3), "lm", init=-0.5).eval()
    with torch.set_grad_enabled(gradients):
        traced = torch.jit.trace(net, torch.randn(2, 3, 32, 32))
        images = torch.randn(3, 3, 48, 64)
        torch.testing.assert_close(traced(images), net(images))


def test_deepcopy_and_pickle(net: Net, u: Tensor) -> None:
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(other(u), net(u))
        assert other.blocks[1] is not net.blocks[1] and other.blocks[1].step_k is not net.blocks[1].step_k
        assert type(stepnet.revert(other).blocks[1]) is Block


def test_pickle_for_another_process(tmp_path: Path) -> None:
    """One that has not converted anything yet."""
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    image = torch.randn(1, 3, 32, 32)
    net = stepnet.convert(timm.create_model("test_vit", img_size=32).eval(), "lm", image, init=-0.5)
    torch.save((net, image, net(image).detach()), tmp_path / "net.pt")
    script = (
        "import sys, torch, tests.conftest\n"
        "net, image, expected = torch.load(sys.argv[1], weights_only=False)\n"
        "assert 'stepnet' in sys.modules and torch.equal(net(image), expected)"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "net.pt")], cwd=root, check=True, timeout=100)


def test_threads_do_not_meet(net: Net) -> None:
    inputs = [torch.randn(3, 8) for _ in range(32)]
    alone = [net(u) for u in inputs]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(net, inputs))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_a_forward_that_raised_leaves_nothing(net: Net, u: Tensor) -> None:
    before = net(u)
    net.fail_at = 2
    with pytest.raises(RuntimeError, match="half-way"):
        net(torch.randn(3, 8))
    net.fail_at = None
    assert torch.equal(net(u), before)
    assert not hasattr(u, PAST)


def test_reentrant_calls(net: Net, u: Tensor) -> None:
    """A forward inside a forward, through a hook between two steps."""
    before, other = net(u), torch.randn(5, 8)
    inner: list[Tensor] = []

    def again(module: nn.Module, args: Any, output: Any) -> None:
        if not inner:
            inner.append(u)  # closes the door before the call below comes here
            inner[0] = net(other)

    handle = net.blocks[1].register_forward_hook(again)
    assert torch.equal(net(u), before)
    handle.remove()
    assert torch.equal(inner[0], net(other))


def test_hooks_see_the_new_state(net: Net, u: Tensor) -> None:
    seen: list[Tensor] = []
    net.blocks[-1].register_forward_hook(lambda module, args, output: seen.append(output[0]))
    assert torch.equal(net(u), seen[0])


def gradients(net: nn.Module, u: Tensor) -> list[Tensor]:
    u = u.clone().requires_grad_()
    found = torch.autograd.grad(net(u).square().sum(), [u, *net.parameters()])
    return list(found)


def test_gradients_through_checkpointing(net: Net, u: Tensor) -> None:
    plain = gradients(net, u)
    net.recompute = False
    assert all(torch.equal(a, b) for a, b in zip(gradients(net, u), plain, strict=True))
    net.recompute = True  # the old kind detaches its inputs: told, instead of a wrong gradient
    with pytest.raises(stepnet.UserError, match="use_reentrant=False"):
        net(u.clone().requires_grad_()).sum().backward()


def test_own_checkpointing_leaves_the_lm_term_outside(u: Tensor) -> None:
    torch.manual_seed(0)
    net = Net()
    plain = stepnet.convert(net, "lm", u, init=-0.5)
    recomputing = stepnet.convert(net, "lm", u, init=-0.5, memory="recompute")
    calls = {"block": 0, "step": 0}
    recomputing.blocks[2].linear.register_forward_hook(lambda *_: calls.__setitem__("block", calls["block"] + 1))
    recomputing.blocks[2].register_forward_hook(lambda *_: calls.__setitem__("step", calls["step"] + 1))
    assert all(torch.equal(a, b) for a, b in zip(gradients(recomputing, u), gradients(plain, u), strict=True))
    assert calls == {"block": 2, "step": 1}


class GradientCheckpointingLayer(nn.Module):
    """As in transformers from 5.23 on: the `forward` of every subclass is wrapped, and checkpoints itself."""

    checkpointing = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        inner = cls.forward

        def forward(self: Any, u: Tensor) -> Any:
            if self.checkpointing and type(self).forward is forward:
                return checkpoint(partial(inner, self), u, use_reentrant=True)
            return inner(self, u)

        cls.forward = forward


class CheckpointedBlock(GradientCheckpointingLayer):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, u: Tensor) -> Tensor:
        return u + self.linear(u).tanh()


def test_a_step_is_not_recomputed_where_the_class_of_its_block_wraps_every_forward() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*(CheckpointedBlock() for _ in range(3)))
    u = torch.randn(2, 4, requires_grad=True)
    for module in net:
        module.checkpointing = False
    converted = stepnet.convert(net, "lm", u, init=-0.5)
    plain = gradients(converted, u)
    for module in converted:
        module.checkpointing = True
    converted(u).square().sum().backward()  # reentrant checkpointing of the step would lose its past
    for got, want in zip((u.grad, *(p.grad for p in converted.parameters())), plain, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("frozen", [False, True])
def test_without_gradients_only_the_needed_past_is_alive(net: Net, u: Tensor, frozen: bool) -> None:
    net.requires_grad_(not frozen)
    with torch.set_grad_enabled(frozen):
        state = net.blocks[2](net.blocks[1](net.blocks[0](u)[0])[0])[0]
    (past,) = getattr(state, PAST).us
    assert not hasattr(past, PAST)
    assert not hasattr(net(u), PAST)


def test_a_step_without_its_past_says_so(net: Net, u: Tensor) -> None:
    message = r"step 'blocks\.2' of scheme 'lm' .* has no past"
    with pytest.raises(stepnet.UserError, match=message):
        net.blocks[2](u)
    state = net.blocks[1](net.blocks[0](u)[0])[0]
    net.blocks[2](state)
    state.mul_(2)  # altered in place: still the tensor that carries the past
    with pytest.raises(stepnet.UserError, match=message):
        net.blocks[2](state)
    handle = net.blocks[2].register_full_backward_hook(lambda *_: None)  # torch gives the block an alias
    with pytest.raises(stepnet.UserError, match="full backward hook"):
        net(u)
    handle.remove()
    net(u)


@pytest.mark.parametrize("scheme", ["lm", "ab2"])
def test_states_that_a_caller_saves_go_without_their_past(u: Tensor, scheme: str) -> None:
    net, states = stepnet.convert(Net(), scheme, u), []
    for block in net.blocks:
        block.register_forward_hook(lambda module, args, output: states.append(output[0]))
    with torch.no_grad():
        net(u)
    file = io.BytesIO()
    torch.save(states, file)
    file.seek(0)
    assert all(torch.equal(a, b) for a, b in zip(torch.load(file, weights_only=True), states, strict=True))
    assert file.getbuffer().nbytes < 4000  # four states, not the seven that they refer to
    with pytest.raises(stepnet.UserError, match="has no past"):
        net.blocks[1](copy.deepcopy(states[0]))


class Forgetful(Block):
    """Overwrites its input in training only."""

    def forward(self, u: Tensor, shift: float = 0.0) -> tuple[Tensor, float]:
        return super().forward(nn.functional.dropout(u, 0.5, self.training, inplace=True), shift)


def test_a_block_that_overwrites_its_state_later_is_told(u: Tensor) -> None:
    net = Net()
    net.blocks = nn.ModuleList(Forgetful() for _ in range(3))
    converted = stepnet.convert(net, "lm", u)
    converted.eval()(u)
    with pytest.raises(stepnet.UserError, match=r"step 'blocks\.0' overwrote its state"):
        converted.train()(u.clone())


def test_the_state_by_place_or_by_name(net: Net, u: Tensor) -> None:
    first = net.blocks[0](u, 0.1)[0]
    by_name = net.blocks[1](u=net.blocks[0](u=u, shift=0.1)[0], shift=0.1)[0]
    assert torch.equal(by_name, net.blocks[1](first, 0.1)[0])


def test_autocast(u: Tensor) -> None:
    torch.manual_seed(0)
    net = Net()
    identity = stepnet.convert(net, "lm", u, init="identity")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(identity(u), net(u)) and identity(u).dtype == net(u).dtype
        stepnet.convert(net, "lm", u, init=-0.5)(u).sum().backward()


def test_steps_are_told_in_the_printed_network(net: Net) -> None:
    assert "Block[lm]" in str(net)
    assert sum(isinstance(module, ConvertedStep) for module in net.modules()) == 4


def _rank(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    net, data = _problem()
    parallel = nn.parallel.DistributedDataParallel(net)
    parallel(data[2 * rank : 2 * rank + 2]).square().mean().backward()
    torch.save([parameter.grad for parameter in net.parameters()], folder / f"{rank}.pt")
    del parallel
    gc.collect()  # a DistributedDataParallel that outlives its process group may wait for its threads for ever
    torch.distributed.destroy_process_group()


def _problem() -> tuple[Net, Tensor]:
    torch.manual_seed(0)
    data = torch.randn(4, 8)
    return stepnet.convert(Net(), "lm", data, init=-0.5), data


@pytest.mark.slow
def test_distributed_gradients_are_the_whole_batchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    mp.spawn(_rank, (tmp_path,), nprocs=2)
    net, data = _problem()
    net(data).square().mean().backward()
    for got, parameter in zip(torch.load(tmp_path / "0.pt"), net.parameters(), strict=True):
        torch.testing.assert_close(got, parameter.grad)
