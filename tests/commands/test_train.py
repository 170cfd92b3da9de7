"""`stepnet train`, `compare` and `evaluate` as a person meets them."""

import json
import sys

import pytest

from data.photographs import write_photos
from stepnet.cli import main
from stepnet.data.folders import find_images
from stepnet.nets.model_registry import MODELS
from stepnet.report.results import read_measurements
from stepnet.training import Run
from training import tiny  # registers the model `tiny`

assert tiny.RECIPE
SMALL = ["--data", "digits", "--epochs", "1", "--batch-size", "500"]


def test_train_evaluate_and_train_again(tmp_path, capsys):
    out = str(tmp_path / "run")
    assert main(["train", "tiny", *SMALL, "--out", out]) == 0
    text = capsys.readouterr().out
    assert "epoch 1/1" in text and "images/s" in text
    assert "k_n by layer" in text
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    assert main(["evaluate", out, "--json"]) == 0
    exact = json.loads(capsys.readouterr().out)
    assert (exact["run"], exact["which"]) == (out, "last") and 0 <= exact["error"] <= 100
    assert main(["evaluate", out]) == 0
    assert f"test error {line['test_error']:.2f}%" in capsys.readouterr().out
    assert main(["train", "tiny", *SMALL, "--out", out]) == 0
    assert "already finished" in capsys.readouterr().out
    for _ in range(2):  # the second takes the place of the first
        assert main(["evaluate", out, "--record", str(tmp_path / "results.json")]) == 0
    (entry,) = json.loads((tmp_path / "results.json").read_text())["runs"]
    assert entry["test_error"] == pytest.approx(line["test_error"], abs=1e-3)
    assert (entry["recipe"], entry["epochs"]) == ("digits, epochs=1, batch_size=500", 1)
    assert read_measurements(tmp_path)[0].test_error == entry["test_error"]


def test_a_folder_of_images_is_trained_on_and_found_again(tmp_path, capsys, monkeypatch):
    write_photos(tmp_path / "photos", splits=(".",), each=4)
    monkeypatch.chdir(tmp_path)
    options = ["--image-size", "16", "--epochs", "1", "--batch-size", "8", "--data-root", str(tmp_path / "root")]
    assert main(["train", "tiniest", "--data", "photos", "--val-share", "0.4", *options]) == 0
    [folder] = (tmp_path / "runs" / "photos").iterdir()
    assert Run(folder).config.data == str(tmp_path / "photos")
    monkeypatch.chdir("/")
    assert main(["evaluate", str(folder)]) == 0
    held_out = len(find_images(tmp_path / "photos", 0.4).validation)
    assert f"{held_out} images" in capsys.readouterr().out


def test_options_of_the_model_are_trained_recorded_and_resumed(tmp_path, capsys):
    out = tmp_path / "run"
    command = ["train", "tiny:lm", "--model-kwargs", "dt=0.5", "k_per_channel=True", *SMALL, "--out", str(out)]
    assert main(command) == 0
    assert Run(out).config.model_kwargs == {"dt": 0.5, "k_per_channel": True}
    ks = list(Run(out).metrics()[0]["k"].values())
    assert all(len(k) > 1 for k in ks)
    means = " ".join(f"{sum(k) / len(k):+.3f}" for k in ks)
    assert capsys.readouterr().out.endswith(f"k_n by layer, means over channels:\n  {means}\n")
    assert main(command) == 0 and "already finished" in capsys.readouterr().out
    assert main(["evaluate", str(out)]) == 0
    assert main([*command[:3], "dt=0.25", *command[4:]]) == 2
    assert "model_kwargs = {'dt': 0.5" in capsys.readouterr().err


