"""Stage 1 night by night: each batch builds upon what is annotated and what is still out."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from jobs.annotation.labels import labels_of
from jobs.annotation.states import retired_ids
from jobs.config.load import Config
from jobs.config.schema import Arm
from jobs.config.stage1 import NO_STAGE1, Stage1Config
from jobs.embed import encoder_spec
from jobs.errors import ConfigError, NothingToChoose
from jobs.ledger import Marker, Unit, fingerprint
from jobs.nights.batches import Batch, batch_unit, batches_of
from jobs.nights.known import Known, known_on, vectors_of
from jobs.nights.standing import room_for
from jobs.nights.table import batch_table, night_facts, night_line
from jobs.readers.hashes import text_hash
from jobs.run import Run
from jobs.select import choice_of, finish_choices, relevant
from jobs.selecting.id_files import IdList
from jobs.selecting.inputs import Given, Wishes, read_wishes
from jobs.vectors import to_lists, with_encoder
from selection.stage1 import DRAWN

VERSION = 1


# What it needs: the vectors of the corpus, earlier batches, labels that came back.


def run_stage(run: Run) -> None:
    """Write tonight's batch, or find that nothing has changed since the last one was chosen."""
    arm = _choosing(run)[0]
    last = run.manifest.get("night", {}).get("number", 0)
    batches = batches_of(run.ledger, at_least=last)
    state = _state(run, arm)
    same = bool(batches) and batches[-1].marker.fingerprint == state
    batch = batches[-1] if same else _propose(run, arm, batches, state)
    run.progress.line("night", night_line(batch, new=not same))
    for one in _choosing(run):
        run.candidates[one.name] = batch.marker
    names = [one.name for one in _choosing(run)]
    entry = {"candidates": batch.marker.as_dict(), "arms": names, "encoder": arm.encoder}
    run.manifest["selections"] = {state: entry}
    run.manifest["night"] = batch.facts | {"batch": batch.marker.as_dict(), "new": not same}


def check_nightly(config: Config) -> None:
    """Refuse what has no meaning night by night.

    Raises:
        ConfigError: Several Stage 1 settings, none, or a look at a part of the input.
    """
    if not config.file.annotate.nightly:
        return
    if config.limit is not None:
        raise ConfigError(
            f"--limit {config.limit} does not go with annotate.nightly: a batch is for good, and "
            "would be chosen from a part of the rows. Leave one of the two out."
        )
    if config.file.report.folds_of == "selection":
        raise ConfigError(
            "report.folds_of = selection does not go with annotate.nightly: a night chooses once, "
            "for the annotators. Set folds_of: queries."
        )
    arms = [arm for arm in config.arms if arm.stage1.method != NO_STAGE1]
    drawn = {arm.seed for arm in arms if arm.stage1.method in DRAWN}
    settings = {(arm.encoder, arm.stage1.model_dump_json()) for arm in arms}
    if len(settings) != 1 or len(drawn) > 1:
        names = ", ".join(arm.name for arm in arms) or "no arm"
        raise ConfigError(
            f"annotate.nightly: found {max(len(settings), len(drawn))} Stage 1 settings ({names}); "
            "wanted one, whose candidates go to the annotators. Give all arms the same encoder and "
            "stage1, and compare methods in a run of its own."
        )


def serve_pool(run: Run, batches: Sequence[Batch]) -> None:
    """Let arms show the whole pool, not tonight's candidates alone.

    Args:
        run: With its pool.
        batches: All of them, tonight's too.
    """
    assert run.pool is not None
    arm = _choosing(run)[0]
    pool = run.ledger.read(run.pool, ["id", "input"])
    in_pool = dict(zip(pool["id"].to_pylist(), pool["input"].to_pylist(), strict=True))
    sent = [row_id for batch in batches for row_id in _ids(run, batch)]
    wanted = [row_id for row_id in dict.fromkeys(sent) if row_id in in_pool]
    ids, vectors = vectors_of(run, arm.encoder, batches, wanted)
    encoder_id = run.encoder_ids[arm.encoder]
    depends = [run.pool.checksum, encoder_id, ids, vectors.shape[1]]
    mark = fingerprint("served", VERSION, depends)
    unit = Unit(f"candidates/{mark}", "candidates", mark)
    storage = encoder_spec(run.config.file.encoders[arm.encoder], key=arm.encoder).storage
    hashes = [text_hash(in_pool[row_id]) for row_id in ids]
    table = pa.table(
        {
            "id": pa.array(ids, pa.string()),
            "text_hash": pa.array(hashes, pa.string()),
            "vector": to_lists(vectors, storage),
        }
    )
    marker = run.ledger.find(unit) or run.ledger.commit(unit, with_encoder(table, encoder_id))
    for one in _choosing(run):
        run.candidates[one.name] = marker


