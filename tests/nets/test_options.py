"""The options of `create_model`, as a type checker sees them."""

from __future__ import annotations

import inspect

from stepnet.nets import create_model, list_models, model_entry
from stepnet.nets.model_registry import MODELS
from stepnet.nets.options import ModelOptions
from stepnet.registry import option_names


def test_a_type_checker_knows_every_option_and_no_other() -> None:
    """`create_model("resnet20", shceme="lm")` is an error of mypy, since the options are those of a TypedDict."""
    taken = {option for name in (*list_models(), *MODELS.families) for option in option_names(model_entry(name).build)}
    assert set(ModelOptions.__annotations__) == taken | {"memory", "in_chans"}  # of create_model itself
    assert inspect.signature(create_model).parameters["options"].annotation == "Unpack[ModelOptions]"
