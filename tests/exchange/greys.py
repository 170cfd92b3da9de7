"""Grey images of 8 x 8 pixels, as a model file describes them."""

from stepnet.exchange import Preprocessing

GREY = Preprocessing(channels=1, image_size=8, resize=8, mean=(0.5,), std=(0.25,))
