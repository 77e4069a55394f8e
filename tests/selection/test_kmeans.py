import numpy as np
import pytest
from sklearn.cluster import KMeans

from selection.crowd import Crowd
from selection.kmeans import kmeans_picks, seeded
from selection.lloyd import Points, lloyd
from tests.selection.asking import ask, keys_of
from tests.selection.own_rules import blobs, chosen, on_circle


def clustered(vectors, k, **more):
    """The clusters that k picks come from."""
    points = Points.of(vectors, ask(len(vectors), k, **more))
    none = np.zeros((0, vectors.shape[1]), np.float32)
    return points, lloyd(points, seeded(points, none, k), n_fixed=0)


def test_two_clusters_by_hand():
    # Means lie at 10 and 125 degrees; the heavier cluster is first.
    vectors = on_circle(0, 10, 20, 120, 130, 124)
    for seed in range(8):
        picks, mass = kmeans_picks(vectors, ask(6, 2, keys=keys_of(6, seed)))
        assert picks.tolist() == [1, 5]
        assert mass.tolist() == [3.0, 3.0]


def test_mass_moves_a_centre_and_decides_which_cluster_is_first():
    vectors = on_circle(0, 10, 20, 120, 130, 124)
    mass = np.array([9.0, 1, 1, 1, 20, 1])
    picks, weight = kmeans_picks(vectors, ask(6, 2, crowd=Crowd(mass)))
    assert picks.tolist() == [4, 0]
    assert weight.tolist() == [22.0, 11.0]


def test_a_mass_is_as_many_copies(unit_vectors):
    vectors, mass = unit_vectors(40, 5), np.arange(40) % 4
    copies = np.repeat(np.arange(40), mass)
    centre = lloyd(
        *_from(vectors[copies], vectors[:6]),
        n_fixed=0,
    )
    weighed = lloyd(*_from(vectors, vectors[:6], crowd=Crowd(mass.astype(float))), n_fixed=0)
    assert weighed.centres == pytest.approx(centre.centres, abs=1e-6)
    assert weighed.mass.tolist() == centre.mass.tolist()


def _from(vectors, centres, **more):
    return Points.of(vectors, ask(len(vectors), len(centres), **more)), centres.copy()


@pytest.mark.parametrize("seed", range(4))
def test_blobs_are_found_as_scikit_learn_finds_them(seed):
    vectors = blobs(600, spread=0.15, topics=9)
    other = KMeans(9, n_init=10, random_state=seed).fit(vectors)
    _, found = clustered(vectors, 9, keys=keys_of(600, seed))
    assert found.inertia == pytest.approx(other.inertia_, rel=1e-3)


def test_where_there_are_no_blobs_one_start_is_on_average_as_good_as_one_of_theirs(unit_vectors):
    vectors = unit_vectors(600, 8, n_topics=9, spread=0.35)
    ours = [clustered(vectors, 9, keys=keys_of(600, s))[1].inertia for s in range(40)]
    theirs = [KMeans(9, n_init=1, random_state=s).fit(vectors).inertia_ for s in range(40)]
    assert np.mean(ours) <= 1.03 * np.mean(theirs)


def test_from_the_same_start_the_centres_are_those_of_scikit_learn(unit_vectors):
    vectors = unit_vectors(400, 6, n_topics=7, spread=0.4)
    other = KMeans(7, init=vectors[:7], n_init=1, tol=0).fit(vectors)
    found = lloyd(*_from(vectors, vectors[:7]), n_fixed=0)
    assert found.inertia == pytest.approx(other.inertia_, rel=2e-3)


def test_every_blob_gets_one_pick():
    found = chosen("kmeans", blobs(480, spread=0.08, topics=12), 12)
    assert sorted(found.picks % 12) == list(range(12))
    assert found.mass.tolist() == [40.0] * 12


def test_a_centre_that_loses_its_points_goes_where_it_is_needed():
    vectors = on_circle(0, 1, 2, 90, 91, 92, 180)
    # The second centre is nearest to nothing.
    start = np.concatenate([on_circle(45), np.array([[-3.0, -3.0]], np.float32)])
    found = lloyd(*_from(vectors, start), n_fixed=0)
    assert found.mass.tolist() == [6.0, 1.0]
    assert found.centres[1] == pytest.approx([-1.0, 0.0], abs=1e-6)


def test_with_fewer_texts_than_picks_each_is_a_cluster_and_the_rest_is_filled():
    vectors = on_circle(*[0] * 5, *[90] * 3, *[200] * 2)
    picks, mass = kmeans_picks(vectors, ask(10, 6))
    assert picks[:3].tolist() == [0, 5, 8]
    assert mass.tolist() == [5.0, 3.0, 2.0, 0.0, 0.0, 0.0]


def test_what_is_required_or_given_keeps_its_points_and_stays():
    vectors = on_circle(0, 10, 20, 120, 130, 124)
    picks, mass = kmeans_picks(vectors, ask(6, 2, required=np.array([2])))
    assert picks.tolist() == [2, 5]
    assert mass.tolist() == [0.0, 3.0]
    picks, _ = kmeans_picks(vectors, ask(6, 1, given=on_circle(125)))
    assert picks.tolist() == [1]


def test_a_cluster_picks_its_nearest_member_that_is_allowed():
    vectors = on_circle(0, 10, 20, 120, 130, 124)
    allowed = np.array([True, False, True, True, True, True])
    picks, _ = kmeans_picks(vectors, ask(6, 2, allowed=allowed))
    assert picks[0] == 0  # 0 and 20 are as near; the first by rank
    assert picks[1] == 5


def test_the_clusters_of_parts_weighed_by_size_come_close_to_those_of_the_whole(unit_vectors):
    vectors = unit_vectors(1200, 8, n_topics=10, spread=0.4)
    union, mass = [], []
    for part in np.array_split(np.random.default_rng(0).permutation(1200), 4):
        rows = np.sort(part)
        picks, weight = kmeans_picks(vectors[rows], ask(300, 20, keys=keys_of(1200)[rows]))
        union.append(rows[picks])
        mass.append(weight)
    union, mass = np.concatenate(union), np.concatenate(mass)
    assert mass.sum() == 1200
    merged, _ = kmeans_picks(vectors[union], ask(80, 10, crowd=Crowd(mass)))
    whole, _ = kmeans_picks(vectors, ask(1200, 10))

    def squares(picks):
        apart = vectors[:, None].astype(np.float64) - vectors[None, picks]
        return (apart**2).sum(axis=2).min(axis=1).sum()

    assert squares(union[merged]) <= 1.08 * squares(whole)
