"""What every test shares: quiet, offline, one thread, and one embedded Ray for those that ask."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
# Ray lets its workers yield to everything else; a test waits for them.
os.environ.setdefault("RAY_worker_niceness", "0")
# Metrics are exported every ten seconds else, and a test reads them.
os.environ.setdefault("RAY_metrics_report_interval_ms", "1000")

import pytest
from hypothesis import settings

# The same examples on every machine; HYPOTHESIS_PROFILE=default draws new ones.
settings.register_profile("same", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture(scope="session")
def embedded_ray():
    """One Ray inside this process, shared by all tests that need one."""
    from jobs.cluster import connected
    from jobs.config.cluster import ClusterConfig

    with connected(ClusterConfig(cpus=2, object_store_mib=128)):
        yield


def pytest_collection_modifyitems(items):
    """Begin with the file that takes longest, which would else be what the others wait for."""
    items.sort(key=lambda item: item.path.name != "test_end_to_end.py")
