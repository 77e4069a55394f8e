"""A nightly project in one process: texts that arrive, annotators who answer late, wrong or twice.

Units of work and the actors of Stage 1 run here, the encoder is a table of word vectors; all else
is the command line as users call it.
"""

import csv
import random

import numpy as np
import pyarrow as pa

from inference.encoder import Encoded
from inference.status import Status
from jobs import embed, units
from jobs.cli import main
from jobs.ledger import Ledger, Marker
from jobs.nights.batches import batches_of
from jobs.vectors import to_matrix
from tests.inference.llm_fakes import byte_tokenizer
from tests.inference.tiny_models import tiny_bert
from tests.jobs.conftest import Project, inline_units, write_jsonl
from tests.jobs.selecting.inline_workers import InlineRay

TOPICS, WORDS_PER_TOPIC, DIMENSION = 60, 14, 64
LABELS = ["animal", "machine", "weather"]


class WordVectors:
    """Stands for an encoder: a text is the mean of its words, whose vectors lie about a topic."""

    dimension = DIMENSION

    def __init__(self, spec, role, n_threads=1):
        rng = np.random.default_rng(7)
        centres = rng.normal(size=(TOPICS, 1, DIMENSION))
        self._words = centres + 0.5 * rng.normal(size=(TOPICS, WORDS_PER_TOPIC, DIMENSION))

    def encode(self, texts, *, ids):
        vectors = np.array([self._vector(text) for text in texts], np.float32)
        n_tokens = np.array([len(text.split()) for text in texts], np.int32)
        return Encoded(
            vectors.reshape(len(texts), DIMENSION),
            n_tokens,
            np.zeros(len(texts), bool),
            [Status.OK] * len(texts),
        )

    def _vector(self, text):
        places = [word.lower().rstrip(".")[1:].split("x") for word in text.split()]
        mean = np.mean([self._words[int(topic), int(word)] for topic, word in places], axis=0)
        return mean / np.linalg.norm(mean)


def text_of(rng, n_topics=TOPICS):
    """Seven words of a topic, the n-th topic n times rarer; t3x5 is word 5 of topic 3."""
    (topic,) = rng.choices(range(n_topics), [1 / (n + 1) for n in range(n_topics)])
    return " ".join(f"t{topic}x{rng.randrange(WORDS_PER_TOPIC)}" for _ in range(7))


def right_label(text):
    """What a careful annotator says of a text."""
    return LABELS[int(text.lower().lstrip("t").split("x")[0]) % len(LABELS)]


class NightShift(Project):
    """A project whose runs are nights."""

    def __init__(self, root, monkeypatch):
        super().__init__(root)
        self._patch(monkeypatch)
        (root / "corpus" / "a.jsonl").unlink()
        (root / "llm").mkdir()
        byte_tokenizer().save_pretrained(root / "llm")
        (root / "llm" / "config.json").write_text('{"model_type": "gpt2"}')
        write_jsonl(root / "queries.jsonl", [{"id": "q0", "text": "t0x0", "topic": LABELS[0]}])
        labels = {"labels": LABELS, "instruction": "What is it about?"}
        self.config |= {
            "tasks": {"topic": labels},
            "encoders": {"words": {"model": str(tiny_bert(root / "bert")), "pooling": "mean"}},
            "engines": {"none": {"model": str(root / "llm"), "max_model_len": 512}},
            "stage1": {"k1": 8, "lambda": 0.001, "lambda_scale": "mean"},
            "annotate": {"nightly": True, "expire_nights": 4},
        }
        self.config["corpus"]["columns"] = {"id": "id", "input": "text"}
        self.rows = []

    @staticmethod
    def _patch(monkeypatch):
        monkeypatch.setattr(units, "run_units", inline_units)
        monkeypatch.setattr(embed, "Encoder", WordVectors)

    def arrive(self, texts, *, night, **columns):
        """New rows, in a file of their own; gives their ids."""
        rows = [
            {"id": f"n{night:02d}-{i}", "text": text, **columns} for i, text in enumerate(texts)
        ]
        write_jsonl(self.root / "corpus" / f"{night:04d}.jsonl", rows)
        self.rows += rows
        return [row["id"] for row in rows]

    def run_code(self, verb, *options):
        """Exit code of `dualdiv VERB CONFIG`."""
        with InlineRay():
            return main([verb, self.path, *options])

    def night(self, verb="annotate"):
        """Run a night that ends well; returns what the manifest says."""
        assert self.run_code(verb) == 0
        return self.manifest

    def export(self):
        """The file that annotators are given tonight, as a list of rows."""
        path = self.root / "out.csv"
        assert main(["export", str(self.out), "--to", str(path)]) == 0
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))

    def bring_back(self, name, rows):
        """`dualdiv import` of a file with these rows of an export."""
        path = self.root / "back" / f"{name}.csv"
        path.parent.mkdir(exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        assert main(["import", str(self.out), str(path)]) == 0
        return path

    @property
    def ledger(self):
        return Ledger(str(self.out))

    def batches(self):
        """Each night's candidates, as dicts in the order of picking."""
        found = batches_of(self.ledger)
        return [self.ledger.read(batch.marker).to_pylist() for batch in found]

    def pool(self, marker=None):
        """Records of a pool version, the last one by default."""
        fields = Marker.__dataclass_fields__
        entry = {k: v for k, v in (marker or self.manifest["pool"]).items() if k in fields}
        return self.ledger.read(Marker(**entry)).to_pylist()

    def vectors(self):
        """Vectors of the whole corpus, by id."""
        parts = self.manifest["embeddings"]["words"]["corpus"]["parts"]
        tables = [self.ledger.read(Marker(**part), ["id", "vector"]) for part in parts]
        table = pa.concat_tables(tables)
        return dict(zip(table["id"].to_pylist(), to_matrix(table["vector"]), strict=True))


class Annotators:
    """Who answer most candidates the next night, and some late, wrongly, twice or never."""

    def __init__(self, seed, *, latest):
        self._seed, self._latest, self._due = seed, latest, {}

    def take(self, rows, night):
        """Get tonight's export and decide when each row is answered, and how.

        Of ten rows one is never answered, however often it is sent.
        """
        for row in rows:
            rng = random.Random(f"{self._seed} {row['id']}")
            fate, right = rng.random(), {**row, "label": right_label(row["input"])}
            if fate < 0.10:
                continue
            late = night + rng.randint(2, self._latest) if fate < 0.35 else night + 1
            if 0.35 <= fate < 0.45:
                self._due.setdefault(night + 1, []).append({**row, "label": "pancake"})
                late = night + 2
            self._due.setdefault(late, []).append(right)
            if fate > 0.90:
                self._due.setdefault(late + 1, []).append(right)

    def back(self, night):
        """Rows that come back before this night's run."""
        return self._due.pop(night, [])
