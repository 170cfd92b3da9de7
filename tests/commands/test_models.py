"""`stepnet models`."""

import json
import subprocess
import sys

import pytest

from stepnet.cli import main


def test_a_member_of_a_family_is_counted(capsys):
    assert main(["models", "gpt2x16", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["family"], found["steps"], found["num_features"]) == ("gpt", 4, 16)
    assert main(["models", "gpt2x16"]) == 0 and "  64 tokens  " in capsys.readouterr().out


def test_lists_what_matches_with_its_costs(capsys) -> None:
    assert main(["models", "lm_resnet2*"]) == 0
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["model", "family", "scheme", "steps", "image", "parameters", "mult-adds", "memory"]
    assert row.split()[:7] == ["lm_resnet20", "lm_resnet", "lm", "6", "of", "9", "32x32"]
    assert row.split()[7:] == ["269,728", "40.6", "M", "1.50", "MiB"]


def test_json_has_the_exact_figures(capsys) -> None:
    assert main(["models", "lm_resnet20", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["name"], row["scheme"], row["parameters"]) == ("lm_resnet20", "lm", 269_728)


def test_what_was_registered_besides_is_counted(capsys, registries) -> None:
    from stepnet.nets import register_model
    from stepnet.nets.resnet import cifar_resnet

    register_model("smallest", family="resnet")(lambda **options: cifar_resnet(8, **options))
    assert main(["models", "smallest", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert row["parameters"] == sum(p.numel() for p in cifar_resnet(8).parameters())


def test_the_list_needs_no_torch() -> None:
    code = "import sys; from stepnet.cli import main; main(['models']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "lm_resnet20" in done.stdout, done


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("nothing_*", "no model matches 'nothing_*'"),
        ("gpt*", "one of any size, as gpt12x48 and vit6x48"),
        ("lm_resnet21", "unknown model 'lm_resnet21': did you mean 'lm_resnet"),
    ],
)
def test_no_match_is_one_clear_line(capsys, pattern: str, message: str) -> None:
    assert main(["models", pattern]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert message in error
    assert error.count("\n") == 1
