import re
from dataclasses import replace

import yaml

from exchange.greys import GREY
from stepnet import create_model
from stepnet.exchange.card import model_card
from stepnet.exchange.model_description import ModelDescription, Preprocessing, TrainingRecord, describe_network

RUN = TrainingRecord(
    data="digits", epochs=12, recipe={"lr": 0.1}, seed=4, test_error=2.345, command="stepnet train", revision="abc"
)


def test_a_card_tells_data_recipe_error_coefficients_command_and_license():
    network = create_model("lm_resnet20", k=-0.5)
    described = replace(describe_network(network, "ab", GREY, RUN), license="MIT")
    card = model_card(described, "lm_resnet20.digits")
    _, header, text = card.split("---\n", 2)
    values = yaml.safe_load(header)
    assert (values["license"], values["library_name"]) == ("mit", "stepnet")
    metric = values["model-index"][0]["results"][0]["metrics"][0]
    assert metric == {"type": "accuracy", "value": 97.655}
    for said in ("2.35 % on the test set", "last of 12 epochs", '{"lr": 0.1}', "`stepnet train`", "abc", "seed: 4"):
        assert said in text
    assert text.count("| -0.5000 |") == 6 and "the scheme `lm`" in text and 'stepnet.load("lm_resnet20.digits")' in text


def test_a_card_of_a_language_model_has_its_task_and_metrics():
    trained = replace(RUN, task="next_token", test_error=None, tested={"loss": 1.98, "bits": 2.857})
    card = model_card(describe_network(create_model("gpt1x16"), training=trained), "x")
    assert "pipeline_tag: text-generation" in card and "model-index" not in card
    assert "- on the test set: loss 1.9800, bits 2.8570, after the last of 12 epochs" in card
    own = model_card(describe_network(create_model("gpt1x16"), training=replace(trained, task="own")), "x")
    assert "pipeline_tag" not in own


def test_a_card_claims_nothing_that_is_not_known():
    card = model_card(describe_network(create_model("preact_resnet20", k_bound=None)), "x")
    assert "model-index" not in card and "## Training" not in card and "k_n" not in card
    assert "Not stated by who made this model" in card


def test_coefficients_by_channel_are_a_range():
    network = create_model("lm_resnet20", k_per_channel=True)
    assert "over 16 channels" in model_card(describe_network(network), "x")


def test_a_strangers_text_stays_text():
    evil = '<img src=x onerror="alert(1)">\n\n# [click](javascript:alert(1)) ` | ``'
    training = TrainingRecord(data=evil, epochs=1, command=evil, revision=evil, recipe={evil: evil}, test_error=1.0)
    how = Preprocessing(channels=1, image_size=8, resize=8, mean=(0.5,), std=(0.5,))
    card = model_card(
        ModelDescription(
            model=evil,
            built_elsewhere=True,
            options={"scheme": evil, evil: evil},
            classes=(evil,),
            preprocessing=how,
            training=training,
            k={evil: 0.5},
            license=evil,
            versions={evil: evil},
        ),
        evil,
    )
    body = card.split("---\n", 2)[2]
    shown = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", re.sub(r"```python\n.*?\n```", "", body, flags=re.DOTALL))
    assert "<img" not in shown and "[click]" not in shown.replace(r"\[", "").replace(r"\]", "")
    assert [line for line in body.splitlines() if line.startswith("# ")] == [body.strip().splitlines()[0]]
