"""Networks of other libraries by name: `timm/resnet18`, `torchvision/resnet18`; `hf:gpt2` from its configuration."""

from __future__ import annotations

import re
from collections.abc import Container
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from torch import nn

from stepnet.arguments import Count, CountFromZero, checked
from stepnet.errors import UserError, check_known, first_line, unknown
from stepnet.extras import import_extra
from stepnet.nets import classifier, first_convolution, remember_origin

LIBRARIES = ("timm", "torchvision")
# The builders also take `pretrained`, `weights`, addresses and paths, none of which a file from a stranger may choose.
FILE_OPTIONS = frozenset(
    re.findall(
        r"\w+",
        """
        num_classes in_channels act_layer attention_dropout attn_drop_rate aux_logits base_width cardinality
        channels class_token depth depths dims drop_block_rate drop_path_rate drop_rate dropout embed_dim
        global_pool groups image_size img_size init_values layers mlp_ratio norm_layer num_heads output_stride
        patch_size pos_embed proj_drop_rate qkv_bias reg_tokens stem_type stem_width stochastic_depth_prob
        transform_input width_mult width_per_group window_size zero_init_last zero_init_residual
        """,
    )
)
LARGEST_NUMBER = 2**16  # of layers, channels, classes in a file
_GEOMETRY = ("kernel_size", "stride", "padding", "dilation", "padding_mode")


