"""Copies, syncs and verifications."""

from __future__ import annotations

import atexit
import json
import time
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Literal, Unpack

from . import _documents, _native
from ._documents import Connection, Place
from ._errors import bad_option
from ._options import CopyOptions, SyncOptionsOfCall
from ._progress import Display, Progress

Level = Literal["notice", "detail", "trace"]

#: How long a wait is that has no end.
_FOR_EVER = 1e9
#: How often progress is shown.
_SHOW_EVERY = 0.2


class Report(Mapping[str, Any]):
    """The report of a transfer or a verification: the mapping that `--json` prints (docs/reference/report.md), with its most
    used fields as attributes.
    """

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    @property
    def ok(self) -> bool:
        """True if everything succeeded."""
        return bool(self._fields["ok"])

    @property
    def files(self) -> int:
        """Files that have arrived, or entries that were compared."""
        return int(self._fields.get("files", self._fields.get("entries", 0)))

    @property
    def bytes(self) -> int:
        """Bytes of content."""
        return int(self._fields["bytes"])

    @property
    def seconds(self) -> float:
        """How long it took."""
        return float(self._fields["seconds"])

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The first entries that have failed, with path, code and reason."""
        return list(self._fields.get("failed", ()))

    @property
    def findings(self) -> list[dict[str, Any]]:
        """What a verification has found: difference, path and reason."""
        return list(self._fields.get("findings", ()))

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"Report(ok={self.ok}, files={self.files}, bytes={self.bytes}, seconds={self.seconds:.3g})"


class Job:
    """A copy, a sync or a verification that runs. Whoever lets go of the last reference to it cancels it."""

    def __init__(self, native: _native.Job) -> None:
        self._native = native
        _running.add(self)

    @property
    def id(self) -> str:
        """The id of the transfer."""
        return self._native.id

    def snapshot(self) -> dict[str, Any]:
        """The state at this moment: `state`, `bytes_done`, `bytes_total`, `goodput_bps`, and more."""
        return dict(json.loads(self._native.snapshot()))

    def events(self, level: Level = "trace") -> Events:
        """What happens from now on, for `for` and `async for`. It ends with the job."""
        return Events(self._native.events(level), self)

    def set_rate(self, rate: str | int | None, *, policy: str = "fair", minimum: str | int | None = None) -> None:
        """Changes the ceiling (`"2G"`, or bits per second; `None`: none), the policy and the floor."""
        self._native.set_rate(policy, _documents.rate_bps(rate), _documents.rate_bps(minimum))

    def set_policy(self, policy: str, rate: str | int | None = None) -> None:
        """Changes the policy: `fixed`, `fair`, `high` or `low`. Only `fixed` needs a rate."""
        self._native.set_rate(policy, _documents.rate_bps(rate), None)

    def pause(self) -> None:
        """Halts the job. Nothing changes at either end once its state is `paused`."""
        self._native.pause()

    def resume(self) -> None:
        """Lets a paused job go on."""
        self._native.resume()

    def cancel(self) -> None:
        """Ends the job. The same call later goes on where it was."""
        self._native.cancel()

    def wait(self, timeout: float | None = None, *, progress: Progress = False) -> Report:
        """Waits for the end and returns the report. What has not succeeded is an exception, which has the report, too. Raises
        `TimeoutError` if the end does not come in time; the job goes on. Ctrl-C cancels the job.
        """
        display = Display(progress, "farhaul")
        until = time.monotonic() + (_FOR_EVER if timeout is None else timeout)
        try:
            while True:
                left = until - time.monotonic()
                ended = self._native.wait(min(left, _SHOW_EVERY) if display.wants else left)
                if display.wants:
                    display.show(self.snapshot())
                if ended is not None:
                    return Report(json.loads(ended))
                if time.monotonic() >= until:
                    raise TimeoutError("the job goes on")
        finally:
            display.end()


class Events:
    """What happens in a job, as dictionaries: `event` says what. The kinds are those of `--events`
    (docs/reference/events.md).
    """

    def __init__(self, native: _native.Events, job: Job) -> None:
        # Whoever reads the events of a job wants it to go on.
        self._native, self._job = native, job

    def next(self, timeout: float | None = None) -> dict[str, Any] | None:
        """The next event; `None` if none comes in time or the job is over."""
        said = self._native.next(_FOR_EVER if timeout is None else timeout)
        return None if said is None else dict(json.loads(said))

    @property
    def is_over(self) -> bool:
        """True if the job is over and all events were taken."""
        return self._native.is_over

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while not self._native.is_over:
            event = self.next()
            if event is not None:
                yield event

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        from .aio import in_thread

        while not self._native.is_over:
            event = await in_thread(self.next, 0.5)
            if event is not None:
                yield event


_running: weakref.WeakSet[Job] = weakref.WeakSet()


@atexit.register
def _cancel_all() -> None:
    """A program that ends lets its transfers end in order, so that the far ends hear of it."""
    jobs = list(_running)
    for job in jobs:
        try:
            job.cancel()
        except Exception:
            # A child that was forked has nothing to cancel.
            return
    until = time.monotonic() + 2
    for job in jobs:
        try:
            job._native.wait(max(0.0, until - time.monotonic()))
        except Exception:
            pass


def _transfer(kind: str, places: tuple[Place, ...], how: Connection | None, manifest: Place | None, receipt: Place | None,
              options: Mapping[str, Any]) -> Job:
    if len(places) < 2:
        raise bad_option("name a source and a destination")
    document = {
        "kind": kind,
        "sources": [_documents.written(place) for place in places[:-1]],
        "destination": _documents.written(places[-1]),
        "options": _documents.options(options, is_sync=kind == "sync"),
        "connection": _documents.connection(how),
        "manifest": None if manifest is None else _documents.written(manifest),
        "receipt": None if receipt is None else _documents.written(receipt),
    }
    return Job(_native.start_transfer(json.dumps(document)))


def start_copy(*places: Place, connection: Connection | None = None, manifest: Place | None = None,
               receipt: Place | None = None, **options: Unpack[CopyOptions]) -> Job:
    """Starts a copy; see `copy`."""
    return _transfer("copy", places, connection, manifest, receipt, options)


def copy(*places: Place, progress: Progress = False, connection: Connection | None = None, manifest: Place | None = None,
         receipt: Place | None = None, **options: Unpack[CopyOptions]) -> Report:
    """Copies files and trees, as `farhaul cp` does. The last place is the destination. Places are paths of this host,
    `[user@]host:path` over SSH, `fh://host[:port]/path` at a daemon. `manifest` and `receipt` name files that are written.
    `progress=True` shows a bar if tqdm is there, and otherwise a line at a terminal; a function gets a snapshot five times
    a second.
    """
    return start_copy(*places, connection=connection, manifest=manifest, receipt=receipt, **options).wait(progress=progress)


def start_sync(source: Place, destination: Place, *, connection: Connection | None = None, manifest: Place | None = None,
               receipt: Place | None = None, **options: Unpack[SyncOptionsOfCall]) -> Job:
    """Starts a sync; see `sync`."""
    return _transfer("sync", (source, destination), connection, manifest, receipt, options)


def sync(source: Place, destination: Place, *, progress: Progress = False, connection: Connection | None = None,
         manifest: Place | None = None, receipt: Place | None = None, **options: Unpack[SyncOptionsOfCall]) -> Report:
    """Makes the destination like the contents of the source directory, as `farhaul sync` does. Nothing is deleted without
    `delete=True`.
    """
    job = start_sync(source, destination, connection=connection, manifest=manifest, receipt=receipt, **options)
    return job.wait(progress=progress)


def start_verify(list: Place, directory: Place = ".", *, algorithm: str = "sha256", extra: bool = False, metadata: bool = False,
                 quick: bool = False, modify_window: int = 0) -> Job:
    """Starts a verification; see `verify`."""
    document = {
        "list": _documents.written(list), "directory": _documents.written(directory), "algorithm": algorithm, "extra": extra,
        "metadata": metadata, "quick": quick, "modify_window_secs": modify_window,
    }
    return Job(_native.start_verify(json.dumps(document)))


def verify(list: Place, directory: Place = ".", *, algorithm: str = "sha256", extra: bool = False, metadata: bool = False,
           quick: bool = False, modify_window: int = 0, progress: Progress = False) -> Report:
    """Compares a directory of this host with a manifest, or with a list as `sha256sum` writes one, as `farhaul verify` does.
    A difference is an exception, whose `report["findings"]` says what differs.
    """
    job = start_verify(list, directory, algorithm=algorithm, extra=extra, metadata=metadata, quick=quick, modify_window=modify_window)
    return job.wait(progress=progress)
