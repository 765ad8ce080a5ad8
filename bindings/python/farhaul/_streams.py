"""A program's own data: blocks that are claimed, filled where they lie, and put."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import TracebackType
from typing import Any, TYPE_CHECKING

from . import _documents, _native
from ._documents import Connection, Place
from ._errors import UserError

if TYPE_CHECKING:
    from ._documents import Memory

#: The most bytes of content that a block holds.
BLOCK_LEN_MAX = _native.BLOCK_LEN_MAX
#: The most bytes of metadata of a block.
METADATA_MAX = _native.METADATA_MAX
_FOR_EVER = 1e9


class ClaimedBlock:
    """Memory of a stream, to be filled in place and put. `data` is a writable memoryview of `BLOCK_LEN_MAX` bytes;
    `numpy.frombuffer(block.data, dtype)` is an array over the same memory. Once the block is put, `data` is released. A block
    that an array still looks into cannot be put: that is a `BufferError`, and the block stays as it is.
    """

    def __init__(self, native: _native.ClaimedBlock, sender: Sender) -> None:
        self._native, self._sender = native, sender
        self._data: memoryview | None = None

    @property
    def data(self) -> memoryview:
        """The block's memory."""
        if self._data is None:
            self._data = memoryview(self._native)
        return self._data

    def _let_go(self) -> None:
        if self._data is not None:
            self._data.release()
            self._data = None

    def release(self) -> None:
        """Gives the block back without sending it."""
        self._let_go()
        self._native.release()


class ReceivedBlock:
    """A block that has arrived, read in place: `data` is a memoryview, and `numpy.frombuffer(block.data, dtype)` an array over
    the same memory. Releasing the block tells the sender that it has been processed.
    """

    def __init__(self, native: _native.ReceivedBlock) -> None:
        self._native = native
        self._data: memoryview | None = None

    @property
    def data(self) -> memoryview:
        """The block's content."""
        if self._data is None:
            self._data = memoryview(self._native)
        return self._data

    @property
    def number(self) -> int:
        """How many blocks were put before it."""
        return self._native.number

    @property
    def metadata(self) -> bytes:
        """What the sender has put with it."""
        return self._native.metadata

    def __len__(self) -> int:
        return len(self._native)

    def release(self) -> None:
        """Confirms the block to the sender. A `BufferError` if an array still looks into it."""
        if self._data is not None:
            self._data.release()
            self._data = None
        self._native.release()


class Stream:
    """What both ends of a stream have."""

    def __init__(self, native: Any) -> None:
        self._inner: Any = native

    @property
    def name(self) -> str:
        """The stream's name."""
        return str(self._inner.name)

    @property
    def peer(self) -> str:
        """The other end's host or address, for display."""
        return str(self._inner.peer)

    @property
    def peer_key(self) -> str | None:
        """The fingerprint of the other end's key; `None` over ssh and within a process."""
        key: str | None = self._inner.peer_key
        return key

    def send_message(self, message: bytes) -> None:
        """Sends a message of at most 60 KiB to the other program. Messages arrive in their order, but not in step with blocks."""
        self._inner.send_message(message)

    def message(self, timeout: float | None = None) -> bytes | None:
        """The next message of the other program; `None` if none comes in time."""
        message: bytes | None = self._inner.message(_FOR_EVER if timeout is None else timeout)
        return message

    def set_rate(self, rate: str | int | None, *, policy: str = "fair", minimum: str | int | None = None) -> None:
        """Changes the sender's ceiling, policy and floor; either end may do so."""
        self._inner.set_rate(policy, _documents.rate_bps(rate), _documents.rate_bps(minimum))

    def use_path(self, path: int, is_used: bool) -> None:
        """Takes a path out of the running stream, or puts it back in."""
        self._inner.use_path(path, is_used)

    def snapshot(self) -> dict[str, Any]:
        """Live counters: bytes that the other end has, round trip, loss."""
        return dict(json.loads(self._inner.snapshot()))

    def cancel(self) -> None:
        """Ends the stream; waits of other threads end with an error."""
        self._inner.cancel()

    def close(self) -> None:
        """Breaks the stream off, unless it was finished. The other end is told."""
        self._inner.close()


class Sender(Stream):
    """The sending end of a stream. Any number of threads may use it. Leaving a `with` block finishes it, or breaks it off after
    an exception.
    """

    def __init__(self, native: _native.Sender) -> None:
        super().__init__(native)
        self._inner: _native.Sender

    def claim(self) -> ClaimedBlock:
        """Waits for a free block, to be filled in place."""
        return ClaimedBlock(self._inner.claim(), self)

    def try_claim(self) -> ClaimedBlock | None:
        """A block, if one is free now."""
        block = self._inner.try_claim()
        return None if block is None else ClaimedBlock(block, self)

    def put(self, block: ClaimedBlock, length: int = BLOCK_LEN_MAX, metadata: Memory = b"") -> int:
        """Sends the first `length` bytes of a block, with metadata. Waits while there is enough to send. Returns the block's
        number, counted from 0.
        """
        if block._sender is not self:
            raise UserError("this block belongs to another stream", code="FH-MISUSE", blame="user", exit_code=2)
        block._let_go()
        return self._inner.put(block._native, length, bytes(_documents.bytes_of(metadata)))

    def wait(self) -> None:
        """Waits until the receiving program has let go of all blocks that were put before."""
        self._inner.wait()

    def finish(self) -> dict[str, Any]:
        """Ends the stream: waits until the receiving program has let go of all blocks and has finished, and returns the figures
        of both ends.
        """
        return dict(json.loads(self._inner.finish()))

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.finish()
        self.close()


