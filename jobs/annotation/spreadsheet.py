r"""Cells of a CSV file that a spreadsheet cannot take for a formula, and back.

A cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return is run as a formula by
spreadsheets, and corpora hold such texts. Such a cell gets an apostrophe in front. So that a text
comes back as it was, a cell that begins with an apostrophe already gets another one where it would
else look guarded.
"""

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def guarded(cell: str) -> str:
    """The cell as it is written: no spreadsheet runs it, and `restored` undoes it."""
    return f"'{cell}" if _needs_guard(cell) else cell


def restored(cell: str) -> str:
    """The cell as it was before `guarded`; what no guard stands before stays as it is."""
    return cell[1:] if cell.startswith("'") and _needs_guard(cell[1:]) else cell


def _needs_guard(cell: str) -> bool:
    """Whether a cell begins like a formula, behind any number of apostrophes."""
    return cell.lstrip("'").startswith(FORMULA)
