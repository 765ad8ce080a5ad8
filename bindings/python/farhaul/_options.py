"""The options of copies and syncs as keywords.

Made by bindings/python/generate.py from docs/reference/openapi.json: change that, and run it again.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from ._api import BackupRules, Cipher, DeleteOptions, Durability, EarlierRules, ManifestOptions, OverwriteMode, OwnerOptions, PathAddresses, Policy, VerifyMode


class CopyOptions(TypedDict, total=False):
    """The options of a copy: those of `farhaul cp`."""

    #: The rate as `rate_bps`, or as a text: `2G`, `300M`.
    rate: str | int | None
    #: Patterns of what is left out, as `--exclude`.
    exclude: list[str]
    #: Patterns of what is taken although it would be left out, as `--include`.
    include: list[str]
    #: True if both ends find the paths themselves: the one that the system chooses, and those of further interfaces.
    auto_paths: bool
    #: The cipher that seals the data.
    cipher: Cipher
    #: The number of flows on each path, 1 to 16. Default: 1.
    flows: int
    #: The number of paths that can be added while a stream runs. Memory is divided as if they were in use. Default: 0.
    further_paths: int
    #: Bytes of blocks that this transfer may hold at either end. Default: 256 MiB.
    memory_bytes: int
    #: The largest IP packet to use, in bytes. Default: found by probing.
    mtu: int | None
    #: Paths to use at once, each at its own rate. Default: the one that the system chooses.
    paths: list[PathAddresses]
    #: The policy that sets the rate.
    policy: Policy
    #: Bits per second: the rate for `fixed`, the ceiling for the other policies. Default: none.
    rate_bps: int | None
    #: Bits per second that every policy but `fixed` sends at least, whatever happens. Default: none.
    rate_min_bps: int | None
    #: If true, the session never falls back to TCP or the SSH channel.
    udp_only: bool
    #: The first and the last UDP port that the far end may bind (over SSH).
    udp_ports: list[int]
    #: Keep access control lists; users and groups in them are numbers
    acls: bool
    #: Name each file by a rename, so that programs that watch a directory get one event (`IN_MOVED_TO`) for every
    #: whole file. Default: a new small file gets its name by a link, which they see as `IN_CREATE`.
    announce: bool
    #: If another version of a large file is there, send only what differs. Default: if the ends are on different
    #: hosts.
    delta: bool | None
    #: Make devices, which are skipped otherwise (as root, not at a daemon)
    devices: bool
    #: Copy what symbolic links lead to, not the links
    follow: bool
    #: Send also what is appended to a file meanwhile, until the file has not grown for this many seconds. Default: the
    #: file is taken as it was listed.
    follow_growth_secs: int | None
    #: Take names with one inode number as one file (hard links). Default: on file systems that are known to keep inode
    #: numbers, and not on others, such as those of programs (FUSE).
    hard_links: bool | None
    #: Change such a file in place, not beside it. That takes no additional room, but an interrupted run leaves a file
    #: that is half new.
    in_place: bool
    #: Keep a symbolic link to a directory (the receiving user's, or root's) where a directory arrives
    keep_dirlinks: bool
    #: Keep set-user-id and set-group-id bits (a daemon still takes them off).
    keep_setuid: bool
    #: Times that differ by at most this many seconds are taken as equal. Default: a time is equal to what the
    #: destination's file system keeps of it.
    modify_window_secs: int
    #: Skip symbolic links
    no_links: bool
    #: Leave modes as the receiver's umask and directories make them
    no_perms: bool
    #: Leave modification times as they come; the next run then sends all files again, unless it uses --checksum
    no_times: bool
    #: Leave the modification times of directories
    omit_dir_times: bool
    #: How files are treated that exist at the destination.
    overwrite: OverwriteMode
    #: Skip symbolic links that lead out of what is copied
    safe_links: bool
    #: Make pipes and sockets, which are skipped otherwise
    specials: bool
    #: Keep extended attributes (as root, not at a daemon, also trusted.*)
    xattrs: bool
    #: Takes only files that have changed within this long before the run begins.
    age_max: str | None
    #: Takes only files that have not changed for this long when the run begins.
    age_min: str | None
    #: Takes only these names from the single source directory.
    names: list[str] | None
    #: True to leave out the content of directories on which something is mounted. The directories themselves are
    #: taken.
    one_file_system: bool
    #: Nothing is done unless every source has these entries: paths below it.
    require: list[str]
    #: Filter rules, in the form of `--filter`: `- *.tmp`, `+ /keep/**`.
    rules: list[str]
    #: Takes only files of at most this many bytes.
    size_max: int | None
    #: Takes only files of at least this many bytes.
    size_min: int | None
    #: When data count as safe.
    durable: Durability
    #: The digests for a manifest. `None` if nobody writes one and there is no receipt.
    manifest_digests: ManifestOptions | None
    #: How arrival is verified. `end-to-end` is what `digest` does, the default.
    verify: VerifyMode | Literal["end-to-end"]
    #: True to decide and list only, and to change nothing.
    dry_run: bool
    #: Lists of directories, each on a device of its own. A location in one of them is spread over all directories of
    #: its list.
    spread: list[list[str]]
    #: Directories at the destination's host that hold earlier copies.
    earlier: EarlierRules
    #: Whom the entries at the destination belong to.
    owners: OwnerOptions
    #: How what is replaced or deleted at the destination is kept; `null`: it is not kept.
    backup: BackupRules | None


class SyncOptionsOfCall(CopyOptions, total=False):
    """The options of a sync: those of a copy, and its own. `delete=True` removes what the source has not."""

    #: Compare files of the same size by their digests, not by their times.
    checksum: bool
    #: How surplus entries are removed. `None`: nothing is removed.
    delete: DeleteOptions | None | bool
    #: Take a file from the destination if it is there under another name.
    detect_renames: bool


#: Where a document has each option.
PLACES: dict[str, str] = {
    "auto_paths": "network.auto_paths",
    "cipher": "network.cipher",
    "flows": "network.flows",
    "further_paths": "network.further_paths",
    "memory_bytes": "network.memory_bytes",
    "mtu": "network.mtu",
    "paths": "network.paths",
    "policy": "network.policy",
    "rate_bps": "network.rate_bps",
    "rate_min_bps": "network.rate_min_bps",
    "udp_only": "network.udp_only",
    "udp_ports": "network.udp_ports",
    "acls": "files.acls",
    "announce": "files.announce",
    "delta": "files.delta",
    "devices": "files.devices",
    "follow": "files.follow",
    "follow_growth_secs": "files.follow_growth_secs",
    "hard_links": "files.hard_links",
    "in_place": "files.in_place",
    "keep_dirlinks": "files.keep_dirlinks",
    "keep_setuid": "files.keep_setuid",
    "modify_window_secs": "files.modify_window_secs",
    "no_links": "files.no_links",
    "no_perms": "files.no_perms",
    "no_times": "files.no_times",
    "omit_dir_times": "files.omit_dir_times",
    "overwrite": "files.overwrite",
    "safe_links": "files.safe_links",
    "specials": "files.specials",
    "xattrs": "files.xattrs",
    "age_max": "select.age_max",
    "age_min": "select.age_min",
    "names": "select.names",
    "one_file_system": "select.one_file_system",
    "require": "select.require",
    "rules": "select.rules",
    "size_max": "select.size_max",
    "size_min": "select.size_min",
    "durable": "integrity.durable",
    "manifest_digests": "integrity.manifest",
    "verify": "integrity.verify",
    "dry_run": "dry_run",
    "spread": "spread",
    "earlier": "earlier",
    "owners": "owners",
    "backup": "backup",
    "checksum": "sync.checksum",
    "delete": "sync.delete",
    "detect_renames": "sync.detect_renames",
}
