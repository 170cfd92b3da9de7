"""A picture becomes what the network saw in evaluation, and its likeliest classes."""

import numpy as np
import pytest
import torch
from PIL import Image

from exchange.greys import GREY
from stepnet import UserError, create_model
from stepnet.data import evaluation_batches, get_data
from stepnet.exchange.model_description import Preprocessing, describe_network
from stepnet.exchange.model_files import attach
from stepnet.exchange.prediction import predict, preprocess, preprocessing_of

COLOUR = Preprocessing(channels=3, image_size=8, resize=10, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))


def test_a_test_image_as_a_picture_is_the_test_image(tmp_path):
    data = get_data("digits")
    images, _ = next(evaluation_batches(data, 3).epoch())
    pixels = data.test.images[:3]
    Image.fromarray(pixels[1, ..., 0]).save(tmp_path / "one.png")
    pictures = [pixels[0], tmp_path / "one.png", Image.fromarray(pixels[2, ..., 0])]
    assert torch.equal(preprocess(preprocessing_of(data), pictures), images)
    assert torch.equal(preprocess(preprocessing_of(data), str(tmp_path / "one.png")), images[1:2])


def test_the_centre_of_the_resized_picture_is_taken():
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, 10:30] = 255  # all that is left of it once 10 x 20 pixels are cut to 8 x 8
    found = preprocess(COLOUR, pixels)
    assert found.shape == (1, 3, 8, 8)
    white = (1 - torch.tensor(COLOUR.mean)) / torch.tensor(COLOUR.std)
    torch.testing.assert_close(found, white.view(1, 3, 1, 1).expand(1, 3, 8, 8))


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1"])
def test_every_mode_is_read(tmp_path, mode):
    path = tmp_path / ("x.jpg" if mode == "CMYK" else "x.png")
    Image.new("RGB", (9, 12), "white").convert(mode).save(path)
    white = (1 - torch.tensor(COLOUR.mean)) / torch.tensor(COLOUR.std)
    torch.testing.assert_close(preprocess(COLOUR, path).mean((0, 2, 3)), white)


def test_a_camera_that_was_turned(tmp_path):
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[0] = 255  # the upper row
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it by 90 degrees: the upper row becomes the right column
    Image.fromarray(pixels).save(tmp_path / "x.png", exif=exif)
    found = preprocess(COLOUR, tmp_path / "x.png")
    assert (found[0, 0, :, -1] > found[0, 0, :, 0]).all()


def test_what_is_no_picture_is_one_line(tmp_path):
    (tmp_path / "text.jpg").write_text("not a picture")
    (tmp_path / "script.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n")
    cases = [
        (tmp_path / "text.jpg", "cannot be read as an image"),
        (tmp_path / "script.jpg", "cannot be read as an image"),  # Ghostscript is never started
        (tmp_path / "nowhere.png", "no such file"),
        (tmp_path, "not a regular file"),
        (np.zeros((8, 8, 3)), "a picture is a float64"),
        ([], "no pictures"),
    ]
    for odd, said in cases:
        with pytest.raises(UserError, match=said) as refused:
            preprocess(COLOUR, odd)
        assert "\n" not in str(refused.value)


def test_a_photo_is_prepared_as_in_evaluation(tmp_path):
    rng = np.random.default_rng(0)
    for part in ("train", "val"):
        for name in "ab":
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(2):
                pixels = rng.integers(0, 256, (150 + 20 * i, 200, 3), np.uint8)
                Image.fromarray(pixels).save(tmp_path / part / name / f"{i}.png")
    for size in (32, 140):  # decoded once, and whenever asked for
        data = get_data(tmp_path, tmp_path / "cache", image_size=size)
        images, _ = next(evaluation_batches(data, 4).epoch())
        paths = sorted((tmp_path / "val").rglob("*.png"))
        assert torch.equal(preprocess(preprocessing_of(data), paths), images)


def test_a_data_set_that_makes_floats_itself_is_not_described():
    items = [(torch.rand(3, 8, 8), label) for label in (0, 1, 0, 1)]
    assert preprocessing_of(get_data((items, items))) is None
    grey = [((image[:1] * 255).byte(), label) for image, label in items]
    assert preprocessing_of(get_data((grey, grey))).channels == 1


def test_the_likeliest_classes_come_first():
    torch.manual_seed(0)
    network = create_model("lm_resnet20", in_channels=1, num_classes=3).eval()
    attach(network, describe_network(network, ["ant", "bee", "cat"], GREY))
    picture = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
    with torch.no_grad():
        wanted = network(network.preprocess(picture)).softmax(1)[0]
    (found,) = predict(network, [picture])  # three classes, though five are asked for
    assert [each.name for each in found] == [("ant", "bee", "cat")[i] for i in wanted.argsort(descending=True)]
    assert [each.probability for each in found] == pytest.approx(sorted(wanted.tolist(), reverse=True))
    (best,) = predict(network, [picture], top=1)
    assert best == found[:1]


def test_a_language_model_takes_no_pictures():
    with pytest.raises(UserError, match="gpt2x8 reads text, not pictures: continue a text with `stepnet generate`"):
        next(predict(create_model("gpt2x8", num_classes=9), [np.zeros((8, 8), np.uint8)]))


def test_a_network_that_does_not_say_how():
    with pytest.raises(UserError, match="does not say how a picture becomes its input"):
        next(predict(create_model("lm_resnet20"), [np.zeros((8, 8), np.uint8)]))
