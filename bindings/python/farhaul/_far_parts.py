"""Parts of far files, for fsspec: which bytes a call means, which ranges are read together, and which files stay open."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ._errors import FarhaulError, UserError
from ._reads import RemoteFile
from .aio import in_thread

#: How long a file stays open after its last use, and how many files do.
_KEPT_SECONDS, _KEPT_MAX = 60.0, 128
#: Parts that one call of the extension reads.
_AT_ONCE = 1024
#: Exceptions that programs look for.
_KINDS: dict[str, tuple[type[OSError], int]] = {
    "FH-NOT-FOUND": (FileNotFoundError, errno.ENOENT),
    "FH-SOURCE-VANISHED": (FileNotFoundError, errno.ENOENT),
    "FH-FORBIDDEN": (PermissionError, errno.EACCES),
    "FH-PERMISSION-DENIED": (PermissionError, errno.EACCES),
    "FH-NOT-A-DIRECTORY": (NotADirectoryError, errno.ENOTDIR),
    "FH-ALREADY-EXISTS": (FileExistsError, errno.EEXIST),
    "FH-SOURCE-CHANGED": (OSError, errno.ESTALE),
}


def as_file_error(error: FarhaulError, path: str) -> Exception:
    """The exception that Python has for an error of a file, if it has one."""
    if error.code not in _KINDS:
        return error
    kind, number = _KINDS[error.code]
    return kind(number, str(error), path)


@contextlib.contextmanager
def unlike_file_error(path: str) -> Iterator[None]:
    """Errors about files are raised as Python's own; their cause is the error of the package."""
    try:
        yield
    except FarhaulError as error:
        raised = as_file_error(error, path)
        if raised is error:
            raise
        raise raised from error


def check_whole(part: bytes, length: int) -> None:
    """Fails if a file has less than when it was opened."""
    if len(part) != length:
        raise UserError("it has less than when it was opened", code="FH-SOURCE-CHANGED", blame="user", exit_code=6)


def resolved(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """Offset and length of a range as Python's slices have it: what is negative counts from the end, and nothing lies beyond
    the end.
    """
    first, last, _ = slice(start, end).indices(size)
    return first, max(0, last - first)


def merged(ranges: Sequence[tuple[int, int]], gap: int) -> list[tuple[int, int, list[int]]]:
    """Ranges that touch, overlap, or lie at most `gap` bytes apart, as one, with the numbers of those in it."""
    joined: list[tuple[int, int, list[int]]] = []
    for number in sorted(range(len(ranges)), key=lambda number: ranges[number]):
        offset, length = ranges[number]
        if joined and offset <= joined[-1][0] + joined[-1][1] + gap:
            at, wide, members = joined[-1]
            joined[-1] = (at, max(wide, offset + length - at), [*members, number]) if len(members) < 16 else joined[-1]
            if len(members) < 16:
                continue
        joined.append((offset, length, [number]))
    return joined


class KeptFiles:
    """Files that stay open between calls, as one version, so that a reader who comes back soon gets bytes of that version."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._files: collections.OrderedDict[str, tuple[RemoteFile, float]] = collections.OrderedDict()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # A child that was forked has the parent's files, and cannot use them.
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            now = time.monotonic()
            while self._files:
                path, (_, used) = next(iter(self._files.items()))
                if now - used < _KEPT_SECONDS and len(self._files) <= _KEPT_MAX:
                    break
                del self._files[path]
            yield

    def __contains__(self, path: str) -> bool:
        with self._locked():
            return path in self._files

    @contextlib.contextmanager
    def lent(self, path: str, opened: Callable[[], RemoteFile]) -> Iterator[RemoteFile]:
        """The open file. An error lets go of it, so that the next call opens it again."""
        with self._locked():
            kept = self._files.get(path)
        file = kept[0] if kept else opened()
        with self._locked():
            self._files[path] = (file, time.monotonic())
            self._files.move_to_end(path)
        try:
            yield file
        except BaseException:
            with self._locked():
                if self._files.get(path, (None,))[0] is file:
                    del self._files[path]
            raise

    def notice(self, path: str, version: tuple[int, int, int, int]) -> None:
        """Somebody has seen the version that is there now."""
        with self._locked():
            kept = self._files.get(path)
            if kept and kept[0].version != version:
                del self._files[path]

    def drop(self, path: str) -> None:
        """The file is being changed."""
        with self._locked():
            self._files.pop(path, None)

    def drop_below(self, path: str) -> None:
        """The same for everything below a directory."""
        with self._locked():
            for name in [name for name in self._files if path == "/" or name == path or name.startswith(f"{path}/")]:
                del self._files[name]


class PartsBatch:
    """Parts of many files that coroutines ask for at the same time are read by one call, and cost one round trip together."""

    def __init__(self, read: Callable[[Sequence[tuple[bytes, int, int]]], list[bytes | BaseException]]) -> None:
        self._read = read
        self._waiting: dict[Any, list[tuple[tuple[bytes, int, int], str, asyncio.Future[bytes]]]] = {}

    async def read(self, path: str, offset: int, length: int) -> bytes:
        """A part of a file as it is when its turn comes; fewer bytes if the file ends within it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        waiting = self._waiting.setdefault(loop, [])
        waiting.append(((os.fsencode(path), offset, length), path, future))
        if len(waiting) == 1:
            loop.call_soon(self._send, loop)
        return await future

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._waiting.pop(loop, [])
        for begin in range(0, len(waiting), _AT_ONCE):
            task = loop.create_task(self._answer(waiting[begin:begin + _AT_ONCE]))
            # The futures are what others wait for.
            task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _answer(self, asked: list[tuple[tuple[bytes, int, int], str, asyncio.Future[bytes]]]) -> None:
        try:
            answers: Sequence[bytes | BaseException] = await in_thread(self._read, [part for part, _, _ in asked])
        except BaseException as error:
            answers = [error] * len(asked)
        for (_, path, future), answer in zip(asked, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(as_file_error(answer, path) if isinstance(answer, FarhaulError) else answer)
            else:
                future.set_result(answer)
