"""Files where they are: lists, attributes, parts of contents, and names that change."""

from __future__ import annotations

import builtins
import json
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, TYPE_CHECKING

from . import _documents, _native
from ._documents import Connection, Place
from ._errors import FarhaulError, UserError

if TYPE_CHECKING:
    from ._documents import Memory

#: Entries of a list that cross into Python at once.
_AT_ONCE = 256


class Entry(NamedTuple):
    """Something in a directory, or at a path that was asked for."""

    #: The path, as it was asked for, or below the listed directory. Bytes that are not UTF-8 are as `os.fsdecode` makes them.
    path: str
    #: `file`, `directory`, `symlink`, `fifo`, `socket`, `char-device` or `block-device`.
    kind: str
    #: The size of the content in bytes.
    size: int
    #: When the content was last changed, in nanoseconds since 1970.
    mtime_ns: int
    #: The permission bits, 07777.
    mode: int
    #: The number of hard links.
    links: int
    #: Where a symbolic link leads.
    target: str | None
    #: The number of the inode.
    inode: int
    #: The number of the file system on that host.
    device: int
    #: When anything about it was last changed, in nanoseconds since 1970.
    ctime_ns: int


def _entry(said: tuple[Any, ...]) -> Entry:
    path, kind, size, mtime, mode, links, target, inode, device, ctime = said
    link = os.fsdecode(target) if target else None
    return Entry(os.fsdecode(path), kind, size, mtime, mode, links, link, inode, device, ctime)


