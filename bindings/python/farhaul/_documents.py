"""What the extension is told: JSON documents, whose texts name files as reports do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, cast

from . import _native
from ._errors import bad_option
from ._options import PLACES

class Array(Protocol):
    """An array of NumPy, and of what works as it does."""

    @property
    def __array_interface__(self) -> Any: ...


#: Memory of a program: bytes, a bytearray, a memoryview, an array.
if TYPE_CHECKING:
    from typing_extensions import Buffer

    Memory = Buffer | Array

#: A path of this host, or a location as on the command line: `host:path`, `fh://host/path`.
Place = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class Connection(TypedDict, total=False):
    """How to get to a far host. What is left out is as for `farhaul cp`, but nobody is asked on a terminal unless `prompts`
    is true.
    """

    #: The port of a location that names none.
    port: int
    #: Files with private keys: SSH keys, or with `fh://` one key of `farhaul keygen`.
    identity: list[Place] | Place
    #: The configuration file of ssh.
    ssh_config: Place
    #: Jump hosts of ssh, separated by commas.
    jump: str
    #: Options of ssh, as in `ssh_config`.
    ssh_options: list[str]
    #: The program that runs instead of `ssh`.
    ssh_program: Place
    #: The program at the far end of ssh.
    remote_program: str
    #: True to send this program to a far end that has none.
    bring: bool
    #: How long the far end of ssh may take to answer: `5m`.
    answer_wait: str
    #: The fingerprint that the daemon's key must have: `SHA256:...`.
    fingerprint: str
    #: True to trust a daemon that was never seen before.
    accept_new: bool
    #: The file with the keys of known daemons.
    known_hosts: Place
    #: How long to keep trying while the daemon is busy: `30s`.
    busy_wait: str
    #: True to ask on the terminal for what only its user knows, as ssh does.
    prompts: bool


_FILES = ("ssh_config", "ssh_program", "known_hosts")


def written(place: Place) -> str:
    """A path or a location as a document has it: a byte that is not UTF-8 is `\\xff`, a backslash is doubled."""
    text = os.fspath(place)
    raw = text if isinstance(text, bytes) else os.fsencode(text)
    decoded = raw.replace(b"\\", b"\\\\").decode("utf-8", "surrogateescape")
    return "".join(f"\\x{ord(c) - 0xDC00:02x}" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in decoded)


def connection(given: Connection | None) -> dict[str, Any]:
    """The part of a document that says how to connect."""
    said: dict[str, Any] = dict(given or {})
    for name in _FILES:
        if name in said:
            said[name] = written(said[name])
    if "identity" in said:
        files = said["identity"]
        said["identity"] = [written(file) for file in (files if isinstance(files, list) else [files])]
    return said


def rate_bps(rate: str | int | None) -> int | None:
    """Bits per second, given as a number or as a text such as `2G`."""
    if rate is None or isinstance(rate, int):
        return rate
    bps = _native.rate(rate)
    if bps is None:
        raise bad_option(f"'{rate}' is not a rate: write bits per second, such as 300M or 2G")
    return bps


def options(given: Mapping[str, Any], *, is_sync: bool) -> dict[str, Any]:
    """The options of a document, from keywords."""
    said: dict[str, Any] = {}
    rules = [f"+ {pattern}" for pattern in _list(given, "include")] + [f"- {pattern}" for pattern in _list(given, "exclude")]
    for name, given_value in given.items():
        value: Any = given_value
        if name in ("include", "exclude"):
            continue
        if name == "rate":
            name, value = "rate_bps", rate_bps(value)
        if name == "verify" and value == "end-to-end":
            value = "digest"
        place = PLACES.get(name)
        if place is None or (place.startswith("sync.") and not is_sync):
            raise bad_option(f"there is no option '{name}' of a {'sync' if is_sync else 'copy'}")
        if name == "delete":
            value = {} if value is True else None if value is False else value
        if name in ("names", "require", "rules"):
            value = None if value is None else [written(text) if name != "rules" else text for text in value]
        if name == "spread":
            value = [[written(text) for text in part] for part in value]
        if name == "rules":
            rules = [*value, *rules]
            continue
        into, *rest = said, *place.split(".")
        for part in rest[:-1]:
            into = into.setdefault(part, {})
        into[rest[-1]] = value
    if rules:
        said.setdefault("select", {})["rules"] = rules
    return said


def _list(given: Mapping[str, Any], name: str) -> Iterable[str]:
    value = given.get(name, ())
    if isinstance(value, str):
        raise bad_option(f"{name} is a list of patterns")
    return [str(pattern) for pattern in value]


def bytes_of(memory: Memory) -> memoryview:
    """Memory as plain bytes, which are not copied."""
    view: memoryview = memoryview(cast("Any", memory))
    return view.cast("B")
