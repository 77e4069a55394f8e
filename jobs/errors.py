"""Error classes by who must act, and the exit code of each."""

INTERRUPTED = 130


class DualdivError(Exception):
    """A failure the user can understand and act on; its text is the whole message."""

    exit_code = 70


class ConfigError(DualdivError):
    """The config (or a path or model it names) must change; raised before any work."""

    exit_code = 2


class ModelOutOfReach(ConfigError):
    """A hub model of which there is no copy here, while the hub gives no answer."""


class DataError(DualdivError):
    """An input or intermediate file must change; names the file and, where known, the row."""

    exit_code = 3


class NothingToChoose(DataError):
    """Stage 1 was left with no row that it may choose."""


class ClusterError(DualdivError):
    """The machine must change: no disk left, no such node, another live run on this output."""

    exit_code = 4


class InvariantError(DualdivError):
    """A promise of this program was broken: a bug to report."""

    exit_code = 70


_KINDS = (ConfigError, ModelOutOfReach, DataError, NothingToChoose, ClusterError, InvariantError)
ERRORS = {kind.__name__: kind for kind in _KINDS}
