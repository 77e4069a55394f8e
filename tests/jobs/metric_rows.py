"""Rows of the metric tables with the fields that a test does not care about filled in."""


def summary_row(arm, task, engine, stage1, accuracy, macro_f1):
    """A summary row of 100 queries with intervals of .05 to each side."""
    row = {"task": task, "encoder": "minilm", "engine": engine, "arm": arm, "stage1": stage1}
    row |= {"n_scored": 100, "score": None, "metric": None}
    for name, value, majority in (("accuracy", accuracy, 0.1), ("macro_f1", macro_f1, 0.05)):
        row |= {name: value, f"majority_{name}": majority}
        row |= {
            f"{name}_{part}": None if value is None else value + step
            for part, step in (("low", -0.05), ("high", 0.05))
        }
    return row


def paired_row(arm, against, task, engine):
    """A paired test that finds no difference."""
    row = {"task": task, "encoder": "minilm", "engine": engine, "arm_a": arm, "arm_b": against}
    row |= {"encoder_b": "minilm", "engine_b": engine}
    row |= {"metric": "accuracy", "mean_difference": 0.0, "p": 1.0, "p_holm": 1.0}
    return row | {"below_floor": None}
