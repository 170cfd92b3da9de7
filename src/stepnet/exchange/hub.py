"""Networks on the Hugging Face Hub, by huggingface_hub's mixin: `stepnet.load("hf-hub:OWNER/NAME")`.

A repository holds `model.safetensors`, which describes itself, and a card written from the description.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from stepnet.errors import UserError, first_line
from stepnet.exchange.card import model_card
from stepnet.exchange.model_description import description_of
from stepnet.exchange.model_files import HUB, load, save
from stepnet.extras import import_extra
from stepnet.files import MODEL

import_extra("huggingface_hub")  # where it is missing, the error names the extra

from huggingface_hub import (  # noqa: E402
    ModelCard,
    PyTorchModelHubMixin,
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
    try_to_load_from_cache,
)
from huggingface_hub.utils import logging  # noqa: E402

QUIET = 40  # logging.ERROR: huggingface_hub logs every retry


class HubModel(PyTorchModelHubMixin, library_name="stepnet"):
    """A wrapper of `network` with `save_pretrained`, `push_to_hub` and `from_pretrained`."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def _save_pretrained(self, save_directory: Path) -> None:
        save(self.network, save_directory / MODEL)

    def generate_model_card(self, *args: Any, **options: Any) -> ModelCard:
        """Return the card, with the name of the repository if it is known."""
        return ModelCard(model_card(description_of(self.network), options.get("repo_id") or f"{HUB}OWNER/NAME"))

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> HubModel:
        folder = Path(model_id)
        if folder.is_dir():
            return cls(load(folder))
        kept = ("revision", "cache_dir", "force_download", "token", "local_files_only")
        return cls(load(download(model_id, **{name: options[name] for name in kept if name in options})))


def download(name: str, **options: Any) -> Path:
    """Return the model file of a repository, from the cache if possible."""
    before = logging.get_verbosity()
    logging.set_verbosity(QUIET)
    place = {key: options.get(key) for key in ("cache_dir", "revision")}
    try:
        if not options.get("local_files_only") and not isinstance(try_to_load_from_cache(name, MODEL, **place), str):
            # Fails at once without a connection; the download would retry for half a minute.
            get_hf_file_metadata(hf_hub_url(name, MODEL, revision=place["revision"]), token=options.get("token"))
        return Path(hf_hub_download(name, MODEL, **options))
    except Exception as error:  # no connection, no such name, no permission: each has its own class
        raise UserError(
            f"{HUB}{name}: cannot be fetched from the Hugging Face Hub ({type(error).__name__}: {first_line(error)})"
        ) from None
    finally:
        logging.set_verbosity(before)
