"""What can be sharded, and how; that two processes with shares equal one is in test_distributed.py."""

import pytest

from stepnet import UserError, create_model
from stepnet.nets import coefficients, is_coefficient
from stepnet.training.sharding import check_shardable, coefficients_of, gather, shardable_blocks
from training.launch import converted


def gpt(**options):
    return create_model("gpt2x8", num_classes=11, context=8, **options)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: create_model("resnet20"), "is a batch norm"),
        (lambda: gpt(memory="recompute"), "memory='recompute'"),
        (lambda: gpt(memory="auto"), "memory='auto'"),
        (lambda: converted(5, memory="recompute"), "memory='recompute'"),
        (lambda: converted(5, stochastic_depth=0.5), "stochastic depth"),
    ],
)
def test_what_cannot_be_sharded_is_refused(make, said):
    with pytest.raises(UserError, match=said):
        check_shardable(make())


def test_gpt_and_vit_and_converted_networks_can_be_sharded():
    for network in (gpt(), create_model("vit2x16"), converted(5)):
        check_shardable(network)


def test_the_blocks_of_a_network_are_sharded_one_by_one():
    network = gpt(scheme="lm")
    assert list(shardable_blocks(network)) == list(network.stages[0].blocks)


def test_a_converted_block_is_sharded_by_its_layers_and_keeps_its_coefficient():
    groups = list(shardable_blocks(converted(5)))
    assert [[type(layer).__name__ for layer in group] for group in groups] == [["SelfAttention", "FeedForward"]] * 3
    names = {name for group in groups for layer in group for name, _ in layer.named_parameters()}
    assert names and not any(is_coefficient(name) for name in names)


def test_a_network_that_is_whole_gives_what_it_has():
    network = gpt(scheme="lm")
    assert gather(network).keys() == network.state_dict().keys()
    assert coefficients_of(network) == coefficients(network)
