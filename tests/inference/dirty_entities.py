"""Rows with entities as users have them: overlapping, repeated, without offsets, out of range."""

import json
import random

TYPES = ("METAL", "TOOL")
WORDS = ["iron", "copper", "axe", "saw", "old", "the", "of", "river", "smith", "band", "steel"]


def rows(n, *, seed=0):
    """n rows of invented words with right entities: overlapping, nested, repeated words."""
    rng = random.Random(seed)
    made = []
    for i in range(n):
        words = rng.choices(WORDS, k=12)
        text = " ".join(words)
        starts = [sum(len(word) + 1 for word in words[:at]) for at in range(len(words) + 1)]
        entities = []
        for _ in range(rng.randint(0, 5)):
            first = rng.randrange(len(words))
            last = min(len(words), first + rng.randint(1, 3))
            start, end = starts[first], starts[last] - 1
            one = {"text": text[start:end], "type": rng.choice(TYPES), "start": start, "end": end}
            entities.append(one)
        made.append({"id": f"r{i}", "input": text, "output": json.dumps(entities)})
    return made


def broken(text="the old axe"):
    """Outputs that are no entities of the text, each with a part of the reason."""
    end = len(text)
    one = {"text": "axe", "type": "TOOL", "start": end - 3, "end": end}
    return [
        (
            json.dumps([one | {"end": end + 2}]),
            f"{end - 3} to {end + 2}, out of the text, which has {end}",
        ),
        (json.dumps([one, one | {"start": -3, "end": 0}]), "entity 2"),
        (json.dumps([one | {"start": 8, "end": 8}]), "8 to 8, out of the text"),
        (json.dumps([one | {"start": 0, "end": 3}]), "where the text of 11 characters has 'the'"),
        (json.dumps([one | {"start": "8"}]), "offsets '8' to 11; wanted two integers"),
        (json.dumps([one | {"start": 8.0}]), "offsets 8.0 to 11"),
        (json.dumps([{"text": "saw", "type": "TOOL"}]), "'saw' (TOOL) has no offsets and does not"),
        (json.dumps([{"text": "axe"}]), "no object with a type"),
        (json.dumps({"text": "axe"}), "no JSON list of entities but dict"),
        ('[{"text": "axe", ', "no JSON list of entities: "),
        ("axe | TOOL", "no JSON list of entities: "),
    ]
