"""Which runs stand together, and what the paper has for them."""

from stepnet.report.grouping import by_data, printed_error, read_histories


def test_seeds_stand_together_and_data_sets_apart(write_run) -> None:
    folders = [write_run(seed=0), write_run("preact_resnet20", 0), write_run(seed=1), write_run(seed=2, data="cifar10")]
    found = by_data(read_histories(folders))
    assert {data: [(n.label, len(n.runs)) for n in networks] for data, networks in found.items()} == {
        "digits": [("preact_resnet20", 1), ("lm_resnet20", 2)],  # the plain network first
        "cifar10": [("lm_resnet20", 1)],
    }


def test_data_that_changed_under_its_name_is_another_data_set(write_run) -> None:
    names = {"a": "9+3 images, sha256 1", "b": "12+3 images, sha256 2", "c": None}
    folders = [write_run(seed=n, name=n_, data_fingerprint=f) for n, (n_, f) in enumerate(names.items())]
    found = by_data(read_histories(folders))
    assert list(found) == [f"digits ({names['a']})", f"digits ({names['b']})", "digits (contents unknown)"]
    (same,) = by_data(read_histories([folders[0], folders[2]]))["digits"]
    assert (same.label, len(same.runs)) == ("lm_resnet20", 2)  # seeds of one network, one of them made before


def test_the_same_network_under_another_recipe_is_told_apart(write_run) -> None:
    folders = [write_run(), write_run(errors=(30.0, 12.0), name="short")]
    assert [n.label for n in by_data(read_histories(folders))["digits"]] == [
        "lm_resnet20 (epochs=3)",
        "lm_resnet20 (epochs=2)",
    ]


def test_a_folder_named_twice_counts_once(write_run) -> None:
    folder = write_run()
    assert len(read_histories([folder, folder.parent / "." / folder.name])) == 1


def test_the_papers_figure(write_run) -> None:
    folders = [write_run(data="cifar10"), write_run("preact_resnet20", data="cifar10")]
    plain, lm = by_data(read_histories(folders))["cifar10"]
    assert printed_error(lm) == 8.33
    assert printed_error(plain) is None  # its ResNet-20 is of post-activation
