"""The points behind the candidates of a merge, for methods that do not maximise f."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.selecting.aim import Aim
from jobs.selecting.mapped import Stored
from jobs.selecting.union import Floats, Indices, Union
from selection.crowd import VOTERS_MOST, Crowd, Voters, votes_among
from selection.modes import sample_rows


def voters_of(
    aim: Aim,
    union: Union,
    ids: pa.StringArray,
    vectors: Stored,
    weights: Floats | None,
) -> Voters | None:
    """Rows drawn from the whole corpus as voters; None where the method asks nobody.

    Args:
        aim: The setting.
        union: The candidates of a merge.
        ids: m ids; of more than VOTERS_MOST so many are drawn by their keys.
        vectors: (m, d), as stored.
        weights: (m,) or None.
    """
    if not aim.asks_voters:
        return None
    rows = sample_rows(aim.keys(ids), VOTERS_MOST)
    ids = ids.take(pa.array(rows))
    own = pc.index_in(ids, value_set=union.rows.column("id").combine_chunks())
    return Voters(
        vectors[rows] if len(rows) < len(vectors) else vectors,
        own.fill_null(-1).to_numpy().astype(np.int64),
        None if weights is None else weights[rows],
        votes_among(aim.config.neighbours, len(rows), aim.n_rows),
    )


def crowd_of(aim: Aim, union: Union, voters: Voters | None, *, threads: int) -> Crowd | None:
    """The points behind the choices of a union; None for methods that maximise f.

    Args:
        aim: The setting.
        union: The candidates.
        voters: As `voters_of` gives them.
        threads: Threads of the process that merges.
    """
    if aim.maximises_f:
        return None
    mass = None
    if aim.weighs_picks:
        mass = np.zeros(union.rows.num_rows)
        for chosen in union.sets:
            mass[chosen] = union.column("mass")[chosen]
    return Crowd(mass, voters, aim.config.neighbours, threads)


def crowd_of_controls(crowd: Crowd | None, sets: Sequence[Indices]) -> Any:
    """The same where random rows are merged: each stands for as many."""
    if crowd is None or crowd.mass is None:
        return crowd
    mass = np.zeros(len(crowd.mass))
    for some in sets:
        mass[some] = 1.0
    return replace(crowd, mass=mass)
