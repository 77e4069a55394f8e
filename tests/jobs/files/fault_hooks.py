"""Answers that a test gives in the store's place, through the hooks of botocore."""

from botocore.awsrequest import AWSResponse


class Refusals:
    """Answers requests itself while it has answers left, and counts all that come by.

    Attributes:
        seen: Method and path of every request, in order.
    """

    def __init__(self, s3, *, status=503, code="SlowDown", times=1, method=None):
        self.seen, self._left, self._method = [], times, method
        self._status, self._code = status, code
        s3.meta.events.register("before-send.s3", self)

    def __call__(self, request, **_):
        self.seen.append((request.method, request.url.split("?")[0].split("/", 3)[3]))
        if self._left <= 0 or self._method not in (None, request.method):
            return None
        self._left -= 1
        return self.answer(request, self._status, self._code)

    @staticmethod
    def answer(request, status, code):
        """What a store that refuses says."""
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        return AWSResponse(request.url, status, {}, _Raw(body))


class _Raw:
    def __init__(self, body):
        self._body = body

    def stream(self, *_, **__):
        yield self._body


def ignore_conditions(s3):
    """Let the store see no condition of a write."""

    def strip(request, **_):
        for name in ("If-None-Match", "If-Match"):
            del request.headers[name]

    s3.meta.events.register("before-sign.s3", strip)
