"""`fh://` and `fh+ssh://` for fsspec, and so for pandas, xarray, zarr, dask, h5py, pyarrow and uproot.

fsspec finds these classes by the entry points of the package. It is needed here and nowhere else in the package.

- All file systems of one process that lead to one host share a session, and so do threads and event loops. A session that was
  lost is begun again.
- What is read through an open file is of one version. So is what `cat_ranges` and parts of `cat_file` read, as long as one of
  them follows another one within a minute: the file stays open for them. If it changes meanwhile, a read is an error, and the
  next one reads the new version.
- What is written goes to a temporary name, and gets its name when it is there as a whole and its digest is right.
"""
# The base classes leave out what their methods return.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import asyncio
import datetime
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fsspec.asyn import AsyncFileSystem, sync
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.utils import stringify_path, tokenize

from . import _documents, _reads, _transfers
from ._errors import FarhaulError
from ._far_file import FarFile, StreamedFile
from ._far_parts import KeptFiles, PartsBatch, check_whole, merged, resolved, unlike_file_error
from ._options import PLACES
from ._reads import Entry, Remote
from .aio import in_thread

__all__ = ["FarhaulFileSystem", "FarhaulSshFileSystem"]

#: A length that goes beyond the end of any file.
_ALL = (1 << 63) - 1
#: A file that is longer is fetched by a copy, which has its digest checked and goes on where it stopped.
_READ_WHOLE_MAX = 32 << 20
#: Options of a connection may be given as options of the storage.
_CONNECTION = frozenset(_documents.Connection.__annotations__)