def _choosing(run: Run) -> list[Arm]:
    return [arm for arm in run.arms if arm.stage1.method != NO_STAGE1]


def _ids(run: Run, batch: Batch) -> list[str]:
    return [str(row_id) for row_id in run.ledger.read(batch.marker, ["id"])["id"].to_pylist()]


def _state(run: Run, arm: Arm) -> str:
    """Fingerprint of all that makes a night another one; its own batch is not part of it."""
    labels = {
        row_id: [label.label, label.output, label.tags]
        for row_id, label in labels_of(run.ledger).items()
    }
    parts = [[part.content, part.marker.stats["sides"]] for part in run.tables["corpus"].parts]
    annotate = run.config.file.annotate
    return fingerprint(
        "night",
        VERSION,
        run.encoder_ids[arm.encoder],
        arm.seed,
        relevant(arm.stage1),
        read_wishes(arm.stage1, encoder_id=run.encoder_ids[arm.encoder]).digests(),
        [annotate.expire_nights, annotate.max_pending, annotate.max_cosine],
        parts,
        labels,
        retired_ids(run.ledger),
    )


# Tonight's choice.


def _propose(run: Run, arm: Arm, batches: Sequence[Batch], state: str) -> Batch:
    known = known_on(run, arm.encoder, batches)
    marker, reason = _choose(run, arm, known)
    table, n_copies = batch_table(run, arm.encoder, known, marker)
    facts = night_facts(run, known, table) | {"n_copies": n_copies, "reason": reason}
    if n_copies:
        run.progress.warn(
            f"night {known.night}: {n_copies} of the candidates chosen are copies of annotated, "
            "pending or other chosen rows and were not sent out"
        )
    stats = {} if marker is None else dict(marker.stats)
    plain = json.dumps(facts | {"batch": f"{known.night:04d}"}, indent=1, allow_nan=False)
    made = run.ledger.commit(
        batch_unit(known.night, state),
        table,
        stats=stats | {"night": facts},
        files={"batch.json": plain.encode()},
    )
    return Batch(known.night, made)


def _choose(run: Run, arm: Arm, known: Known) -> tuple[Marker | None, str | None]:
    """Candidates as Stage 1 picks them, or why there are none."""
    n_pending, annotate = len(known.standing.pending), run.config.file.annotate
    room = room_for(annotate, n_pending)
    if room == 0:
        most = annotate.max_pending
        return None, f"{n_pending} candidates are out already, annotate.max_pending = {most}"
    wishes = read_wishes(arm.stage1, encoder_id=run.encoder_ids[arm.encoder])
    config = _within(arm.stage1, room)
    choice = choice_of(run, arm, config, _upon(wishes, known, config))
    choice.arms += [one.name for one in _choosing(run)]
    try:
        return finish_choices(run, [choice])[0], None
    except NothingToChoose as error:
        return None, str(error)


def _within(config: Stage1Config, room: int | None) -> Stage1Config:
    if room is None or (config.k1 is not None and config.k1 <= room):
        return config
    return config.model_copy(update={"k1": room})


def _upon(wishes: Wishes, known: Known, config: Stage1Config) -> Wishes:
    """The config's wishes, with all that went out before: built upon, and not chosen again."""
    barred = set(known.standing.barred)
    required = wishes.required
    if required is not None:
        left = tuple(i for i in required.ids if i not in barred)[: config.k1]
        required = IdList(required.key, left) if left else None
    given = wishes.given or Given(())
    own = set(given.ids)
    at = [i for i, row_id in enumerate(known.given) if row_id not in own]
    pieces = [part for part in (given.vectors, known.vectors[at]) if part is not None and len(part)]
    ids = (*given.ids, *(i for i in known.standing.barred if i not in own))
    vectors = np.concatenate(pieces) if pieces else None
    return replace(
        wishes,
        required=required,
        given=Given(ids, given.of_corpus, vectors) if ids else None,
    )
