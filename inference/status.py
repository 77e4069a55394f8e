"""The closed set of states a row can be in after a stage."""

from enum import StrEnum


class Status(StrEnum):
    """One per row and stage; `truncated` is a flag beside it, never a status."""

    OK = "ok"
    EMPTY = "empty"
    NOT_FINITE = "not_finite"
    TOO_LONG = "too_long"
    TOO_LARGE = "too_large"
    UNLABELLED = "unlabelled"
    EMPTY_OUTPUT = "empty_output"
    ENGINE_CRASH = "engine_crash"
    PARSE_ERROR = "parse_error"
    TIMEOUT = "timeout"
    SQL_ERROR = "sql_error"
    REJECTED = "rejected"