class Receiver(Stream):
    """The receiving end of a stream. Any number of threads may use it. A `for` loop gives its blocks, and releases each when the
    loop goes on, unless an array still looks into it; then that happens when the array is gone.
    """

    def __init__(self, native: _native.Receiver) -> None:
        super().__init__(native)
        self._inner: _native.Receiver

    def next(self) -> ReceivedBlock | None:
        """Waits for the next block; `None` if the sender has finished and there are no more."""
        block = self._inner.next()
        return None if block is None else ReceivedBlock(block)

    def __iter__(self) -> Iterator[ReceivedBlock]:
        while (block := self.next()) is not None:
            try:
                yield block
            finally:
                try:
                    block.release()
                except BufferError:
                    pass
                del block

    def finish(self) -> dict[str, Any]:
        """Says that this program is done, and returns the figures of both ends. All blocks must have been taken and released."""
        return dict(json.loads(self._inner.finish()))

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.finish()
        self.close()


def _stream(target: str, name: str, in_order: bool, digests: bool, how: Connection | None, network: dict[str, Any]) -> str:
    if "rate" in network:
        network["rate_bps"] = _documents.rate_bps(network.pop("rate"))
    return json.dumps({
        "target": target, "name": name, "in_order": in_order, "digests": digests, "network": network,
        "connection": _documents.connection(how),
    })


def connect_to_send(target: str, name: str, *, in_order: bool = False, digests: bool = False, connection: Connection | None = None,
                    **network: Any) -> Sender:
    """Begins a stream on which this program sends. The target is `fh://host[:port]` for a program that listens, `[user@]host`
    for one that ssh starts. Further keywords are options of the network: `rate`, `policy`, `flows`, `cipher`, `memory_bytes`.
    """
    return Sender(_native.connect_to_send(_stream(target, name, in_order, digests, connection, network)))


def connect_to_receive(target: str, name: str, *, in_order: bool = False, digests: bool = False,
                       connection: Connection | None = None, **network: Any) -> Receiver:
    """Begins a stream on which this program receives; see `connect_to_send`."""
    return Receiver(_native.connect_to_receive(_stream(target, name, in_order, digests, connection, network)))


def pair(name: str = "pair", *, in_order: bool = False, digests: bool = False, **network: Any) -> tuple[Sender, Receiver]:
    """A stream with both ends in this process."""
    sender, receiver = _native.pair(_stream("", name, in_order, digests, None, network))
    return Sender(sender), Receiver(receiver)


def accept_stdio() -> Sender | Receiver:
    """The stream of the client that started this program over ssh. It uses standard input and output; from here on, what the
    program prints to standard output goes to standard error.
    """
    return _end(_native.accept_stdio())


def _end(native: _native.Sender | _native.Receiver) -> Sender | Receiver:
    return Sender(native) if isinstance(native, _native.Sender) else Receiver(native)


class Listener:
    """Waits for streams on one port number, UDP and TCP. Closing it ends all its streams."""

    def __init__(self, listen: str | list[str] | None = None, *, identity: Place | None = None, authorized_keys: Place | None = None,
                 names: list[str] | None = None, allow_cipher_none: bool = False, memory_max: int | None = None) -> None:
        """Listens on addresses with ports, by default on all at port 33001; port 0 lets the system choose. `identity` is the file of this program's key,
        `authorized_keys` the file of the keys that are let in; by default the user's. `names` are the streams that clients may
        ask for.
        """
        document = {
            "listen": [listen] if isinstance(listen, str) else listen or [],
            "identity": None if identity is None else _documents.written(identity),
            "authorized_keys": None if authorized_keys is None else _documents.written(authorized_keys),
            "names": names or [], "allow_cipher_none": allow_cipher_none, "memory_max": memory_max,
        }
        self._inner: _native.Listener | None = _native.listen(json.dumps(document))

    @property
    def _open(self) -> _native.Listener:
        if self._inner is None:
            raise ValueError("this listener was closed")
        return self._inner

    @property
    def addresses(self) -> list[str]:
        """The addresses that it listens on."""
        return self._open.addresses

    @property
    def fingerprint(self) -> str:
        """The fingerprint of this program's key, for `connection={"fingerprint": ...}` of the other end."""
        return self._open.fingerprint

    def accept(self, timeout: float | None = None) -> Sender | Receiver | None:
        """Waits for the next stream that a client begins; `None` if none comes in time. Which end this is, the client chooses."""
        end = self._open.accept(_FOR_EVER if timeout is None else timeout)
        return None if end is None else _end(end)

    def close(self) -> None:
        """Listens no more."""
        self._inner = None

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
