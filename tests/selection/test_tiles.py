import multiprocessing
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from selection import tiles
from selection.tiles import (
    GROUND_TILE,
    MAX_PARTS,
    cosines_of,
    one_blas_thread,
    parts_of,
    share_out,
    tile_of,
)


def blas_threads():
    """Of the libraries that were there first, numpy's among them; others come later."""
    return [one.num_threads for one in tiles._blas_libraries()]


@pytest.mark.parametrize("n", [0, 1, 2048, 2049, 64 * 2048, 64 * 2048 + 1, 1_000_000])
def test_parts_are_whole_tiles_that_cover_every_point_once(n):
    parts = parts_of(n)
    assert len(parts) <= MAX_PARTS
    assert all(part.start % GROUND_TILE == 0 for part in parts)
    stops = [0] + [part.stop for part in parts]
    assert [part.start for part in parts] == stops[:-1]
    assert stops[-1] == n


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_the_order_of_the_items(threads):
    assert list(share_out(lambda n: n * n, range(50), threads=threads)) == [
        n * n for n in range(50)
    ]


def test_little_work_stays_in_the_calling_thread():
    here = threading.get_ident()
    for items, worthwhile in (([1], True), ([1, 2], False)):
        found = share_out(lambda _: threading.get_ident(), items, threads=2, worthwhile=worthwhile)
        assert set(found) == {here}
    elsewhere = share_out(lambda _: threading.get_ident(), [1, 2], threads=2)
    assert here not in set(elsewhere)


def test_no_threads_at_all_is_refused():
    with pytest.raises(ValueError, match="found 0, wanted at least 1"):
        share_out(abs, [1], threads=0)


def test_an_error_in_a_thread_reaches_the_caller():
    with pytest.raises(ZeroDivisionError):
        list(share_out(lambda n: 1 // n, [1, 0, 2], threads=2))


def test_blas_gets_its_threads_back_when_the_last_one_leaves():
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with one_blas_thread:
            with one_blas_thread:
                assert set(blas_threads()) == {1}
            assert set(blas_threads()) == {1}
        assert blas_threads() == before
        with pytest.raises(KeyError), one_blas_thread:
            raise KeyError
        assert blas_threads() == before


def test_a_tile_of_halves_is_widened_into_the_threads_own_buffer(unit_vectors):
    vectors = unit_vectors(40, 6)
    halves = vectors.astype(np.float16)
    first = tile_of(halves, slice(3, 20))
    np.testing.assert_array_equal(first, halves[3:20].astype(np.float32))
    elsewhere = next(iter(share_out(lambda rows: tile_of(halves, rows), [slice(0, 9)], threads=1)))
    assert np.shares_memory(elsewhere, first)
    other = list(share_out(lambda rows: tile_of(halves, rows), [slice(0, 9)] * 2, threads=2))
    assert not any(np.shares_memory(one, first) for one in other)
    assert np.shares_memory(tile_of(vectors, slice(3, 20)), vectors)
    assert not np.shares_memory(tile_of(vectors, slice(3, 20), copy=True), vectors)


def test_products_are_those_of_numpy(unit_vectors):
    left, right = unit_vectors(70, 5), unit_vectors(16, 5, seed=1)
    np.testing.assert_allclose(cosines_of(left, right), left @ right.T, atol=1e-6)


def _in_child(answers):
    with one_blas_thread:
        answers.put(list(share_out(lambda n: n + 1, range(4), threads=2)))


def test_a_forked_child_starts_threads_of_its_own():
    assert list(share_out(lambda n: n, range(4), threads=2)) == [0, 1, 2, 3]
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_in_child, args=(answers,))
    with one_blas_thread:
        child.start()
    try:
        assert answers.get(timeout=30) == [1, 2, 3, 4]
    finally:
        child.kill()
        child.join()