def test_the_memory_mode_is_a_flag_that_is_recorded_and_told(tmp_path, capsys):
    out = tmp_path / "run"
    command = ["train", "tiny,k=0.0", "--memory", "auto", *SMALL, "--out", str(out)]
    assert main(command) == 0
    assert Run(out).config.memory == "auto"
    assert "memory  auto: recompute in every stage\n" in capsys.readouterr().out  # nothing divides by 0
    assert main(command) == 0 and "already finished" in capsys.readouterr().out
    assert main([*command[:2], "--memory", "recompute", *command[4:]]) == 2
    assert "memory = 'auto' there, 'recompute' here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tiny", "--memory", "reversible", "--model-kwargs", "memory=stored"], "give only one"),
        (["tiny:heun", "--memory", "reversible"], "scheme 'heun' has no inverse"),
        (["densenet100_k24", "--memory", "recompute"], "DenseNet has no stages"),
        (["torchvision/resnet18", "--memory", "recompute"], "add --scheme euler"),
    ],
)
def test_a_memory_mode_that_cannot_be_is_told(tmp_path, capsys, words, told):
    assert main(["train", *words, *SMALL, "--out", str(tmp_path / "run")]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_config_file_is_where_flags_begin(tmp_path, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["train", "tiny", "--model-kwargs", "dt=0.5", *SMALL, "--seed", "3", "--out", str(first)]) == 0
    file = str(first / "config.yaml")
    assert main(["train", "--config", file, "--lr", "0.01", "--out", str(second)]) == 0
    one, two = Run(first).config, Run(second).config
    assert (two.model, two.seed, two.model_kwargs) == ("tiny", 3, {"dt": 0.5})
    assert two.recipe == one.recipe.override({"lr": 0.01}) and one.recipe.lr != 0.01
    capsys.readouterr()
    assert main(["train", "--config", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml: No such file or directory" in capsys.readouterr().err


def test_a_module_of_ones_own_is_remembered_in_the_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_nets.py").write_text(
        "from stepnet.nets import register_model\n"
        "from stepnet.nets.resnet import cifar_resnet\n"
        "@register_model('mine', family='mine')\n"
        "def mine(**options):\n    return cifar_resnet(8, **options)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPNET_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["train", "mine", *SMALL, "--out", "run"]) == 2
    assert main(["train", "mine", "--import", "my_nets", *SMALL, "--out", "run"]) == 0
    del MODELS.entries["mine"], sys.modules["my_nets"]  # as in a new process
    assert main(["evaluate", "run"]) == 0
    assert main(["inspect", "run"]) == 0
    del MODELS.entries["mine"]
    capsys.readouterr()
    assert main(["train", "mine", "--import", "no_such_module"]) == 2
    assert "cannot import 'no_such_module'" in capsys.readouterr().err


def test_a_failed_start_does_not_block_the_corrected_command(tmp_path, capsys):
    out = ["--out", str(tmp_path / "run")]
    assert main(["train", "tiny", *SMALL, "--lr", "1e18", *out]) == 2
    assert main(["train", "tiny", *SMALL, "--lr", "0.01", *out]) == 0
    assert main(["train", "tiny", *SMALL, "--lr", "0.02", *out]) == 2
    assert "replace it with --overwrite" in capsys.readouterr().err
    assert main(["train", "tiny", *SMALL, "--lr", "0.02", *out, "--overwrite"]) == 0


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("could not create a memory object"),
        MemoryError(),
    ],
    ids=str,
)
def test_no_memory_is_one_line(tmp_path, monkeypatch, capsys, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("stepnet.training.loop.fit", fail)
    assert main(["train", "tiny", *SMALL, "--out", str(tmp_path / "run")]) == 2
    assert "no memory left" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "lm_resnet2O"], "unknown model 'lm_resnet2O': did you mean"),
        (["train", "tiny", "--data", "mnist"], "unknown data set, file or folder 'mnist'"),
        (["train", "tiny", "--recipe", "fats"], "unknown recipe 'fats': did you mean 'fast'?"),
        (["train", "tiny", "--lr", "-1"], "lr = -1.0: expected more than 0"),
        (["train", "tiny", "--seed", "-1"], "seed = -1: expected 0 or more"),
        (["train", "tiny", "--seed", str(10**30)], "seed = 1000000000000000000000000000000: "),
        (["train", "tiny", "--momentum", "0", "--nesterov", "True"], "nesterov = True: expected momentum with it"),
        (["train", "tiny", "--model-kwargs", "dtt=0.5"], "takes no option 'dtt': did you mean 'dt'"),
        (["train", "tiny", "--model-kwargs", "dt"], "option 'dt': expected NAME=VALUE"),
        (["train", "tiny:lm", "--scheme", "euler"], "names the scheme 'lm', but --scheme is 'euler': give only one"),
        (["train", "tiny", "--log", "wandb"], "--log wandb needs the package wandb"),
        (["train", "tiny", "--scheme", "eulr"], "unknown scheme 'eulr': did you mean 'euler'"),
        (["train", "tiny", "--precision", "fp16"], "precision fp16 needs a GPU"),
        (["train", "tiny", "--sync-bn"], "synchronised batch norm is for GPUs"),
        (["train", "timm/resnet1888"], "unknown timm model 'resnet1888': did you mean 'resnet18'"),
        (["train", "torchvision/vgg11", "--scheme", "lm", "--data", "digits"], "the network cannot run on the example"),
        (["train", "keras/resnet"], "unknown library 'keras'"),
        (["train", "tiny", "--out", "a" * 300], "expected a name that a file can have"),
        (["evaluate", "a" * 300], "expected a name that a file can have"),
        (["evaluate", "nowhere"], "nowhere: no such file; a run writes its model"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert said in shown.err and shown.err.count("\n") == 1
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_wrong_flag_exits_with_2(capsys):
    assert main(["train", "tiny", "--epoch", "3"]) == 2
    assert capsys.readouterr().err == "stepnet: train takes no '--epoch': did you mean '--epochs'?\n"


def test_a_name_of_another_library_is_suggested(capsys) -> None:
    pytest.importorskip("timm")
    assert main(["train", "resnet18"]) == 2
    assert "unknown model 'resnet18': did you mean timm/resnet18" in capsys.readouterr().err
