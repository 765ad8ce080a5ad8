"""Moves big data between machines at the speed of the link: files and trees, parts of files, and a program's own data.

`copy`, `sync` and `verify` do what the commands of `farhaul` do; `start_copy` and the like return a job that can be watched and
steered. `open`, `stat`, `list` and `find` look at files where they are; `mkdir`, `rename`, `remove` and `rmdir` change
their names. `connect_to_send`, `connect_to_receive` and `Listener` carry blocks of memory between programs. `farhaul.aio` has the
same as coroutines, `farhaul.Service` speaks with a service.
"""

from . import aio
from ._documents import Connection
from ._errors import FarhaulError, HostError, InternalError, NetworkError, PeerError, UserError
from ._native import VERSION as __version__
from ._reads import Entry, Remote, RemoteFile, find, list, mkdir, open, remove, rename, rmdir, stat
from ._streams import (
    BLOCK_LEN_MAX,
    METADATA_MAX,
    ClaimedBlock,
    Listener,
    ReceivedBlock,
    Receiver,
    Sender,
    Stream,
    accept_stdio,
    connect_to_receive,
    connect_to_send,
    pair,
)
from ._transfers import Events, Job, Report, copy, start_copy, start_sync, start_verify, sync, verify
from .service import Service, ServiceJob

__all__ = [
    "copy", "sync", "verify", "start_copy", "start_sync", "start_verify", "Job", "Events", "Report",
    "open", "stat", "list", "find", "mkdir", "rename", "remove", "rmdir", "Remote", "RemoteFile", "Entry",
    "connect_to_send", "connect_to_receive", "pair", "accept_stdio", "Listener", "Stream", "Sender", "Receiver", "ClaimedBlock",
    "ReceivedBlock", "BLOCK_LEN_MAX", "METADATA_MAX",
    "Service", "ServiceJob", "Connection",
    "FarhaulError", "UserError", "PeerError", "NetworkError", "HostError", "InternalError",
    "aio", "__version__",
]
