"""What can go wrong with the Kubernetes API: children of the one error tree (``flock.errors``).

::

    TryAgain
    ├── ApiUnreachable          no connection, no answer in time, or a broken one
    │   ├── ApiUnavailable      an answer, and it says that the server can't serve now (5xx)
    │   └── ApiTooLarge         an answer that is longer than the client will keep
    ├── ApiThrottled            429, or 5xx with Retry-After: wait ``retry_after`` seconds
    ├── ApiGone                 410: the resource version or the page is no longer known
    └── ApiConflict             409: somebody else was first, or it exists already
    IOFailure
    └── ApiRefused              any other 4xx: the same request again gives the same answer
        ├── ApiForbidden        401 or 403: who asks is unknown or may not
        └── ApiNotFound         404

``code`` of these classes is the CNI code; the HTTP status is ``status``, the API's own word for it ``reason``.
"""

from flock.errors import IOFailure, TryAgain


class ApiUnreachable(TryAgain):
    """Nothing is known of whether the request was served."""


class ApiUnavailable(ApiUnreachable):
    """The server answered that it can't."""

    def __init__(self, msg: str, details: str = "", *, status: int = 500) -> None:
        super().__init__(msg, details)
        self.status = status


class ApiTooLarge(ApiUnreachable):
    """Ask for less at once."""


class ApiThrottled(TryAgain):
    """The server wants to be left alone for ``retry_after`` seconds."""

    def __init__(self, msg: str, details: str = "", *, retry_after: float = 1.0) -> None:
        super().__init__(msg, details)
        self.retry_after = retry_after


class ApiGone(TryAgain):
    """What was asked for lies before the server's memory: list again."""


class ApiConflict(TryAgain):
    """``reason`` is ``AlreadyExists`` where something was to be created, else ``Conflict``."""

    def __init__(self, msg: str, details: str = "", *, reason: str = "Conflict") -> None:
        super().__init__(msg, details)
        self.reason = reason


class ApiRefused(IOFailure):
    """The server understood and said no."""

    def __init__(self, msg: str, details: str = "", *, status: int = 400, reason: str = "") -> None:
        super().__init__(msg, details)
        self.status = status
        self.reason = reason


class ApiForbidden(ApiRefused):
    """No credentials, wrong ones, or RBAC says no."""


class ApiNotFound(ApiRefused):
    """No such object, or no such resource (a CRD that isn't installed)."""
