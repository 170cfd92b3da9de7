"""Images and labels, text, and the batches a network is trained on.

lookup          get_data: from a name, a folder or a torch Dataset to a data set
datasets        what a data set is, and the registry: list_data, register_data
digits          8x8 digits inside the package: no download
cifar           CIFAR-10 and CIFAR-100 in any of their layouts on disk
folders         which images a folder holds, and of which class; ImageNet
photos          image files, decoded by threads in every epoch, or once into an array
images          one image file as the pixels of a view
torch_datasets  the items of a torch Dataset
augment         crops and flips of a whole batch of uint8 images
text            a text file as sequences of characters or bytes
normalise       uint8 images to the float tensors that a network reads
batches         the order of images: a function of (seed, epoch, position), for any number of ranks
fetching        `stepnet data fetch`: download, verify, unpack
arrays          numpy's files, read without running code
"""

from stepnet.data import cifar, digits, folders, text  # noqa: F401  (each registers its data sets)
from stepnet.data.augment import Augmentation as Augmentation
from stepnet.data.batches import Batches as Batches
from stepnet.data.batches import evaluation_batches as evaluation_batches
from stepnet.data.batches import training_batches as training_batches
from stepnet.data.datasets import Data as Data
from stepnet.data.datasets import ImageSet as ImageSet
from stepnet.data.datasets import Request as Request
from stepnet.data.datasets import data_root as data_root
from stepnet.data.datasets import list_data as list_data
from stepnet.data.datasets import register_data as register_data
from stepnet.data.fetching import fetch as fetch
from stepnet.data.fingerprints import fingerprint as fingerprint
from stepnet.data.images import MARGIN as MARGIN
from stepnet.data.images import SUFFIXES as SUFFIXES
from stepnet.data.images import UnreadableImage as UnreadableImage
from stepnet.data.images import centre_view as centre_view
from stepnet.data.images import read_view as read_view
from stepnet.data.images import view_of as view_of
from stepnet.data.lookup import AnyData as AnyData
from stepnet.data.lookup import get_data as get_data
from stepnet.data.normalise import Normalisation as Normalisation
from stepnet.data.photos import Photos as Photos
from stepnet.data.text import BYTES as BYTES
from stepnet.data.text import Text as Text
from stepnet.data.text import encode as encode
from stepnet.data.text import is_text as is_text
from stepnet.data.torch_datasets import DatasetImages as DatasetImages