class FarhaulFileSystem(AsyncFileSystem):
    """The files of a daemon: `fh://host[:port]/path`."""

    protocol: Any = "fh"
    root_marker = "/"
    #: What comes before the host in a location.
    _scheme = "fh://"

    def __init__(self, host: str, user: str | None = None, port: int | None = None, *, connection: Mapping[str, Any] | None = None,
                 auto_mkdir: bool = True, asynchronous: bool = False, loop: Any = None, batch_size: int | None = None,
                 **options: Any) -> None:
        """Options of the connection, such as `identity`, `accept_new`, `fingerprint` or `ssh_config`, are keywords, or stand in
        `connection` (`farhaul.Connection`); so are options of the network, such as `cipher`. With `auto_mkdir`, the default, directories
        that are missing above a written file are made.
        """
        how = {name: options.pop(name) for name in list(options) if name in _CONNECTION}
        #: Options of the network, as copies and sessions take them.
        self._network = {name: options.pop(name) for name in list(options) if PLACES.get(name, "").startswith("network.")}
        super().__init__(asynchronous=asynchronous, loop=loop, batch_size=batch_size, **options)
        self.host, self.user, self.port, self.auto_mkdir = host, user, port, auto_mkdir
        self._connection: Any = {**(connection or {}), **how} or None
        name = f"[{host}]" if ":" in host else host
        #: User, host and port, as in a location.
        self._authority = (f"{user}@" if user else "") + name + (f":{port}" if port else "")
        self._held: tuple[int, Remote] | None = None
        self._kept = KeptFiles()
        self._batch = PartsBatch(self._parts_now)

    # ---- names and places -------------------------------------------------------------------------------------------

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = stringify_path(path)
        for protocol in (cls.protocol,) if isinstance(cls.protocol, str) else cls.protocol:
            if text.startswith(f"{protocol}://"):
                _, slash, below = text[len(protocol) + 3:].partition("/")
                text = slash + below
                break
        return "/" + text.strip("/") if text.strip("/") else "/"

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        text = stringify_path(path)
        if "://" not in text:
            return {}
        authority = text.split("://", 1)[1].split("/", 1)[0]
        user, _, place = authority.rpartition("@")
        host, colon, port = place.rpartition(":")
        if not colon or not port.isdigit() or place.endswith("]"):
            host, port = place, ""
        found: dict[str, Any] = {"host": host.removeprefix("[").removesuffix("]")}
        if user:
            found["user"] = user
        if port:
            found["port"] = int(port)
        return found

    def unstrip_protocol(self, name: str) -> str:
        """The address of a path, with its host."""
        return f"{self.protocol}://{self._authority}{self._strip_protocol(name)}"

    def _location(self, path: str, *, is_source: bool = False) -> str:
        """A path as a location of a copy. Far sources may be patterns, so what is special in them is escaped."""
        plain = "".join(f"\\{c}" if is_source and c in "*?[\\" else c for c in path)
        return f"{self._scheme}{self._authority}{plain}"

    @property
    def _remote(self) -> Remote:
        """The session, which all file systems of this host share. It is another one after a fork."""
        held = self._held
        if held is None or held[0] != os.getpid():
            at = f"{self._scheme}{self._authority}/"
            held = self._held = (os.getpid(), _reads._remote(at, self._connection, network=self._network)[0])
        return held[1]

    def _parts_now(self, parts: Sequence[tuple[bytes, int, int]]) -> list[bytes | BaseException]:
        return self._remote._open.parts(list(parts))

    # ---- what is there ----------------------------------------------------------------------------------------------

    def _described(self, path: str, entry: Entry, followed: Entry | None = None) -> dict[str, Any]:
        shown = followed or entry
        kind = shown.kind if shown.kind in ("file", "directory") else "other"
        said = {
            "name": path, "size": 0 if kind == "directory" else shown.size, "type": kind, "mtime": shown.mtime_ns / 1e9, "mtime_ns": shown.mtime_ns,
            "mode": shown.mode, "nlink": shown.links, "ino": shown.inode, "islink": entry.kind == "symlink",
        }
        if entry.target is not None:
            said["destination"] = entry.target
        if kind == "file":
            self._kept.notice(path, (shown.size, shown.mtime_ns, shown.ctime_ns, shown.inode))
        return said

    def _info_now(self, path: str) -> dict[str, Any]:
        with unlike_file_error(path):
            entry = self._remote.stat(path, follow=False)
            followed = self._remote.stat(path) if entry.kind == "symlink" else None
        return self._described(path, entry, followed)

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        return await in_thread(self._info_now, self._strip_protocol(path))

    def _listed(self, path: str, depth: int | None) -> tuple[bool, dict[str, dict[str, Any]]]:
        """Whether a path is a directory, and what is in it, or itself."""
        raw = os.fsencode(path)
        found: list[tuple[str, Entry]] = []
        is_directory = True
        with unlike_file_error(path):
            try:
                for at, entry in self._remote._below(raw, depth):
                    if at:
                        found.append((f"{path.rstrip('/')}/{at}", entry))
                    else:
                        is_directory = entry.kind == "directory"
            except FarhaulError as error:
                if error.code != "FH-NOT-A-DIRECTORY":
                    raise
                is_directory = False
            if not is_directory:
                info = self._info_now(path)
                if info["type"] == "directory":
                    # A link to a directory.
                    return self._listed(f"{path}/.", depth)
                return False, {path: info}
            # Links count as what they lead to; those that lead nowhere stay links.
            links = [name for name, entry in found if entry.kind == "symlink"]
            led = dict(zip(links, self._remote._stats([os.fsencode(name) for name in links]), strict=True)) if links else {}
        path = path.removesuffix("/.")
        return True, {name.replace("/./", "/", 1): self._described(name.replace("/./", "/", 1), entry, led.get(name)) for name, entry in found}

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        found = (await in_thread(self._listed, self._strip_protocol(path), 1))[1]
        return list(found.values()) if detail else sorted(found)

    async def _find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, **options: Any) -> Any:
        """All files below a path, by one question."""
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        path = self._strip_protocol(path)
        out: dict[str, dict[str, Any]] = {}
        found: dict[str, dict[str, Any]] = {}
        is_directory = False
        try:
            is_directory, found = await in_thread(self._listed, path, maxdepth)
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            pass
        if is_directory and withdirs:
            out[path] = await self._info(path)
        out.update({name: info for name, info in found.items() if withdirs or info["type"] != "directory"})
        names = sorted(out)
        return {name: out[name] for name in names} if options.get("detail") else names

    def created(self, path: str) -> datetime.datetime:
        """No file system says when a file was made on all hosts."""
        raise NotImplementedError("the far host does not say when a file was made; see modified")

    def modified(self, path: str) -> datetime.datetime:
        """When the content of a file was last changed."""
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.timezone.utc)

    def ukey(self, path: str) -> str:
        """A text that changes when the file changes."""
        return str(tokenize(self.info(path)))

    # ---- reading ----------------------------------------------------------------------------------------------------

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        path = self._strip_protocol(path)
        if start in (None, 0) and end is None:
            return await self._batch.read(path, 0, _ALL)
        (part,) = await in_thread(self._ranges_of, path, [(start, end)], 0)
        return part

    def _ranges_of(self, path: str, wanted: Sequence[tuple[int | None, int | None]], gap: int) -> list[bytes]:
        """Ranges of one file, of one version."""
        with unlike_file_error(path), self._kept.lent(path, lambda: self._remote.open(path)) as file:
            ranges = [resolved(start, end, file.size) for start, end in wanted]
            joined = merged(ranges, gap)
            pieces = file._open.read_ranges([(at, length) for at, length, _ in joined])
            parts = [b""] * len(ranges)
            for (at, length, members), piece in zip(joined, pieces, strict=True):
                check_whole(piece, length)
                for number in members:
                    begin, wide = ranges[number]
                    parts[number] = piece[begin - at:begin - at + wide] if wide != length else piece
            return parts

    async def _cat_ranges(self, paths: list[str], starts: Any, ends: Any, max_gap: int | None = None, batch_size: int | None = None,
                          on_error: str = "return", **_: Any) -> list[Any]:
        if not isinstance(paths, list):
            raise TypeError("paths must be a list")
        starts = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError("each path needs a start and an end")
        files: dict[str, list[int]] = {}
        for number, path in enumerate(paths):
            files.setdefault(self._strip_protocol(path), []).append(number)
        out: list[Any] = [None] * len(paths)

        async def one(path: str, numbers: list[int]) -> None:
            try:
                first = starts[numbers[0]], ends[numbers[0]]
                if len(numbers) == 1 and path not in self._kept and all(bound is None or bound >= 0 for bound in first):
                    # Files of which one part each is wanted cost one round trip together.
                    at, until = first[0] or 0, _ALL if first[1] is None else first[1]
                    parts = [await self._batch.read(path, at, max(0, until - at))]
                else:
                    parts = await in_thread(self._ranges_of, path, [(starts[number], ends[number]) for number in numbers], max_gap or 0)
            except Exception as error:
                parts = [error] * len(numbers)  # type: ignore[list-item]
            for number, part in zip(numbers, parts, strict=True):
                out[number] = part

        await asyncio.gather(*(one(path, numbers) for path, numbers in files.items()))
        if on_error != "return" and (failed := next((part for part in out if isinstance(part, BaseException)), None)):
            raise failed
        return out

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, cache_options: Any = None,
              **options: Any) -> FarFile:
        return FarFile(self, self._strip_protocol(path), mode, block_size or "default", autocommit=autocommit, cache_options=cache_options, **options)

    async def open_async(self, path: str, mode: str = "rb", **options: Any) -> StreamedFile:
        """Opens a file for coroutines, for reading."""
        if mode != "rb" or options.get("compression"):
            raise ValueError("a file is opened for coroutines in the mode rb")
        path = self._strip_protocol(path)
        file = await in_thread(self._opened, path)
        return StreamedFile(self, path, file)

    def _opened(self, path: str) -> _reads.RemoteFile:
        with unlike_file_error(path):
            return self._remote.open(path)

    async def _get_file(self, rpath: str, lpath: str, callback: Any = DEFAULT_CALLBACK, **_: Any) -> None:
        path, place = self._strip_protocol(rpath), os.fspath(lpath)
        info = await self._info(path)
        if info["type"] == "directory":
            os.makedirs(place, exist_ok=True)
            return
        callback.set_size(info["size"])
        if above := os.path.dirname(place):
            os.makedirs(above, exist_ok=True)
        if info["size"] <= _READ_WHOLE_MAX:
            content = await self._batch.read(path, 0, _ALL)
            with open(place, "wb") as file:
                file.write(content)
        else:
            await self._copy_now(path, self._location(path, is_source=True), place)
        callback.relative_update(info["size"])

    async def _copy_now(self, path: str, source: str, destination: str, *, overwrite: Any = "always") -> Any:
        """A copy of one file, which gets its name at the end."""
        def run() -> Any:
            with unlike_file_error(path):
                return _transfers.copy(source, destination, connection=self._connection, overwrite=overwrite, no_perms=True, no_times=True,
                                       **self._network)

        return await in_thread(run)

    # ---- writing ----------------------------------------------------------------------------------------------------

    async def _write_from(self, lpath: str, path: str, mode: str = "overwrite") -> None:
        if mode == "create" and await self._exists(path):
            raise FileExistsError(17, "there is such a file already", path)
        # A copy to a name that a directory has would put the file into it.
        if await self._isdir(path):
            raise IsADirectoryError(21, "it is a directory", path)
        above = self._parent(path)
        if self.auto_mkdir and above not in ("/", "") and not await self._exists(above):
            await self._makedirs(above, exist_ok=True)
        self._kept.drop(path)
        await self._copy_now(path, lpath, self._location(path), overwrite="never" if mode == "create" else "always")
        self._kept.drop(path)

    async def _pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="farhaul-") as folder:
            place = os.path.join(folder, "content")
            with open(place, "wb") as file:
                file.write(value)
            await self._write_from(place, self._strip_protocol(path), mode)

    async def _put_file(self, lpath: str, rpath: str, mode: str = "overwrite", callback: Any = DEFAULT_CALLBACK, **_: Any) -> None:
        place, path = os.path.abspath(os.fspath(lpath)), self._strip_protocol(rpath)
        if os.path.isdir(place):
            return await self._makedirs(path, exist_ok=True)
        size = os.path.getsize(place)
        callback.set_size(size)
        await self._write_from(place, path, mode)
        callback.relative_update(size)

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copies a file on the far host. Its content passes through this host."""
        source, path = self._strip_protocol(path1), self._strip_protocol(path2)
        info = await self._info(source)
        if info["type"] == "directory":
            return await self._makedirs(path, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="farhaul-") as folder:
            place = os.path.join(folder, "content")
            await self._get_file(source, place)
            await self._write_from(place, path)

    async def _changed(self, path: str, call: Any, *arguments: Any, **options: Any) -> None:
        def change() -> None:
            with unlike_file_error(path):
                call(*arguments, **options)

        await in_thread(change)

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        if await self._exists(path):
            raise FileExistsError(17, "it is there already", path)
        await self._changed(path, self._remote.mkdir, path, parents=create_parents)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if path == "/":
            return
        if not exist_ok and await self._exists(path):
            raise FileExistsError(17, "there is such a directory already", path)
        await self._changed(path, self._remote.mkdir, path, parents=True)

    async def _rm_file(self, path: str, **_: Any) -> None:
        path = self._strip_protocol(path)
        self._kept.drop(path)
        await self._changed(path, self._remote.remove, path)

    async def _rmdir(self, path: str) -> None:
        path = self._strip_protocol(path)
        await self._changed(path, self._remote.rmdir, path)

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        sync(self.loop, self._rmdir, path)

    async def _rm(self, path: Any, recursive: bool = False, batch_size: int | None = None, maxdepth: int | None = None, **_: Any) -> None:
        for one in await self._expand_path(path, recursive=False):
            if not recursive or not await self._isdir(one):
                await self._rm_file(one)
            elif maxdepth is None:
                self._kept.drop_below(one)
                await self._changed(one, self._remote.remove, one, recursive=True)
            else:
                for name in reversed(await self._expand_path(one, recursive=True, maxdepth=maxdepth)):
                    await (self._rmdir(name) if await self._isdir(name) else self._rm_file(name))

    async def _mv_file(self, path1: str, path2: str) -> None:
        source, path = self._strip_protocol(path1), self._strip_protocol(path2)
        if await self._isdir(path) and not await self._isdir(source):
            path = f"{path.rstrip('/')}/{source.rsplit('/', 1)[-1]}"
        above = self._parent(path)
        if self.auto_mkdir and above not in ("/", "") and not await self._exists(above):
            await self._makedirs(above, exist_ok=True)
        for one in (source, path):
            self._kept.drop_below(one)
        await self._changed(source, self._remote.rename, source, path)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """Gives a file or a directory another name; nothing is copied. Patterns and lists are moved one by one."""
        is_one = isinstance(path1, str) and isinstance(path2, str) and maxdepth is None and not set(path1) & set("*?[")
        if is_one and self._strip_protocol(path1) == self._strip_protocol(path2):
            return
        if is_one:
            sync(self.loop, self._mv_file, path1, path2)
        else:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)

    def invalidate_cache(self, path: str | None = None) -> None:
        """Lets go of files that are open for parts of them to be read."""
        if path is None:
            self._kept.drop_below("/")
        else:
            self._kept.drop_below(self._strip_protocol(path))
        super().invalidate_cache(path)

    def __iter__(self) -> Iterator[str]:
        raise TypeError("a file system is no sequence; use ls or find")


class FarhaulSshFileSystem(FarhaulFileSystem):
    """The files of a host that `ssh` reaches: `fh+ssh://[user@]host[:port]/path`, by the user's own configuration of ssh."""

    protocol = "fh+ssh"
    _scheme = "ssh://"
