from collections.abc import Iterable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stepnet.data import (
    Augmentation,
    Batches,
    Data,
    ImageSet,
    evaluation_batches,
    get_data,
    training_batches,
)
from stepnet.data.datasets import Batch
from stepnet.errors import UserError


def numbered(count: int) -> Data:
    """`count` different images; image i has the label i."""
    images = np.random.default_rng(1).integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    classes = tuple(map(str, range(count)))
    train = ImageSet(images, np.arange(count), classes, Augmentation(pad=2, flip=True))
    return Data("numbered", train, ImageSet(images, np.arange(count), classes))


def same(left: Iterable[Batch], right: Iterable[Batch]) -> bool:
    return all(torch.equal(a, b) and torch.equal(x, y) for (a, x), (b, y) in zip(left, right, strict=True))


@settings(max_examples=40)
@given(
    count=st.integers(1, 40),
    batch_size=st.integers(1, 45),
    world_size=st.integers(1, 4),
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 500),
)
def test_ranks_together_see_what_one_process_sees(
    count: int, batch_size: int, world_size: int, seed: int, epoch: int
) -> None:
    data = numbered(count)
    alone = training_batches(data, batch_size, seed=seed).epoch(epoch)
    ranks = [
        training_batches(data, batch_size, seed=seed, rank=rank, world_size=world_size).epoch(epoch)
        for rank in range(world_size)
    ]
    together = (
        (torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts]))
        for parts in zip(*ranks, strict=True)
    )
    assert same(alone, together)


@pytest.mark.parametrize("start", [0, 1, 4, 5])
def test_an_epoch_can_start_at_any_step(start: int) -> None:
    batches = training_batches(numbered(33), 8, seed=3)
    whole = list(batches.epoch(7))
    assert same(whole[start:], batches.epoch(7, start=start))


def test_a_view_depends_on_the_position_and_not_on_the_batch_size() -> None:
    data = numbered(24)
    small = torch.cat([images for images, _ in training_batches(data, 3, seed=0).epoch(2)])
    large = torch.cat([images for images, _ in training_batches(data, 24, seed=0).epoch(2)])
    assert torch.equal(small, large)


def test_every_image_once_in_an_epoch_and_another_order_in_the_next() -> None:
    batches = training_batches(numbered(50), 8, seed=0)
    orders = [torch.cat([labels for _, labels in batches.epoch(epoch)]).tolist() for epoch in range(3)]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len(set(map(tuple, orders))) == 3
    other_seed = training_batches(numbered(50), 8, seed=1)
    assert torch.cat([labels for _, labels in other_seed.epoch(0)]).tolist() != orders[0]


def test_the_same_image_is_augmented_anew_in_each_epoch() -> None:
    batches = training_batches(numbered(1), 1, seed=0)
    views = {next(batches.epoch(epoch))[0].numpy().tobytes() for epoch in range(60)}
    assert len(views) > 25  # of 2 * 25 that there are


def test_the_order_is_fixed_for_all_time() -> None:
    """A run that was recorded with one version must be repeatable with the next: the stream may not change."""
    batches = training_batches(numbered(10), 10, seed=0)
    assert next(batches.epoch(0))[1].tolist() == [0, 8, 9, 3, 7, 5, 1, 2, 6, 4]


def test_views_are_drawn_from_other_words_than_the_order() -> None:
    """From the same words, the first image of an epoch would always be cut at the same corner."""
    requests = training_batches(numbered(30), 30, seed=0)._requests(0, 0)
    (indices, words) = next(requests)
    assert words is not None
    assert (np.argsort(words, kind="stable") != indices).any() and (np.argsort(words).argsort() != indices).any()
    assert not np.isin(words, np.random.Philox(np.random.SeedSequence((0, 0, 0))).random_raw(30)).any()


def test_orders_are_uniform() -> None:
    first = np.array([next(training_batches(numbered(5), 1, seed=s).epoch(0))[1].item() for s in range(1000)])
    assert np.abs(np.bincount(first, minlength=5) - 200).max() < 5 * np.sqrt(1000 * 0.2 * 0.8)


def test_the_last_short_batch_is_kept() -> None:
    kept = training_batches(numbered(10), 4, seed=0)
    assert [len(labels) for _, labels in kept.epoch(0)] == [4, 4, 2]
    assert [kept.size(step) for step in range(len(kept))] == [4, 4, 2]
    assert len(kept) == 3


def test_evaluation_is_the_test_set_as_it_stands() -> None:
    data = numbered(10)
    images, labels = map(torch.cat, zip(*evaluation_batches(data, 4).epoch(), strict=True))
    assert labels.tolist() == list(range(10))
    assert isinstance(data.test, ImageSet)
    assert torch.equal(images, data.normalise(data.test.images))


def test_nothing_is_drawn_from_the_global_generators() -> None:
    torch.manual_seed(0)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    list(training_batches(get_data("digits"), 128, seed=0).epoch(0))
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(numpy_before, np.random.get_state()[1])  # type: ignore[index]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size = 0"),
        ({"batch_size": 4, "seed": -1}, "seed = -1"),
        ({"batch_size": 4, "rank": 2, "world_size": 2}, "rank is 2 of 2"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, int], message: str) -> None:
    data = numbered(10)
    with pytest.raises(UserError, match=message):
        Batches(data.train, data.normalise, **options)  # type: ignore[arg-type]
