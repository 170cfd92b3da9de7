"""The worked example of docs/add_a_data_set.md, run as it stands."""

import re
from pathlib import Path

import pytest

from stepnet.data import evaluation_batches, get_data

PAGE = Path(__file__).parents[2] / "docs" / "add_a_data_set.md"


@pytest.mark.usefixtures("registries")
def test_the_example_runs() -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    data = get_data("gratings")
    assert data.num_classes == 2 and len(data.train) == 1000
    images, labels = next(evaluation_batches(data, 200).epoch())
    upright = images.std(dim=2).amax(dim=(1, 2)) < 1e-6  # nothing changes along a column
    assert upright.tolist() == (labels == 0).tolist()
