"""The parts of a run under way."""

from torch import nn

from stepnet.training.job import Job
from training.tiny import tiny_config


def test_a_job_holds_its_folder_and_lets_it_go(tmp_path):
    with Job(tiny_config(tmp_path / "a", model="tiniest"), resume=True) as job:
        assert not job.is_done and (tmp_path / "a" / ".lock").exists()
        assert job.learning_rate(1, 0) < job.learning_rate(0, 0)
    assert job.held.closed and job.model is None


def test_frozen_statistics_stay_frozen(tmp_path):
    with Job(tiny_config(tmp_path / "a", model="tiniest", freeze_bn=True), resume=True) as job:
        job.training_mode()
        assert job.net.training
        assert not any(m.training for m in job.net.modules() if isinstance(m, nn.BatchNorm2d))
