"""Words are a function of their key, and of nothing else."""

import numpy as np

from stepnet.randomness import Stream, random_words, uniform


def test_words_are_a_function_of_the_key_and_a_longer_draw_extends_a_shorter_one():
    assert np.array_equal(random_words(5, 3, 7, Stream.GATES), random_words(9, 3, 7, Stream.GATES)[:5])
    others = [(3, 7, Stream.ORDER), (3, 7, Stream.VIEWS), (7, 3, Stream.GATES), (3, 8, Stream.GATES)]
    assert all(not np.array_equal(random_words(5, *key), random_words(5, 3, 7, Stream.GATES)) for key in others)


def test_the_first_word_of_a_key_never_changes():
    assert (
        int(random_words(1, 0, 0, Stream.GATES)[0]) == 10997286687701404338
    )  # a run begun with an older stepnet resumes


def test_uniform_numbers_lie_in_the_half_open_interval():
    ends = uniform(np.array([0, 2**64 - 1], dtype=np.uint64))
    assert ends[0] == 0
    assert ends[1] == 1 - 2.0**-53
