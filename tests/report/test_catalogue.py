"""What is kept of the networks is what a count gives."""

import subprocess
import sys

import pytest

from stepnet.report.catalogue import counted, kept, short_bytes, short_count, write


def test_every_network_of_the_package_is_kept() -> None:
    code = "from stepnet.nets import list_models; print(*list_models())"  # without those that tests register
    shipped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert list(kept()) == shipped


@pytest.mark.parametrize("name", kept())
def test_the_figures_are_those_of_a_count(name: str) -> None:
    assert counted(name) == kept()[name], "python -m stepnet.report.catalogue counts all of them anew"


def test_what_is_written_is_read(tmp_path, monkeypatch) -> None:
    write(["resnet20"], tmp_path / "kept.json")
    monkeypatch.setattr("stepnet.report.catalogue.FILE", tmp_path / "kept.json")
    assert kept() == {"resnet20": counted("resnet20")}


def test_three_figures_and_a_prefix() -> None:
    counts = {7: "7", 999: "999", 1000: "1.00 k", 40_551_040: "40.6 M", 999_600_000: "1.00 G"}
    assert {n: short_count(n) for n in counts} == counts
    sizes = {512: "512 B", 1024: "1.00 KiB", 1_569_067: "1.50 MiB", 127_658_992: "122 MiB"}
    assert {n: short_bytes(n) for n in sizes} == sizes
