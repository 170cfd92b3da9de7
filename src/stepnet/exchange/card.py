"""The model card of a network, from its description: architecture, training data, measured errors."""

from __future__ import annotations

import json

import yaml

from stepnet.escaping import for_markdown, markdown_code
from stepnet.exchange.model_description import ModelDescription, Preprocessing, TrainingRecord
from stepnet.nets import list_models, model_entry

PIPELINES = {"classification": "image-classification", "next_token": "text-generation"}  # the hub's name of a task


def model_card(description: ModelDescription, where: str) -> str:
    """Return Markdown with the metadata of the Hugging Face Hub; `where` is the argument of `stepnet.load`."""
    parts = [
        f"# {for_markdown(title(description))}",
        _what(description),
        _use(where, description),
        *([] if description.training is None else [_training(description.training)]),
        *([] if not description.k else [_coefficients(description)]),
        *([] if description.preprocessing is None else [_input(description.preprocessing, description.classes)]),
        f"## License\n\n{for_markdown(description.license or 'Not stated by who made this model.')}",
        "## Versions\n\n"
        + for_markdown(", ".join(f"{name} {number}" for name, number in description.versions.items())),
    ]
    return f"---\n{yaml.safe_dump(header(description), sort_keys=False)}---\n\n" + "\n\n".join(parts) + "\n"


def title(description: ModelDescription) -> str:
    """Return the model, its scheme if it is not the default, and its data."""
    scheme = f", scheme {description.scheme}" if description.scheme else ""
    data = f" trained on {description.training.data}" if description.training else ""
    return f"{description.model}{scheme}{data}"


def header(description: ModelDescription) -> dict[str, object]:
    """Return the hub's metadata: license, library, tags, data and measured errors."""
    training = description.training
    pipeline = PIPELINES.get(training.task if training else "classification")
    values: dict[str, object] = {"library_name": "stepnet", "tags": ["stepnet"]}
    if pipeline is not None:
        values["pipeline_tag"] = pipeline
    if description.license:
        values["license"] = description.license.lower()
    if training is not None and training.test_error is not None:
        values["datasets"] = [training.data]
        accuracy = {"type": "accuracy", "value": round(100 - training.test_error, 4)}
        result = {
            "task": {"type": "image-classification"},
            "dataset": {"name": training.data, "type": training.data, "split": "test"},
            "metrics": [accuracy],
        }
        values["model-index"] = [{"name": description.model, "results": [result]}]
    return values


def _what(description: ModelDescription) -> str:
    entry = model_entry(description.model) if description.model in list_models() else None
    family = f"a network of the family {entry.family}" if entry else "a network"
    scheme = description.scheme or (entry.scheme if entry else None)
    known, command = markdown_code(scheme), markdown_code(f"stepnet scheme {scheme}")
    steps = f", with its blocks as steps of the scheme {known} (described by {command})"
    options = {key: value for key, value in description.options.items() if key != "scheme"}
    model, said = markdown_code(description.model), markdown_code(json.dumps(options))
    return f"{model}, {family}{steps if scheme else ''}. Options: {said}."


def _use(where: str, description: ModelDescription) -> str:
    lines = ["import stepnet", "", f"network = stepnet.load({json.dumps(where)})"]
    if description.preprocessing is not None:
        lines.append('logits = network(network.preprocess("photo.jpg"))')
    return "```python\n" + "\n".join(lines) + "\n```"


def _training(training: TrainingRecord) -> str:
    if training.test_error is not None:
        top5 = "" if training.top5_error is None else f" (top-5: {training.top5_error:.2f} %)"
        tested = f"error: {training.test_error:.2f} % on the test set{top5}"
    elif training.tested:
        tested = f"on the test set: {', '.join(f'{for_markdown(n)} {v:.4f}' for n, v in training.tested.items())}"
    else:
        tested = "error: not recorded"
    lines = [
        f"- data: {for_markdown(training.data)}",
        f"- {tested}, after the last of {training.epochs} epochs",
        f"- seed: {training.seed}",
        *([f"- command: {markdown_code(training.command)}"] if training.command else []),
        *([f"- revision of stepnet: {for_markdown(training.revision)}"] if training.revision else []),
        *([f"- recipe: {markdown_code(json.dumps(training.recipe))}"] if training.recipe else []),
    ]
    return "## Training\n\n" + "\n".join(lines)


def _coefficients(description: ModelDescription) -> str:
    rows = [f"| {for_markdown(layer)} | {_shown(k)} |" for layer, k in description.k.items()]
    return "## Learned coefficients k_n\n\n| layer | k |\n| --- | --- |\n" + "\n".join(rows)


def _shown(k: float | list[float]) -> str:
    if isinstance(k, float):
        return f"{k:+.4f}"
    return f"{min(k):+.4f} to {max(k):+.4f} over {len(k)} channels"


def _input(how: Preprocessing, classes: tuple[str, ...]) -> str:
    shown = for_markdown(", ".join(classes[:20])) + (f" and {len(classes) - 20} more" if len(classes) > 20 else "")
    colours = "grey" if how.channels == 1 else "in colour"
    mean, std = ([round(value, 4) for value in values] for values in (how.mean, how.std))
    return (
        f"## Input and output\n\nImages of {how.image_size} x {how.image_size} pixels, {colours}: the shorter side "
        f"resized to {how.resize}, the middle cut out, `(x / 255 - mean) / std` with mean {mean} and std {std}."
        f"\n\nClasses: {shown or 'without names'}."
    )
