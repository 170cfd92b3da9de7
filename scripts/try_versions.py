"""Try the bounds of pyproject.toml: an environment of the oldest permitted versions, and smoke tests in it.

    python scripts/try_versions.py ENVIRONMENT [--python PYTHON] [--newest] [--pin torch==2.13.0 …] [--borrow FOLDER]

The environment is made once and kept. `--newest` takes the newest versions instead, `--pin` another version of some
package. `--borrow` names a site-packages folder for what is too large to install twice, such as torch: packages that it
names (`--pin torch` without a version) are taken from there. Each smoke test is a command; those that fail are printed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("report", "export", "hub", "tensorboard", "timm", "torchvision", "transformers")
COMMANDS = ("bench", "compare", "data", "evaluate", "export", "figure", "inspect", "models", "noise", "predict")
COMMANDS += ("report", "scheme", "table", "train")
CONVERT = "import stepnet; stepnet.convert(stepnet.conversion.load_foreign('{}/resnet18', num_classes=10), 'lm')"
SMOKE = [
    "python -c 'import stepnet, stepnet.nets, stepnet.training, stepnet.exchange, stepnet.report'",
    "stepnet --help",
    *(f"stepnet {command} --help" for command in COMMANDS),
    "stepnet scheme lm --k -0.5 --plot scheme.png",
    "stepnet noise stochastic_depth --samples 2000 --plot noise.png",
    "stepnet models 'lm_resnet2*'",
    "stepnet table schemes",
    "stepnet train lm_resnet20 --epochs 1 --out run --log tensorboard",
    "stepnet train lm_resnet20 --epochs 1 --out run --log tensorboard",  # resumed: already finished
    "stepnet evaluate run",
    "stepnet report run -o report.html",
    "stepnet figure k run -o k.svg",
    "stepnet figure networks lm_resnet20 -o networks.svg",
    "stepnet inspect run --figures pictures",
    "stepnet export run --onnx run.onnx",
    'python -c "{}"'.format(CONVERT.format("timm")),
    'python -c "{}"'.format(CONVERT.format("torchvision")),
    "stepnet train timm/resnet18 --scheme lm --epochs 1 --batch-size 64 --out foreign",
    "stepnet evaluate foreign",
]


def requirements() -> list[str]:
    """Those of the package and of the extras, without our own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *(each for extra in EXTRAS for each in extras[extra])]
    return sorted({each for each in named if not each.startswith("stepnet")})


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=!~ ]", requirement)[0].lower()


def versions(newest: bool, pins: list[str]) -> list[str]:
    """What is installed: the lower end of each bound, unless a pin says otherwise; a pin without a version: nothing."""
    pinned = {name_of(pin): pin for pin in pins}
    found = {name_of(each): each if newest else re.sub(r">=([\w.]+).*", r"==\1", each) for each in requirements()}
    return [each for each in ({**found, **pinned}).values() if "=" in each]


def make(environment: Path, python: str, wanted: list[str], borrow: Path | None) -> None:
    if not (environment / "bin" / "python").exists():
        subprocess.run([python, "-m", "venv", environment], check=True)
    if borrow:  # behind the environment's own packages; pip takes what is there for installed
        (site,) = (environment / "lib").glob("python*/site-packages")
        (site / "zz_borrowed.pth").write_text(f"{borrow.resolve()}\n")
    pip = [environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *wanted], check=True)
    subprocess.run([*pip, "--no-deps", "-e", ROOT], check=True)


def failing(environment: Path) -> list[str]:
    """The smoke tests that fail, with the last line that they print."""
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for command in SMOKE:
            line = f"PATH={environment.resolve() / 'bin'}:$PATH {command}"
            done = subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True, check=False)
            said = (done.stderr or done.stdout).strip().splitlines()
            print("failed" if done.returncode else "passed", command, flush=True)
            if done.returncode:
                failed.append(f"{command}: {said[-1] if said else done.returncode}")
    return failed


def main() -> None:
    """Make the environment and run the smoke tests in it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("environment", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--newest", action="store_true")
    parser.add_argument("--pin", nargs="*", default=[])
    parser.add_argument("--borrow", type=Path)
    options = parser.parse_args()
    wanted = versions(options.newest, options.pin)
    print("\n".join(wanted), flush=True)
    make(options.environment, options.python, wanted, options.borrow)
    failed = failing(options.environment)
    print("\n".join(failed) or "every smoke test passed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
