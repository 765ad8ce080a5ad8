"""Far files as the file objects of fsspec."""
# The base classes leave out what their methods return.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import collections
import os
import shutil
import tempfile
import threading
import warnings
from concurrent.futures import Future
from typing import Any, BinaryIO

from fsspec.asyn import AbstractAsyncStreamedFile, get_loop, sync
from fsspec.caching import BaseCache, register_cache
from fsspec.spec import AbstractBufferedFile

from ._far_parts import check_whole, unlike_file_error
from ._reads import RemoteFile
from .aio import in_thread

#: Blocks that stay in memory.
_BLOCKS_MAX = 64
#: A read of this many bytes or more, at a place to which somebody has jumped, is fetched as it is asked for.
_LARGE = 64 << 10
#: How many blocks are fetched ahead of somebody who reads on, at most.
_AHEAD_MAX = 32


class FarCache(BaseCache):
    """Blocks of a far file. A small read anywhere costs a block, a larger one its own bytes. Whoever reads on has blocks fetched
    ahead, half as much as was read without a jump, by a thread of its own, so that the path is never idle.
    """

    name = "farhaul"

    def __init__(self, blocksize: int, fetcher: Any, size: int) -> None:
        super().__init__(blocksize, fetcher, size)
        self._blocks: collections.OrderedDict[int, bytes] = collections.OrderedDict()
        self._next, self._run, self._ahead = 0, 0, 0
        #: First block, the block behind the last, and the bytes to come.
        self._coming: tuple[int, int, Future[bytes]] | None = None

    def _fetch(self, start: int | None, stop: int | None) -> bytes:
        first, last = start or 0, self.size if stop is None else min(stop, self.size)
        if first >= last:
            return b""
        goes_on = 0 <= first - self._next < self.blocksize
        self._run = self._run + last - first if goes_on and first > 0 else 0
        self._next = last
        low, high = first // self.blocksize, -(-last // self.blocksize)
        self._ahead = min(_AHEAD_MAX, self._run // self.blocksize // 2)
        missing = [number for number in range(low, high) if number not in self._blocks]
        if missing and self._coming and self._coming[0] <= missing[0] < self._coming[1]:
            self._take_coming()
            missing = [number for number in missing if number not in self._blocks]
        is_as_asked = last - first >= _LARGE and not goes_on or high - low > _AHEAD_MAX
        if is_as_asked and len(missing) == high - low:
            self.miss_count += 1
            self.total_requested_bytes += last - first
            return bytes(self.fetcher(first, last))
        self.miss_count += bool(missing)
        self.hit_count += not missing
        if missing:
            self._put(missing[0], self._read(missing[0], missing[-1] + 1))
        out = b"".join(self._blocks[number] for number in range(low, high))
        for number in range(low, high):
            self._blocks.move_to_end(number)
        if self._ahead:
            self._fetch_ahead(high)
        while len(self._blocks) > max(_BLOCKS_MAX, high - low):
            self._blocks.popitem(last=False)
        begin = low * self.blocksize
        return out[first - begin:last - begin]

    def _read(self, low: int, high: int) -> bytes:
        until = min(high * self.blocksize, self.size)
        self.total_requested_bytes += until - low * self.blocksize
        return bytes(self.fetcher(low * self.blocksize, until))

    def _put(self, low: int, content: bytes) -> None:
        for number, at in enumerate(range(0, len(content), self.blocksize), low):
            self._blocks[number] = content[at:at + self.blocksize]

    def _take_coming(self) -> None:
        if self._coming:
            low, _, future = self._coming
            self._coming = None
            self._put(low, future.result())

    def _fetch_ahead(self, low: int) -> None:
        end = -(-self.size // self.blocksize)
        if self._coming:
            if self._coming[0] < low + self._ahead and self._coming[1] > low:
                return
            self._coming = None
        while low < end and low in self._blocks:
            low += 1
        high = min(low + self._ahead, end)
        if low >= high:
            return
        future: Future[bytes] = Future()

        def run() -> None:
            try:
                future.set_result(self._read(low, high))
            except BaseException as error:
                future.set_exception(error)

        self._coming = (low, high, future)
        threading.Thread(target=run, name="farhaul-ahead", daemon=True).start()


register_cache(FarCache, clobber=True)


def _waited(fs: Any, call: Any, *arguments: Any) -> Any:
    """Waits for a coroutine of the file system. One that is for coroutines has no loop of its own."""
    return sync(fs.loop or get_loop(), call, *arguments)


class FarFile(AbstractBufferedFile):
    """A far file. It is read as it was when it was opened. What is written lies in a temporary file of this host, and is copied
    when the file is closed: the far name is there when all of it is. If a `with` block ends by an exception, nothing is copied.
    """

    DEFAULT_BLOCK_SIZE = 1 << 20

    def __init__(self, fs: Any, path: str, mode: str = "rb", block_size: Any = "default", autocommit: bool = True,
                 cache_type: str = "farhaul", cache_options: Any = None, size: Any = None, **options: Any) -> None:
        self._far: RemoteFile | None = None
        self._spool: BinaryIO | None = None
        self._folder: str | None = None
        if mode == "ab":
            raise NotImplementedError("a far file cannot be appended to: write it anew")
        if mode == "rb":
            far: RemoteFile = fs._opened(path)
            self._far, size = far, far.size
        elif mode == "xb" and _waited(fs, fs._exists, path):
            raise FileExistsError(17, "there is such a file already", path)
        elif _waited(fs, fs._isdir, path):
            raise IsADirectoryError(21, "it is a directory", path)
        super().__init__(fs, path, mode, block_size, autocommit=autocommit, cache_type=cache_type, cache_options=cache_options,
                         size=size, **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        far = self._far
        if far is None:
            raise ValueError("I/O operation on closed file")
        with unlike_file_error(self.path):
            part = far.read_at(start, end - start)
            check_whole(part, min(end, far.size) - start)
        return part

    def _initiate_upload(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="farhaul-")
        self._spool = open(os.path.join(self._folder, "content"), "wb")  # noqa: SIM115

    def _upload_chunk(self, final: bool = False) -> bool:
        if self._spool is None:
            raise ValueError("I/O operation on closed file")
        self._spool.write(self.buffer.getbuffer())
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        """Gives the far file its content and its name."""
        if self._spool is None or self._folder is None:
            return
        self._spool.close()
        mode = "create" if self.mode == "xb" else "overwrite"
        try:
            _waited(self.fs, self.fs._write_from, os.path.join(self._folder, "content"), self.path, mode)
        finally:
            self.discard()

    def discard(self) -> None:
        """Forgets what was written."""
        spool, folder, self._spool, self._folder = self._spool, self._folder, None, None
        if spool is not None:
            spool.close()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Closes the file; what was written gets its name now."""
        try:
            super().close()
        finally:
            self._far = None
            if self.autocommit:
                self.discard()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None and self.mode != "rb":
            self.closed = True
            self.discard()
        self.close()

    def __del__(self) -> None:
        if not self.closed and self.mode != "rb":
            warnings.warn(f"{self.path} was not closed, so it was not written", ResourceWarning, stacklevel=2)
            self.closed = True
            self.discard()


class StreamedFile(AbstractAsyncStreamedFile):
    """A far file that coroutines read."""

    def __init__(self, fs: Any, path: str, file: RemoteFile) -> None:
        self._far = file
        super().__init__(fs, path, "rb", cache_type="none", size=file.size)

    async def _fetch_range(self, start: int, end: int) -> bytes:
        def read() -> bytes:
            with unlike_file_error(self.path):
                return self._far.read_at(start, end - start)

        return await in_thread(read)

    def seek(self, loc: int, whence: int = 0) -> int:
        """Moves the present place."""
        return int(super().seek(loc, whence))

    def __del__(self) -> None:
        """Nothing waits for a coroutine here."""
