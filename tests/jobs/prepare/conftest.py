"""Where the real originals are, for the tests that need them."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real():
    """A function from a name in the data folder to its path."""
    folder = os.environ.get("DUALDIV_DATA_DIR")
    if not folder:
        pytest.skip("DUALDIV_DATA_DIR is not set: the folder with the original distributions")

    def path(name):
        found = Path(folder, name)
        if not found.exists():
            pytest.skip(f"{found} is not there")
        return found

    return path
