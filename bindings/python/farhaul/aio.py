"""The same calls as coroutines. Each waits in a thread of its own, so that the event loop goes on. A coroutine that is cancelled
cancels its transfer.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, ParamSpec, TYPE_CHECKING, TypeVar, Unpack

from . import _reads, _transfers
from ._documents import Connection, Place
from ._options import CopyOptions, SyncOptionsOfCall
from ._progress import Progress
from ._reads import Entry
from ._transfers import Events, Report

if TYPE_CHECKING:
    from ._documents import Memory

__all__ = ["copy", "sync", "verify", "start_copy", "start_sync", "Job", "open", "stat", "list", "mkdir", "rename", "remove", "rmdir",
           "RemoteFile", "in_thread"]

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Waits for a call of `farhaul` in a thread of its own, such as `await in_thread(receiver.next)`."""
    loop, future = asyncio.get_running_loop(), concurrent.futures.Future[T]()

    def run() -> None:
        try:
            future.set_result(call(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)

    future.set_running_or_notify_cancel()
    threading.Thread(target=run, name="farhaul", daemon=True).start()
    return await asyncio.wrap_future(future, loop=loop)


class Job:
    """A transfer that runs. What does not wait is as for `farhaul.Job`."""

    def __init__(self, job: _transfers.Job) -> None:
        self._job = job

    @property
    def id(self) -> str:
        """The id of the transfer."""
        return self._job.id

    def snapshot(self) -> dict[str, Any]:
        """The state at this moment."""
        return self._job.snapshot()

    def events(self, level: _transfers.Level = "trace") -> Events:
        """What happens from now on, for `async for`."""
        return self._job.events(level)

    def set_rate(self, rate: str | int | None, *, policy: str = "fair", minimum: str | int | None = None) -> None:
        """Changes the ceiling, the policy and the floor."""
        self._job.set_rate(rate, policy=policy, minimum=minimum)

    def set_policy(self, policy: str, rate: str | int | None = None) -> None:
        """Changes the policy."""
        self._job.set_policy(policy, rate)

    def pause(self) -> None:
        """Halts the job."""
        self._job.pause()

    def resume(self) -> None:
        """Lets a paused job go on."""
        self._job.resume()

    def cancel(self) -> None:
        """Ends the job."""
        self._job.cancel()

    async def wait(self, *, progress: Progress = False) -> Report:
        """Waits for the end and returns the report. If the waiting coroutine is cancelled, so is the job."""
        try:
            return await in_thread(functools.partial(self._job.wait, progress=progress))
        except asyncio.CancelledError:
            self._job.cancel()
            raise


async def start_copy(*places: Place, connection: Connection | None = None, manifest: Place | None = None,
                     receipt: Place | None = None, **options: Unpack[CopyOptions]) -> Job:
    """Starts a copy, as `farhaul.start_copy`."""
    job = _transfers.start_copy(*places, connection=connection, manifest=manifest, receipt=receipt, **options)
    return Job(job)


async def copy(*places: Place, progress: Progress = False, connection: Connection | None = None, manifest: Place | None = None,
               receipt: Place | None = None, **options: Unpack[CopyOptions]) -> Report:
    """Copies files and trees, as `farhaul.copy`."""
    job = await start_copy(*places, connection=connection, manifest=manifest, receipt=receipt, **options)
    return await job.wait(progress=progress)


async def start_sync(source: Place, destination: Place, *, connection: Connection | None = None, manifest: Place | None = None,
                     receipt: Place | None = None, **options: Unpack[SyncOptionsOfCall]) -> Job:
    """Starts a sync, as `farhaul.start_sync`."""
    job = _transfers.start_sync(source, destination, connection=connection, manifest=manifest, receipt=receipt, **options)
    return Job(job)


async def sync(source: Place, destination: Place, *, progress: Progress = False, connection: Connection | None = None,
               manifest: Place | None = None, receipt: Place | None = None, **options: Unpack[SyncOptionsOfCall]) -> Report:
    """Makes the destination like the contents of the source, as `farhaul.sync`."""
    job = await start_sync(source, destination, connection=connection, manifest=manifest, receipt=receipt, **options)
    return await job.wait(progress=progress)


async def verify(list: Place, directory: Place = ".", *, algorithm: str = "sha256", extra: bool = False, metadata: bool = False,
                 quick: bool = False, modify_window: int = 0) -> Report:
    """Compares a directory with a manifest, as `farhaul.verify`."""
    job = _transfers.start_verify(list, directory, algorithm=algorithm, extra=extra, metadata=metadata, quick=quick,
                                  modify_window=modify_window)
    return await Job(job).wait()


class RemoteFile:
    """An open file; its calls are as for `farhaul.RemoteFile`."""

    def __init__(self, file: _reads.RemoteFile) -> None:
        self._file = file

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self._file.size

    async def read_at(self, offset: int, length: int) -> bytes:
        """The bytes of a range."""
        return await in_thread(self._file.read_at, offset, length)

    async def readinto_at(self, offset: int, buffer: Memory) -> int:
        """Reads into memory of the caller. A coroutine that is cancelled leaves the memory in use until the read has ended."""
        return await in_thread(self._file.readinto_at, offset, buffer)

    async def read_ranges(self, ranges: Sequence[tuple[int, int]], into: Sequence[Memory] | None = None) -> Any:
        """Reads many ranges in one go."""
        return await in_thread(self._file.read_ranges, ranges, into)

    async def digest(self, algorithm: str = "sha256") -> bytes:
        """The digest of the whole file, computed at the far end."""
        return await in_thread(self._file.digest, algorithm)

    async def close(self) -> None:
        """Closes the file."""
        await in_thread(self._file.close)

    async def __aenter__(self) -> RemoteFile:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


async def open(place: Place, *, connection: Connection | None = None) -> RemoteFile:
    """Opens a file where it is, as `farhaul.open`: `async with await farhaul.aio.open(...) as f`."""
    return RemoteFile(await in_thread(functools.partial(_reads.open, place, connection=connection)))


async def stat(place: Place, *, follow: bool = True, connection: Connection | None = None) -> Entry:
    """The attributes of a file, a directory or a link."""
    return await in_thread(functools.partial(_reads.stat, place, follow=follow, connection=connection))


async def list(place: Place, *, depth: int | None = 1, connection: Connection | None = None) -> AsyncIterator[Entry]:
    """The entries of a directory, for `async for`."""
    entries: Iterator[Entry] = await in_thread(functools.partial(_reads.list, place, depth=depth, connection=connection))
    while (entry := await in_thread(next, entries, None)) is not None:
        yield entry


async def mkdir(place: Place, *, parents: bool = False, connection: Connection | None = None) -> None:
    """Makes a directory, as `farhaul.mkdir`."""
    await in_thread(functools.partial(_reads.mkdir, place, parents=parents, connection=connection))


async def rename(source: Place, destination: Place, *, replace: bool = True, connection: Connection | None = None) -> None:
    """Gives a file, a directory or a link another name, as `farhaul.rename`."""
    await in_thread(functools.partial(_reads.rename, source, destination, replace=replace, connection=connection))


async def remove(place: Place, *, recursive: bool = False, missing_ok: bool = False, connection: Connection | None = None) -> None:
    """Removes a file, or a directory with everything in it, as `farhaul.remove`."""
    await in_thread(functools.partial(_reads.remove, place, recursive=recursive, missing_ok=missing_ok, connection=connection))


async def rmdir(place: Place, *, connection: Connection | None = None) -> None:
    """Removes an empty directory, as `farhaul.rmdir`."""
    await in_thread(functools.partial(_reads.rmdir, place, connection=connection))
