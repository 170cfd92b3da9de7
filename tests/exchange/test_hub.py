"""huggingface_hub's own mixin, without a network."""

import pytest
import torch

import stepnet
from stepnet import UserError

hub = pytest.importorskip("stepnet.exchange.hub")


@pytest.fixture
def network():
    torch.manual_seed(0)
    return stepnet.create_model("lm_resnet20").eval()


def test_a_saved_repository_is_loaded(tmp_path, network):
    hub.HubModel(network).save_pretrained(tmp_path / "repository")
    assert {path.name for path in (tmp_path / "repository").iterdir()} == {"model.safetensors", "README.md"}
    loaded = hub.HubModel.from_pretrained(str(tmp_path / "repository")).network
    x = torch.randn(1, 3, 32, 32)
    assert torch.equal(loaded(x), network(x))
    assert torch.equal(stepnet.load(tmp_path / "repository")(x), network(x))


def test_what_is_pushed(tmp_path, network, monkeypatch):
    from huggingface_hub import HfApi

    pushed = {}

    def upload(self, repo_id, folder_path, **options):
        pushed.update({path.name: path.read_bytes() for path in folder_path.iterdir()})
        return repo_id

    monkeypatch.setattr(HfApi, "create_repo", lambda self, repo_id, **options: type("Repo", (), {"repo_id": repo_id}))
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    assert hub.HubModel(network).push_to_hub("me/mine") == "me/mine"
    assert b"library_name: stepnet" in pushed["README.md"] and pushed["model.safetensors"]


def test_a_name_on_the_hub_is_fetched_and_loaded(tmp_path, network, monkeypatch):
    stepnet.save(network, tmp_path / "model.safetensors")
    asked = []

    def fetch(name, file, **options):
        asked.append((name, file))
        return str(tmp_path / file)

    monkeypatch.setattr(hub, "get_hf_file_metadata", lambda url, token=None: asked.append(url))
    monkeypatch.setattr(hub, "hf_hub_download", fetch)
    assert stepnet.load("hf-hub:me/mine").description.model == "lm_resnet20"
    asked_first, *asked_then = asked
    assert asked_first.endswith("/me/mine/resolve/main/model.safetensors")
    assert asked_then == [("me/mine", "model.safetensors")]


def test_an_unknown_name_is_one_line(monkeypatch):
    from huggingface_hub.errors import LocalEntryNotFoundError

    def offline(*args, **options):
        raise LocalEntryNotFoundError("no connection\nand much more")

    monkeypatch.setattr(hub, "get_hf_file_metadata", offline)
    monkeypatch.setattr(hub, "hf_hub_download", lambda *args, **options: pytest.fail("it was asked again and again"))
    with pytest.raises(UserError, match=r"hf-hub:me/mine: cannot be fetched .* no connection\)$") as refused:
        stepnet.load("hf-hub:me/mine")
    assert "\n" not in str(refused.value)
