"""Exceptions, by whose fault an error is."""

from __future__ import annotations

import json
from typing import Any


class FarhaulError(Exception):
    """An error of Farhaul. Its text says what, where and what to do; docs/reference/errors.md lists the codes."""

    #: The stable code, such as `FH-NO-SPACE`.
    code: str
    #: Whose fault it is: `user`, `peer`, `network`, `host` or `us`.
    blame: str
    #: What to do, if there is something.
    hint: str | None
    #: The exit code of the command in this case.
    exit_code: int
    #: True if it will pass: the same call can work later although nobody has changed anything.
    is_retryable: bool
    #: The report of what was done until then, if a transfer had begun.
    report: dict[str, Any] | None

    def __init__(self, text: str, *, code: str = "FH-BUG", blame: str = "us", hint: str | None = None, exit_code: int = 9,
                 is_retryable: bool = False, report: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.code, self.blame, self.hint, self.exit_code = code, blame, hint, exit_code
        self.is_retryable, self.report = is_retryable, report
        if hint:
            self.add_note(f"hint: {hint}")

    def __reduce__(self) -> tuple[Any, ...]:
        values = (self.code, self.blame, self.hint, self.exit_code, self.is_retryable, self.report)
        return _made, (type(self), str(self), *values)


class UserError(FarhaulError):
    """The call, its options, the files that it names, or the keys: whoever calls can mend it."""


class PeerError(FarhaulError):
    """The program at the other end, or the orders of the person who runs it."""


class NetworkError(FarhaulError):
    """The network between the two ends."""


class HostError(FarhaulError):
    """A resource of a host: disk, memory, descriptors, ports."""


class InternalError(FarhaulError):
    """A fault of Farhaul itself."""


_CLASSES = {"user": UserError, "peer": PeerError, "network": NetworkError, "host": HostError, "us": InternalError}


def of(text: str, detail: str, report: str | None = None) -> FarhaulError:
    """The exception for an error of the extension, whose details are JSON."""
    said = json.loads(detail)
    return _CLASSES.get(said["blame"], FarhaulError)(
        text, code=said["code"], blame=said["blame"], hint=said["hint"], exit_code=said["exit_code"],
        is_retryable=said["retryable"], report=json.loads(report) if report else None,
    )


def _made(kind: type[FarhaulError], text: str, code: str, blame: str, hint: str | None, exit_code: int, is_retryable: bool,
          report: dict[str, Any] | None) -> FarhaulError:
    return kind(text, code=code, blame=blame, hint=hint, exit_code=exit_code, is_retryable=is_retryable, report=report)


def bad_option(text: str) -> UserError:
    """An option that makes no sense."""
    return UserError(text, code="FH-BAD-OPTION", blame="user", exit_code=2)
