"""A network with images of its own data."""

import pytest
import torch

from stepnet import create_model, save
from stepnet.data import get_data
from stepnet.errors import UserError
from stepnet.report.opened_networks import open_with_images


def test_a_run_is_shown_the_test_images_of_its_data(write_model_of_digits) -> None:
    found = open_with_images(str(write_model_of_digits()), count=7)
    data = get_data("digits")
    assert found.title == "tiny" and not found.network.training
    assert found.images.shape == (7, 1, 8, 8)
    assert found.labels.tolist() == data.test.labels[:7].tolist()


def test_a_name_gives_an_untrained_network_of_the_right_shape() -> None:
    found = open_with_images("preact_resnet20", count=1)
    assert found.title == "preact_resnet20, untrained"
    assert found.network(found.images).shape == (1, 10)


def test_some_images_of_each_class(write_model_of_digits) -> None:
    found = open_with_images(str(write_model_of_digits()), count=200)
    images, names = found.some_of_each(classes=3, each=2)
    assert names == ["0", "0", "1", "1", "2", "2"]
    first = torch.nonzero(found.labels == 0)[0, 0]
    assert torch.equal(images[0], found.images[first])
    with pytest.raises(UserError, match="of the first 0 classes"):
        found.some_of_each(classes=0)


def test_a_model_that_names_no_data_has_no_images(tmp_path) -> None:
    save(create_model("preact_resnet20"), tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="does not say on which data"):
        open_with_images(str(tmp_path))


def test_weights_that_come_along_are_a_specimen() -> None:
    found = open_with_images("lm_resnet20.digits", count=300)
    wrong = (found.network(found.images).argmax(1) != found.labels).double().mean()
    assert 100 * float(wrong) == pytest.approx(found.network.description.training.test_error, abs=0.4)


def test_a_network_of_another_library_is_built_for_the_images() -> None:
    found = open_with_images("torchvision/resnet18", count=2)
    assert found.network(found.images).shape == (2, 10)
