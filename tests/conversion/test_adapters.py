"""Blocks that we know how to split, put together again."""

from __future__ import annotations

import pytest
import torch

from stepnet.conversion.adapters import KNOWN, split_of

resnet = pytest.importorskip("torchvision.models.resnet")


@pytest.mark.parametrize("projects", [False, True])
def test_the_parts_add_up_to_the_block(projects: bool) -> None:
    torch.manual_seed(0)
    shortcut = torch.nn.Conv2d(8, 8, 1, bias=False) if projects else None
    block = resnet.BasicBlock(8, 8, downsample=shortcut).double().eval()
    split, u = split_of(block), torch.randn(2, 8, 6, 6, dtype=torch.float64)
    assert split is not None and split.projects(block) is projects
    f = block.bn2(block.conv2(torch.relu(block.bn1(block.conv1(u)))))
    carried = u if shortcut is None else shortcut(u)
    torch.testing.assert_close(split.branch(block, u), f, rtol=0, atol=1e-12)
    torch.testing.assert_close(split.shortcut(block, u), carried, rtol=0, atol=1e-12)
    assert torch.equal(split.whole(block, u), torch.relu(carried + split.branch(block, u)))


def test_a_subclass_with_a_forward_of_its_own_is_not_known() -> None:
    class Same(resnet.BasicBlock):
        pass

    class Other(resnet.BasicBlock):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    assert split_of(Same(4, 4)) is KNOWN["torchvision.models.resnet.BasicBlock"]
    assert split_of(Other(4, 4)) is None and split_of(torch.nn.Identity()) is None
