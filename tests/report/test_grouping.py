"""What run folders tell: grouping, differences and what is no number, against arithmetic by hand."""

import math
import statistics

import pytest
from scipy import stats

from stepnet.errors import UserError
from stepnet.report.grouping import by_data, printed_error, read_histories
from stepnet.training.histories import RunHistory


def test_seeds_stand_together_and_data_sets_apart(write_run) -> None:
    folders = [write_run(seed=0), write_run("preact_resnet20", 0), write_run(seed=1), write_run(seed=2, data="cifar10")]
    found = by_data(read_histories(folders))
    assert {data: [(n.label, len(n.runs)) for n in networks] for data, networks in found.items()} == {
        "digits": [("preact_resnet20", 1), ("lm_resnet20", 2)],  # the plain network first
        "cifar10": [("lm_resnet20", 1)],
    }


def test_the_same_network_under_another_recipe_is_told_apart(write_run) -> None:
    folders = [write_run(), write_run(errors=(30.0, 12.0), name="short")]
    assert [n.label for n in by_data(read_histories(folders))["digits"]] == [
        "lm_resnet20 (epochs=3)",
        "lm_resnet20 (epochs=2)",
    ]


def test_a_folder_named_twice_counts_once(write_run) -> None:
    folder = write_run()
    assert len(read_histories([folder, folder.parent / "." / folder.name])) == 1


def test_paired_differences_are_those_of_a_t_test(write_run) -> None:
    ours, theirs = [9.0, 11.5, 8.0], [10.0, 11.0, 10.5]
    folders = [write_run(seed=s, errors=(50, e)) for s, e in enumerate(ours)]
    folders += [write_run("preact_resnet20", s, (60, e)) for s, e in enumerate(theirs)]
    folders += [write_run(seed=7, errors=(50, 1.0))]  # without a partner
    plain, lm = by_data(read_histories(folders))["digits"]
    found = lm.difference(plain)
    interval = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert len(found) == 3
    assert found.mean == pytest.approx(statistics.fmean(a - b for a, b in zip(ours, theirs, strict=True)))
    assert found.mean + found.half_width == pytest.approx(interval.high)


def test_one_pair_has_no_interval_and_no_common_seed_no_difference(write_run) -> None:
    folders = [write_run(seed=0), write_run("preact_resnet20", 0), write_run("resnet20", 5)]
    plain, other, lm = by_data(read_histories(folders))["digits"]
    assert math.isnan(lm.difference(plain).half_width)
    assert not other.difference(plain)


def test_a_run_cut_off_does_not_enter_the_mean(write_run) -> None:
    folders = [write_run(seed=0), write_run(seed=1, errors=(50.0,), epochs=3)]
    (network,) = by_data(read_histories(folders))["digits"]
    assert [run.complete for run in network.runs] == [True, False]
    assert network.values(lambda run: run.last_error) == [10.0]


def test_nan_is_no_best_epoch_and_is_told(write_run) -> None:
    run = RunHistory.read(write_run(errors=(20.0, math.nan, 30.0)))
    assert run.best_error == 20.0
    assert run.broken_epochs == [2]


def test_no_epoch_yet(write_run) -> None:
    run = RunHistory.read(write_run(errors=(), epochs=3))
    assert not run.complete
    assert math.isnan(run.last_error) and math.isnan(run.best_error)
    assert by_data([run])["digits"][0].counted == ()


def test_k_for_each_channel_is_shown_by_its_mean(write_run) -> None:
    run = RunHistory.read(write_run())
    run.epochs[0]["k"] = {"stages.0.blocks.1": [0.1, 0.3]}
    assert run.coefficients[0] == {"stages.0.blocks.1": pytest.approx(0.2)}


def test_the_papers_figure(write_run) -> None:
    folders = [write_run(data="cifar10"), write_run("preact_resnet20", data="cifar10")]
    plain, lm = by_data(read_histories(folders))["cifar10"]
    assert printed_error(lm) == 8.33
    assert printed_error(plain) is None  # its ResNet-20 is of post-activation


def test_what_is_no_run_is_refused(write_run, tmp_path) -> None:
    with pytest.raises(UserError, match="is not a run: it has no config"):
        RunHistory.read(tmp_path / "nothing")
    write_run()
    with pytest.raises(UserError, match=r"is not a run but a folder of runs: name them"):
        RunHistory.read(tmp_path)


def test_a_module_of_ones_own_has_no_scheme(write_run) -> None:
    [[network]] = by_data(read_histories([write_run("mine.Net")])).values()
    assert network.scheme is None