class Remote:
    """A host, or a place on it. All files of one `Remote` share one session, and any number of threads may use it. Changes of
    names share another one, which begins with the first change. A session that was lost is begun again by the next call. Paths
    begin at its place, unless they begin with a slash.
    """

    def __init__(self, place: Place, *, connection: Connection | None = None, **network: Any) -> None:
        """Connects. Further keywords are options of the network, such as `cipher` and `memory_bytes`."""
        self._begin(place, connection, network)
        _ = self._open

    def _begin(self, place: Place, connection: Connection | None, network: dict[str, Any]) -> None:
        document = {"location": _documents.written(place), "network": network, "connection": _documents.connection(connection)}
        self._document = json.dumps(document)
        self._native: _native.Remote | None = None
        self._names: _native.Names | None = None
        self._is_closed = False

    @classmethod
    def _unconnected(cls, place: Place, connection: Connection | None, network: dict[str, Any] | None = None) -> Remote:
        """One that connects when it is asked for something."""
        remote = cls.__new__(cls)
        remote._begin(place, connection, network or {})
        return remote

    def _check_open(self) -> None:
        if self._is_closed:
            raise UserError("this place was closed", code="FH-MISUSE", blame="user", exit_code=2)

    # Of two threads that connect at once one wins, and the session of the other one ends. A lock would stay locked in a child
    # that is forked meanwhile.

    @property
    def _open(self) -> _native.Remote:
        self._check_open()
        if (native := self._native) is None:
            native = self._native = _native.connect(self._document)
        return native

    @property
    def _changing(self) -> _native.Names:
        self._check_open()
        if (names := self._names) is None or names.is_over:
            names = self._names = _native.connect_names(self._document)
        return names

    def stat(self, path: str | bytes = "", *, follow: bool = True) -> Entry:
        """The attributes of a path; of a symbolic link itself without `follow`."""
        return _entry(self._open.stat(os.fsencode(path), follow))

    def list(self, path: str | bytes = "", *, depth: int | None = 1) -> Iterator[Entry]:
        """The entries of a directory as they come, and those below it down to `depth` levels (`None`: all). An entry that
        cannot be looked at is an exception.
        """
        listing = self._open.list(os.fsencode(path), 0 if depth is None else max(1, depth))
        while items := listing.take(_AT_ONCE):
            for item in items:
                if len(item) == 3:
                    failed, code, reason = item
                    raise FarhaulError(f"{os.fsdecode(failed)}: {reason}", code=code, blame="host", exit_code=6)
                # The directory itself is the first item; one on which something is mounted is said again.
                if len(item) > 3 and item[0]:
                    yield _entry(item)

    def _below(self, path: bytes, depth: int | None) -> Iterator[tuple[str, Entry]]:
        """A path itself, whose name is empty, and what is below it, without what cannot be looked at."""
        listing = self._open.list(path, 0 if depth is None else max(1, depth))
        while items := listing.take(_AT_ONCE):
            for item in items:
                if len(item) > 3:
                    entry = _entry(item)
                    yield entry.path, entry

    def _stats(self, paths: builtins.list[bytes]) -> builtins.list[Entry | None]:
        """What many paths lead to; `None` where nothing is."""
        return [None if isinstance(said, BaseException) else _entry(said) for said in self._open.stats(paths, True)]

    def find(self, pattern: str | bytes) -> builtins.list[str]:
        """The paths that match a pattern, as `farhaul cp` understands it."""
        return [os.fsdecode(path) for path in self._open.find(os.fsencode(pattern))]

    def open(self, path: str | bytes = "") -> RemoteFile:
        """Opens a file for reading."""
        return RemoteFile(self, self._open.file(os.fsencode(path)))

    def _again_if_lost(self, change: Callable[[_native.Names], None]) -> None:
        """Makes a change that may be made twice. That a session was lost shows only when something is asked of it."""
        names = self._changing
        try:
            change(names)
        except FarhaulError:
            if not names.is_over:
                raise
            change(self._changing)

    def mkdir(self, path: str | bytes, *, parents: bool = False) -> None:
        """Makes a directory. With `parents` those above it are made, too, and it may be there already."""
        if parents:
            self._again_if_lost(lambda names: names.make_directory(os.fsencode(path), True))
        else:
            self._changing.make_directory(os.fsencode(path), False)

    def rename(self, source: str | bytes, destination: str | bytes, *, replace: bool = True) -> None:
        """Gives a file, a directory or a link another name. A file that has the new name is replaced, an empty directory by a
        directory; without `replace` that is an error.
        """
        self._changing.rename(os.fsencode(source), os.fsencode(destination), replace)

    def remove(self, path: str | bytes, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """Removes a file, or a link itself; with `recursive` also a directory and everything in it. With `missing_ok` it need
        not be there.
        """
        extent = "tree" if recursive else "file"
        if not missing_ok:
            return self._changing.remove(os.fsencode(path), extent)
        try:
            self._again_if_lost(lambda names: names.remove(os.fsencode(path), extent))
        except FarhaulError as error:
            if error.code != "FH-NOT-FOUND":
                raise

    def rmdir(self, path: str | bytes) -> None:
        """Removes an empty directory."""
        self._changing.remove(os.fsencode(path), "empty-directory")

    def close(self) -> None:
        """Ends the sessions; that of files once these are closed, too."""
        self._native, self._names, self._is_closed = None, None, True

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class RemoteFile:
    """An open file. Reads return the content of the moment at which it was opened; if it has changed since, they fail with
    `FH-SOURCE-CHANGED`. It is also a binary file object that can be read and sought in. Threads may share `read_at`,
    `readinto_at` and `read_ranges`.
    """

    def __init__(self, remote: Remote, native: _native.RemoteFile) -> None:
        # The session stays as long as the file.
        self._remote: Remote | None = remote
        self._native: _native.RemoteFile | None = native
        self._at = 0

    @property
    def _open(self) -> _native.RemoteFile:
        if self._native is None:
            raise ValueError("I/O operation on closed file")
        return self._native

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self._open.size

    @property
    def version(self) -> tuple[int, int, int, int]:
        """What tells this version of the file from others: size, time of the content and of any change in nanoseconds, inode."""
        return self._open.version

    def read_at(self, offset: int, length: int) -> bytes:
        """The bytes of a range; fewer if the file ends within it."""
        return self._open.read_at(_natural(offset, "offset"), _natural(length, "length"))

    def readinto_at(self, offset: int, buffer: Memory) -> int:
        """Reads into memory of the caller, such as a NumPy array; returns how many bytes there were."""
        return self._open.readinto(_natural(offset, "offset"), _documents.bytes_of(buffer))

    def read_ranges(self, ranges: Sequence[tuple[int, int]], into: Sequence[Memory] | None = None) -> builtins.list[bytes] | builtins.list[int]:
        """Reads many ranges, each an offset and a length, in one go. Returns their bytes in the order of the ranges. With
        `into` each range is read into its buffer, which has the range's length, and the numbers of bytes are returned.
        """
        wanted = [(_natural(offset, "offset"), _natural(length, "length")) for offset, length in ranges]
        if into is None:
            return self._open.read_ranges(wanted)
        views = [_documents.bytes_of(buffer) for buffer in into]
        if [len(view) for view in views] != [length for _, length in wanted]:
            raise ValueError("each range needs a buffer of its length")
        return self._open.read_ranges_into([(offset, view) for (offset, _), view in zip(wanted, views, strict=True)])

    def digest(self, algorithm: str = "sha256") -> bytes:
        """The digest of the whole file, computed at the far end: `sha256`, `blake3`, `md5` or `xxh3`."""
        return self._open.digest(algorithm)

    def read(self, length: int | None = -1) -> bytes:
        """Reads from the present place on; everything that is left by default."""
        left = max(0, self.size - self._at)
        read = self.read_at(self._at, left if length is None or length < 0 else min(length, left))
        self._at += len(read)
        return read

    def readinto(self, buffer: Memory) -> int:
        """Reads from the present place on into a buffer."""
        count = self.readinto_at(self._at, buffer)
        self._at += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves the present place."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError("a place before the beginning")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """The present place."""
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    @property
    def closed(self) -> bool:
        """True once it was closed."""
        return self._native is None

    def close(self) -> None:
        """Closes the file."""
        self._native = self._remote = None

    def __enter__(self) -> RemoteFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _natural(number: int, what: str) -> int:
    if number < 0:
        raise ValueError(f"{what} must not be negative")
    return number


#: The sessions of this process, by host and by how it is reached. A session stays as long as somebody uses it.
_sessions: weakref.WeakValueDictionary[str, Remote] = weakref.WeakValueDictionary()
_sessions_of = os.getpid()
_lock = threading.Lock()


def _place(place: Place) -> tuple[str, str, bytes]:
    """The kind of a place, its host, and the path there, which does not depend on the directory of this process."""
    kind, host, path = _native.parse(_documents.written(place))
    return kind, host, path if kind in ("ssh", "daemon") else os.path.abspath(path)


def _remote(place: Place, connection: Connection | None, *, changes: bool = False,
            network: dict[str, Any] | None = None) -> tuple[Remote, bytes]:
    """The host of a place, by a session that may be shared, and the path there."""
    global _sessions_of, _lock
    kind, host, path = _place(place)
    if os.getpid() != _sessions_of:
        _sessions_of, _lock = os.getpid(), threading.Lock()
        _sessions.clear()
    if kind not in ("ssh", "daemon"):
        return Remote._unconnected(place if kind == "pipe" else "/", connection), path
    key = json.dumps([host, _documents.connection(connection), network or {}], sort_keys=True)
    with _lock:
        remote = _sessions.get(key)
        if remote is None or remote._is_closed:
            at = f"{host}/" if kind == "daemon" else host.replace("ssh://", "scp://") + "/"
            remote = _sessions[key] = Remote._unconnected(at, connection, network)
        # Whoever else wants this host waits for the session and shares it.
        _ = remote._changing if changes else remote._open
    return remote, path


def open(place: Place, *, connection: Connection | None = None) -> RemoteFile:
    """Opens a file where it is, for reading: `fh://host/path`, `host:path` over SSH, or a path of this host. Files of one
    host share a session.
    """
    remote, path = _remote(place, connection)
    return remote.open(path)


def stat(place: Place, *, follow: bool = True, connection: Connection | None = None) -> Entry:
    """The attributes of a file, a directory or a link."""
    remote, path = _remote(place, connection)
    return remote.stat(path, follow=follow)


def list(place: Place, *, depth: int | None = 1, connection: Connection | None = None) -> Iterator[Entry]:
    """The entries of a directory as they come, and those below it down to `depth` levels (`None`: all)."""
    remote, path = _remote(place, connection)
    return remote.list(path, depth=depth)


def find(place: Place, *, connection: Connection | None = None) -> Iterable[str]:
    """The paths on that host that match the pattern in a location, such as `fh://host/run7/*.h5`."""
    remote, path = _remote(place, connection)
    return remote.find(path)


def mkdir(place: Place, *, parents: bool = False, connection: Connection | None = None) -> None:
    """Makes a directory. With `parents` those above it are made, too, and it may be there already."""
    remote, path = _remote(place, connection, changes=True)
    remote.mkdir(path, parents=parents)


def rename(source: Place, destination: Place, *, replace: bool = True, connection: Connection | None = None) -> None:
    """Gives a file, a directory or a link another name on the same host; nothing is copied. A file that has the new name is
    replaced, an empty directory by a directory; without `replace` that is an error.
    """
    if _place(source)[:2] != _place(destination)[:2]:
        what = "a rename stays on one host, and the locations are on several"
        raise UserError(what, code="FH-BAD-LOCATION", blame="user", hint="copy, then remove", exit_code=2)
    remote, path = _remote(source, connection, changes=True)
    remote.rename(path, _place(destination)[2], replace=replace)


def remove(place: Place, *, recursive: bool = False, missing_ok: bool = False, connection: Connection | None = None) -> None:
    """Removes a file, or a link itself; with `recursive` also a directory and everything in it. With `missing_ok` it need not be
    there.
    """
    remote, path = _remote(place, connection, changes=True)
    remote.remove(path, recursive=recursive, missing_ok=missing_ok)


def rmdir(place: Place, *, connection: Connection | None = None) -> None:
    """Removes an empty directory."""
    remote, path = _remote(place, connection, changes=True)
    remote.rmdir(path)
