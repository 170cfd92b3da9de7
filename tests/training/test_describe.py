"""What the files of a run say of its network."""

from dataclasses import replace

import stepnet
from stepnet.data import get_data
from stepnet.training.describe import describe_progress, describe_run
from training.tiny import tiny_config


def test_a_run_is_described_at_its_start_and_after_epochs(tmp_path):
    config, data = tiny_config(tmp_path, seed=5), get_data("digits")
    network = stepnet.create_model("tiny", in_channels=1)
    start = describe_run(config, data, network)
    assert (start.training.seed, start.training.epochs, start.training.test_error) == (5, 0, None)
    assert start.preprocessing.mean == data.normalise.mean and start.classes == data.train.classes
    network.stages[0].k.data.fill_(-0.5)
    later = describe_progress(start, network, 3, {"test_error": 12.5, "test_top5_error": 1.5, "test_loss": 0.5})
    assert (later.training.epochs, later.training.test_error, later.training.top5_error) == (3, 12.5, 1.5)
    assert later.k == stepnet.coefficients(network) != start.k
    assert replace(later, k=start.k, training=start.training) == start
