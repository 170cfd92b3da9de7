"""What run folders tell: differences and what is no number, against arithmetic by hand."""

import math
import statistics
from pathlib import Path

import pytest
from scipy import stats

from stepnet.errors import UserError
from stepnet.training.histories import NetworkRuns, RunHistory, mean_and_deviation


def runs(*folders: Path) -> NetworkRuns:
    return NetworkRuns("network", tuple(RunHistory.read(folder) for folder in folders))


def test_mean_and_deviation() -> None:
    assert mean_and_deviation((8.0, 9.0, 8.5)) == "8.50 ± 0.50"
    assert mean_and_deviation((8.0,)) == "8.00"


def test_paired_differences_are_those_of_a_t_test(write_run) -> None:
    ours, theirs = [9.0, 11.5, 8.0], [10.0, 11.0, 10.5]
    alone = write_run(seed=7, errors=(50, 1.0))
    lm = runs(*(write_run(seed=s, errors=(50, e)) for s, e in enumerate(ours)), alone)
    plain = runs(*(write_run("preact_resnet20", s, (60, e)) for s, e in enumerate(theirs)))
    found = lm.difference(plain)
    interval = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert len(found) == 3
    assert found.mean == pytest.approx(statistics.fmean(a - b for a, b in zip(ours, theirs, strict=True)))
    assert found.mean + found.half_width == pytest.approx(interval.high)


def test_one_pair_has_no_interval_and_no_common_seed_no_difference(write_run) -> None:
    lm, plain, other = map(runs, (write_run(seed=0), write_run("preact_resnet20", 0), write_run("resnet20", 5)))
    assert math.isnan(lm.difference(plain).half_width)
    assert not other.difference(plain)


def test_a_run_cut_off_does_not_enter_the_mean(write_run) -> None:
    network = runs(write_run(seed=0), write_run(seed=1, errors=(50.0,), epochs=3))
    assert [run.complete for run in network.runs] == [True, False]
    assert network.values(lambda run: run.last_score) == [10.0]


def test_nan_is_no_best_epoch_and_is_told(write_run) -> None:
    run = RunHistory.read(write_run(errors=(20.0, math.nan, 30.0)))
    assert run.best_score == 20.0
    assert run.broken_epochs == [2]


def test_no_epoch_yet(write_run) -> None:
    network = runs(write_run(errors=(), epochs=3))
    [run] = network.runs
    assert not run.complete
    assert math.isnan(run.last_score) and math.isnan(run.best_score)
    assert network.counted == ()


def test_a_run_that_stopped_before_its_first_step_says_to_resume_it(write_run) -> None:
    folder = write_run(errors=(), epochs=3)
    for path in (folder / "environment.yaml", folder / "metrics.jsonl"):
        path.unlink()
    with pytest.raises(UserError, match=r": no epoch of this run is finished yet; resume it"):
        RunHistory.read(folder)


def test_k_for_each_channel_is_shown_by_its_mean(write_run) -> None:
    run = RunHistory.read(write_run())
    run.epochs[0]["k"] = {"stages.0.blocks.1": [0.1, 0.3]}
    assert run.coefficients[0] == {"stages.0.blocks.1": pytest.approx(0.2)}


def test_what_is_no_run_is_refused(write_run, tmp_path) -> None:
    with pytest.raises(UserError, match="is not a run: it has no config"):
        RunHistory.read(tmp_path / "nothing")
    write_run()
    with pytest.raises(UserError, match=r"is not a run but a folder of runs: name them"):
        RunHistory.read(tmp_path)


def test_a_module_of_ones_own_has_no_scheme(write_run) -> None:
    assert runs(write_run("mine.Net")).scheme is None