HF = "hf:"  # before a model type of transformers, or the folder of a configuration
NARROW = {  # what a configuration may ask for at most: the weights are random, and only the structure is of interest
    **dict.fromkeys(("hidden_size", "d_model", "embedding_size"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers"), 4),
    **dict.fromkeys(("num_attention_heads", "encoder_attention_heads", "decoder_attention_heads", "num_heads"), 2),
    **dict.fromkeys(("head_dim", "d_kv"), 16),
    **dict.fromkeys(("num_key_value_heads", "num_local_experts", "num_experts"), 2),
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input", "max_position_embeddings"), 256),
    "rotary_dim": 8,
}


def is_foreign(name: str) -> bool:
    """Whether a model's name is that of another library's network."""
    return name.partition("/")[0] in LIBRARIES and "/" in name


def check_own_name(name: str, known: Container[str]) -> None:
    """Raise for a name that only another library has, and say how to write it."""
    if name in known or is_foreign(name):
        return
    libraries = [library for library in LIBRARIES if find_spec(library) and name in list_foreign(library)]
    if libraries:
        hint = " or ".join(f"{library}/{name}" for library in libraries)
        raise UserError(f"unknown model {name!r}: did you mean {hint}?")


@checked
def load_foreign(
    name: str, num_classes: CountFromZero = 1000, in_channels: Count = 3, pretrained: bool = False, **options: Any
) -> nn.Module:
    """Build `timm/NAME` or `torchvision/NAME`; with `pretrained`, the library's weights and a new classifier."""
    library, _, model = name.partition("/")
    check_known(f"{library} model", model, list_foreign(library))
    try:
        built = _timm if library == "timm" else _torchvision
        network = built(model, num_classes, in_channels, pretrained, options)
    except (OSError, RuntimeError) as error:  # no connection, and whatever a library makes of it
        if not pretrained:
            raise
        raise UserError(f"{name}: its pretrained weights cannot be loaded ({first_line(error)})") from None
    weightless = {key: value for key, value in options.items() if key != "weights"}
    return remember_origin(network, name, {"num_classes": num_classes, "in_channels": in_channels, **weightless})


@checked
def load_hf(name: str, **options: Any) -> nn.Module:
    """Build a narrow transformers network with random weights from a configuration: `hf:gpt2`, or `hf:FOLDER`.

    The folder has a `config.json`, as `save_pretrained` writes it. Widths, layers and tokens are reduced to `NARROW`;
    everything else, such as a residual multiplier, is as configured. `options` override both.
    """
    library = import_extra("transformers")
    known = import_extra("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    place = Path(name.removeprefix(HF))
    values: dict[str, Any] = {}
    if (place / "config.json").is_file():
        values = library.PretrainedConfig.get_config_dict(place, local_files_only=True)[0]
    kind = str(values.pop("model_type", place))
    check_known("transformers model type", kind, list(known))
    defaults = known[kind]()
    for option in options:  # a configuration takes any name, and ignores it
        if not hasattr(defaults, option):
            raise unknown(f"option of {HF}{kind}", option, defaults.to_dict())
    own = {key: value for key, value in values.items() if hasattr(defaults, key) and not isinstance(value, list | dict)}
    small = {key: most for key, most in NARROW.items() if _beyond(own.get(key, getattr(defaults, key, None)), most)}
    last = own | small | options
    ids = {key: 1 for key in ("bos_token_id", "eos_token_id", "pad_token_id") if hasattr(defaults, key)}
    verbosity = library.logging.get_verbosity()
    library.logging.set_verbosity_error()
    try:
        return cast(nn.Module, library.AutoModel.from_config(known[kind](**ids | last)))
    except Exception as error:  # whatever a configuration makes of other widths
        raise UserError(f"{name}: transformers cannot build it so narrow ({first_line(error)})") from None
    finally:
        library.logging.set_verbosity(verbosity)


def _beyond(value: object, most: int) -> bool:
    return isinstance(value, int) and value > most


def check_file_options(name: str, options: dict[str, Any]) -> None:
    """Raise for options that a model file may not set: only shapes, rates and names of layers are allowed."""
    if refused := sorted(options.keys() - FILE_OPTIONS):
        raise UserError(
            f"{name} with the option {refused[0]!r}, which a file may not choose: if you trust it, build the network "
            "yourself and give it, load(…, model=network)"
        )
    for option, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            number = isinstance(each, int | float) and abs(each) <= LARGEST_NUMBER
            if not (number or each is None or (isinstance(each, str) and re.fullmatch(r"\w*", each))):
                raise UserError(
                    f"{name} with {option} = {each!r}: expected a number of at most {LARGEST_NUMBER} or a name"
                )


def _timm(model: str, classes: int, channels: int, pretrained: bool, options: dict[str, Any]) -> nn.Module:
    create = import_extra("timm").create_model
    built: nn.Module = create(model, num_classes=classes, in_chans=channels, pretrained=pretrained, **options)
    return built


def _torchvision(model: str, classes: int, channels: int, pretrained: bool, options: dict[str, Any]) -> nn.Module:
    get_model = import_extra("torchvision.models").get_model
    if not pretrained:
        built: nn.Module = get_model(model, num_classes=classes, **options)
        return built if channels == 3 else _with_channels(built, channels, model)
    if channels != 3:
        raise UserError(f"torchvision/{model}: its pretrained weights are for 3 channels, not {channels}")
    built = get_model(model, weights="DEFAULT", **options)
    found = classifier(built)
    if found is None or not isinstance(found[1], nn.Linear):
        raise UserError(f"torchvision/{model} has no linear classifier to replace: take timm's, or use convert")
    path, last = found[0], found[1]
    if last.out_features != classes:
        built.set_submodule(path, nn.Linear(last.in_features, classes, bias=last.bias is not None))
    return built


@checked
def list_foreign(library: str) -> list[str]:
    """Return the names of a library's image classifiers, without the prefix."""
    check_known("library", library, LIBRARIES)
    if library == "timm":
        return list(import_extra("timm").list_models())
    models = import_extra("torchvision.models")
    return list(models.list_models(module=models))


def _with_channels(model: nn.Module, in_channels: int, name: str) -> nn.Module:
    """Replace the first convolution: torchvision's builders take colour images only."""
    found = first_convolution(model)
    if found is None or found[1].groups != 1:
        raise UserError(f"{name} with {in_channels} channels: it has no first convolution to adapt; use 3 channels")
    path, old = found
    geometry = {option: getattr(old, option) for option in _GEOMETRY}
    model.set_submodule(path, type(old)(in_channels, old.out_channels, **geometry, bias=old.bias is not None))
    return model
