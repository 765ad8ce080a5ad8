"""The documents and calls of the service's API.

Made by bindings/python/generate.py from docs/reference/openapi.json: change that, and run it again.
"""

from __future__ import annotations

from typing import Any, Literal, Required, TypeAlias, TypedDict, cast
from urllib.parse import quote


class BackupRequest(TypedDict, total=False):
    """Where to write a backup."""

    #: An absolute path on the node's host. The file must not exist yet.
    path: Required[str]


class BackupRules(TypedDict, total=False):
    """How what is replaced or deleted is kept."""

    #: The directory at the destination's host that takes it, under the path that it had below the destination. A
    #: relative path begins at the destination. `null`: it stays in its own directory.
    dir: str | None
    #: The end of its other name. `null`: `~`, or none with `dir`.
    suffix: str | None


class BlockMemory(TypedDict, total=False):
    """The memory that blocks have at one end."""

    #: Bytes of blocks that have memory.
    bytes: Required[int]
    #: Bytes of these that lie in huge pages; all others lie in ordinary ones.
    huge_bytes: Required[int]


class CallerReach(TypedDict, total=False):
    """Where a caller may read and write, and as whom. Without any of it, nowhere."""

    #: True for the whole account of the service's user: all its files, all peers, all identities. Leave out the other
    #: fields then.
    everything: bool
    #: Identities of the configuration that a job may name. The identity that the configuration gives to a peer needs
    #: no name here.
    identities: list[str]
    #: Directories of this host, as absolute paths.
    local: list[str]
    #: Directories at each peer, by the peer's name: of a daemon (`hpc`, `hpc:4000`) below its root, of a host that is
    #: reached over SSH (`ssh://user@hpc`) as absolute paths. A daemon and a host over SSH are two peers, also on the
    #: same machine.
    peers: dict[str, list[str]]


class CallerView(TypedDict, total=False):
    """The identity of a caller."""

    #: The directories of this host below which the caller reaches everything: `/` for the whole host.
    begins: Required[list[str]]
    #: When the log-in, or the token, expires.
    expires: str | None
    #: How the caller is known.
    known_by: Required[KnownBy]
    #: The kinds of things that the caller may do.
    may: Required[list[DeedKind]]
    #: The name of the token.
    name: Required[str]
    #: Where the caller may read and write.
    reach: Required[CallerReach]
    #: The scopes of the caller. `may` says what they allow.
    scopes: Required[list[Scope]]
    #: `local` for the service's own user, otherwise `token:ID`.
    subject: Required[str]


class Cap(TypedDict, total=False):
    """A cap: a limit on the rate of several transfers together."""

    #: Networks; transfers with their hosts are in the cap: `10.0.0.0/8`, `2001:db8::/32`.
    networks: list[str]
    #: The cap that it lies in, `host` by default. The cap `host` lies in no other.
    parent: str | None
    #: Other hosts whose transfers are in the cap: `hpc`, `hpc:4000`, `*.example.org`.
    peers: list[str]
    #: Whose transfers are in the cap: `local`, `token:ID`, or the key of a client (`SHA256:...`).
    principals: list[str]
    #: Bits of IP packets per second, both directions added, outside the windows of the schedule; without it there is
    #: no limit.
    rate_bps: int | None
    #: Other rates at certain times, such as `mon-fri 09:00-18:00 2G`. Of windows that overlap, the last one counts.
    schedule: list[str]
    #: The time zone of the schedule. The host's by default.
    time_zone: str | None
    #: Its share of the parent's rate, relative to the parent's other members. 1 by default.
    weight: float


#: A thing to do with a cap.
CapDeed: TypeAlias = Literal["set", "remove"]


class CapList(TypedDict, total=False):
    """All caps of the node."""

    #: The caps, by name.
    caps: Required[list[CapView]]


class CapView(Cap, total=False):
    """A cap, with its present state."""

    #: What the caller may do with it now.
    may: Required[list[CapDeed]]
    #: Bytes of IP packets that have gone through it since the service was started.
    moved_bytes: Required[int]
    #: Its name.
    name: Required[str]
    #: When the schedule changes the rate next.
    next_change: str | None
    #: The rate that holds now; null if the cap has no limit of its own.
    now_bps: int | None
    #: Sessions in the cap and in the caps below it.
    sessions: Required[int]


#: The cipher of the data packets.
Cipher: TypeAlias = Literal["aes-128-gcm", "aes-256-gcm", "chacha20-poly1305", "none"]


class CodeWish(TypedDict, total=False):
    """The one-time code to make."""

    #: The scopes of the log-in that the code makes.
    scopes: Required[list[Scope]]


class ContentBytes(TypedDict, total=False):
    """Bytes of content that were moved."""

    #: Copied within this host.
    local_bytes: Required[int]
    #: Received from other hosts.
    received_bytes: Required[int]
    #: Sent to other hosts.
    sent_bytes: Required[int]


class Core(TypedDict, total=False):
    """One core, as the kernel's scheduler counts them."""

    #: Seconds in which it was busy.
    busy_s: Required[float]
    #: Seconds in which it was idle or waited for a disk.
    idle_s: Required[float]
    #: Its number.
    number: Required[int]
    #: The socket that it is on, if known.
    socket: int | None
    #: Those of the busy seconds that it spent in the kernel, interrupts included.
    system_s: Required[float]


class CpuChoice(TypedDict, total=False):
    """CPUs that were chosen for a transfer."""

    #: The name of that interface.
    interface: str | None
    #: The list, such as `0-3,8`.
    list: Required[str]
    #: The memory node of these CPUs, if they were chosen because the interface is attached to it.
    node: int | None


#: A kind of thing that a caller may do.
DeedKind: TypeAlias = Literal["see", "submit", "control", "watch", "take", "caps", "usage", "tokens", "store", "codes"]


#: The most that one run may remove; if more would go, nothing is removed.
DeleteLimit: TypeAlias = "int | Percent"


class DeleteOptions(TypedDict, total=False):
    """Removes what the destination has and the source has not."""

    #: Empty also what is mounted below the destination.
    across_mounts: bool
    #: Let one run go in spite of the guard and of `max`; of a job that repeats, the first one.
    anyway: bool
    #: Remove also what filter rules exclude.
    excluded: bool
    #: Remove nothing if the source looks as if its disk were not mounted: it is empty, it is another directory than at
    #: the last run, or most entries would go. Default: on in a job, off on a terminal.
    guard: bool | None
    #: If more than this would be removed, remove nothing. Default: with the guard more than half of the entries and
    #: more than 100, and without it no limit.
    max: DeleteLimit | None
    #: Default: after everything else.
    when: DeleteWhen


#: When surplus entries are removed.
DeleteWhen: TypeAlias = Literal["before", "after"]


class DirectoryView(TypedDict, total=False):
    """The entries of a directory."""

    #: The entries, sorted by name.
    files: Required[list[EntryView]]
    #: True if there are more entries than are listed.
    is_cut: Required[bool]


class DiskView(TypedDict, total=False):
    """One disk."""

    #: Seconds in which it worked on at least one request.
    busy_s: Required[float]
    #: True if it is made of other disks, which count the same bytes: a RAID, a mapping.
    is_made_of_others: Required[bool]
    #: The name that its maker gives it.
    model: str | None
    #: Its name, such as `nvme0n1`.
    name: Required[str]
    #: Bytes read.
    read_bytes: Required[int]
    #: Bytes written.
    written_bytes: Required[int]


#: When data count as safe.
Durability: TypeAlias = Literal["no", "end", "file"]


class EarlierRules(TypedDict, total=False):
    """Directories with earlier copies. A relative path begins at the destination."""

    #: An entry that one of them has, and the destination lacks, is left out.
    compare: list[str]
    #: A file that one of them has, and the destination lacks, becomes a hard link to it.
    link: list[str]


class Energy(TypedDict, total=False):
    """Energy that a part of the host has used."""

    #: Joules used since the counter began.
    joules: Required[float]
    #: The part of the host: `package-0`, `dram`, `psys`.
    name: Required[str]
    #: The zone that it is a part of. That zone's energy includes this one's, except for `dram`, which is counted
    #: separately.
    part_of: str | None
    #: At this value the counter begins again at 0.
    wraps_at_joules: Required[float]
    #: Its unique name within the host; `name` may be the same for several parts.
    zone: Required[str]


class EntryView(TypedDict, total=False):
    """One entry of a directory."""

    #: `file`, `directory`, `symlink` and so on.
    kind: Required[str]
    #: The permission bits.
    mode: Required[int]
    #: When it was last modified, in seconds since 1970.
    mtime_s: Required[int]
    #: Its name. Bytes that are not UTF-8 are written as `\xff`.
    name: Required[str]
    #: The size of a file in bytes.
    size: Required[int]


class ErrorDetail(TypedDict, total=False):
    """The fields of an error that programs use."""

    #: Whose fault it is: `user`, `peer`, `network`, `host` or `us`.
    blame: Required[str]
    #: The name of its code, such as `FH-NO-SPACE`.
    code: Required[str]
    #: The exit code of the command.
    exit_code: Required[int]
    #: The hint that says what to do, and whether it may pass by itself.
    hint: str | None
    #: How the far end has broken the protocol, or how this end has, if the far end says so.
    misbehaviour: str | None
    #: The names of the options that the error and its hint name.
    options: list[str]
    #: True if it will pass: the same command can work later although nobody has changed it or what it names.
    retryable: Required[bool]


class FailingFiles(TypedDict, total=False):
    """The files of a watched folder that have failed and have not arrived since, also while they are tried again."""

    #: How many there are.
    files: Required[int]
    #: When the next of them are taken again by themselves. Without it, they are being tried now, or wait for a change
    #: or for `retry`.
    next_try: str | None
    #: Why they fail: the reasons of most files first, at most ten.
    reasons: Required[list[FailingReason]]
    #: How many of them are taken again by themselves, as the reason can pass.
    retried: Required[int]
    #: When the first of them failed.
    since: Required[str]


class FailingReason(TypedDict, total=False):
    """A reason why files fail."""

    #: The code, such as `FH-NOT-LISTENING`.
    code: Required[str]
    #: How many files fail for it.
    files: Required[int]
    #: True if it can pass: then the files are taken again by themselves.
    retryable: Required[bool]
    #: One of its files' reasons, in one line.
    why: Required[str]


class FileOptions(TypedDict, total=False):
    """How files are compared, made and changed, and what is kept of them beside names, contents, modes and times.
    Options that the command line has in the same form get their names and help texts from here.
    """

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


class Findings(TypedDict, total=False):
    """The faults found in the store."""

    #: One line for each fault; empty if the store is sound.
    findings: Required[list[str]]


class Health(TypedDict, total=False):
    """The health of the node."""

    #: How many jobs there are, by state.
    jobs: Required[dict[str, Any]]
    #: `ok`, or what is wrong.
    status: Required[str]


class HistoryPage(TypedDict, total=False):
    """A page of records, the newest first. It may have fewer records than asked for, and a cursor nevertheless."""

    #: How many records match in all, if `count` was set.
    count: int | None
    #: True if there are older records that were not looked at for `count`: for a caller without the scope `admin`,
    #: only the newest 50,000 are.
    count_is_cut: Required[bool]
    #: The cursor for the next page, if there is one.
    next_cursor: int | None
    #: The records.
    records: Required[list[HistoryRecord]]


class HistoryRecord(TypedDict, total=False):
    """A transfer that has ended."""

    #: The number of attempts.
    attempts: Required[int]
    #: When it began, in milliseconds since 1970.
    began_ms: Required[int]
    #: Content bytes that arrived.
    bytes: Required[int]
    #: Entries that were deleted at the destination; of a dry run, that would be.
    deleted: Required[int]
    #: The destination.
    destination: Required[str]
    #: `push`, `pull` or `local`, as the end that began it sees it; `read` for reads.
    direction: Required[str]
    #: True if it was a dry run, which changes nothing: no files and no bytes arrived.
    dry_run: Required[bool]
    #: When it ended, in milliseconds since 1970.
    ended_ms: Required[int]
    #: The error in words.
    error: str | None
    #: The code of the error, if it failed.
    error_code: str | None
    #: Files that arrived.
    files: Required[int]
    #: Entries that did not arrive.
    files_failed: Required[int]
    #: The number of the record; later records have higher numbers.
    id: Required[int]
    #: The job; null if a client of the daemon opened the session.
    job: str | None
    #: Packets lost as a share of packets sent, 0 to 1.
    loss_fraction: Required[float]
    #: Content moved, in bits per second, from the first byte to the last.
    mean_bps: Required[float]
    #: Whose transfer it was: `local`, `token:ID`, or the fingerprint of a client's key.
    owner: Required[str]
    #: The highest rate within one second.
    peak_bps: Required[float]
    #: The other host.
    peer: str | None
    #: Smoothed round trip at the end, in milliseconds.
    rtt_ms: Required[float]
    #: The number of the job's run, from 1.
    run: int | None
    #: The sources as they were written, separated by spaces.
    source: Required[str]
    #: `done`, `partly_failed`, `failed`, `cancelled` or `stopped`.
    state: Required[str]
    #: The root of the digests' tree, in hex.
    tree_root: str | None
    #: The thing that limited the rate, in words.
    verdict: Required[str]
    #: Bytes that this end has sent, content and everything else.
    wire_bytes: Required[int]


class HostView(TypedDict, total=False):
    """The host at one moment."""

    #: When it was read, in seconds of a clock that only goes forward.
    at_s: Required[float]
    #: The cores that are online.
    cores: Required[list[Core]]
    #: Whole disks; partitions are counted in their disk.
    disks: Required[list[DiskView]]
    #: Energy used, by part of the host.
    energy: Required[list[Energy]]
    #: True if there are counters of energy that the user of the node may not read.
    energy_is_hidden: Required[bool]
    #: Network interfaces by name, without loopback.
    interfaces: Required[list[InterfaceView]]
    #: The memory of the host.
    memory: MemoryView | None
    #: File systems that files of the node or of jobs can lie on.
    mounts: Required[list[MountView]]
    #: Content bytes that this node has sent and received since it was started.
    moved: Required[ContentBytes]
    #: Power used now, where a sensor measures it.
    power: Required[list[Power]]
    #: Temperatures, by chip and label.
    temperatures: Required[list[Temperature]]


class IntegrityOptions(TypedDict, total=False):
    """How arrival is verified and secured against a crash."""

    #: When data count as safe.
    durable: Durability
    #: The digests for a manifest. `None` if nobody writes one and there is no receipt.
    manifest: ManifestOptions | None
    #: How arrival is verified.
    verify: VerifyMode


class InterfaceView(TypedDict, total=False):
    """One interface."""

    #: True if it is a device of its own, and not made of others (a bridge, a tunnel, a bond).
    is_physical: Required[bool]
    #: True if it is up and has a link.
    is_up: Required[bool]
    #: Its name, such as `eth0`.
    name: Required[str]
    #: Bytes received.
    received_bytes: Required[int]
    #: Received packets that this host dropped.
    received_dropped: Required[int]
    #: Bytes sent.
    sent_bytes: Required[int]
    #: Packets to send that this host dropped.
    sent_dropped: Required[int]
    #: Its nominal speed in bits per second; null if the kernel does not know it.
    speed_bps: int | None


class JobChange(TypedDict, total=False):
    """The fields of a job to change; a field that is left out stays as it is."""

    #: Starts the job just after this one, under the same rules.
    after: str | None
    #: Starts the job just before this one, which must not be over. The job gets the priority of this one.
    before: str | None
    #: How the rate is set: `fixed`, `high`, `fair` or `low`.
    policy: str | None
    #: The priority, 0 to 9.
    priority: int | None
    #: The job's own rate limit in bits per second; 0 removes it.
    rate_bps: int | None


#: A thing to do with a job.
JobDeed: TypeAlias = Literal["pause", "resume", "cancel", "retry", "change", "take"]


class JobView(TypedDict, total=False):
    """A job as it is now."""

    #: The number of the present attempt of the run.
    attempt: Required[int]
    #: When the run began.
    began: str | None
    #: The destination, as in its document.
    destination: Required[str]
    #: True if it is a dry run, which changes nothing.
    dry_run: Required[bool]
    #: When a job goes on that waits for its time or for its next attempt.
    due: str | None
    #: When the last run ended.
    ended: str | None
    #: Why the last attempt failed.
    error: JobFailure | None
    #: The time by which the present run must be finished.
    finish_by: str | None
    #: Its id.
    id: Required[str]
    #: True if the job stays in this state by itself: it has ended.
    is_over: Required[bool]
    #: True if the job is about to stop, but has not stopped yet.
    is_stopping: Required[bool]
    #: The kind: a copy or a sync.
    kind: Required[JobKind]
    #: The labels, as in its document.
    labels: Required[Labels]
    #: What the caller may do with it now.
    may: Required[list[JobDeed]]
    #: Bytes of content that the attempts of this run have moved which are over. Once the run is over, these are all of
    #: them.
    moved_bytes: Required[int]
    #: The caller that submitted it: `local`, or `token:ID`.
    owner: Required[str]
    #: The other host: `fh://host:port` or `ssh://[user@]host`; null for a copy within the node's host.
    peer: str | None
    #: How the rate is set.
    policy: Required[str]
    #: Its position among the jobs of its priority: lower ones start first.
    position: Required[int]
    #: The priority, 0 to 9.
    priority: Required[int]
    #: How far it is, while it runs.
    progress: JobProgress | None
    #: Whether it is finished by then, and when; null without such a time.
    promise: PromiseView | None
    #: The job's own rate limit, in bits per second.
    rate_bps: int | None
    #: When it runs again, as in its document; null for a job that runs once.
    repeat: RepeatRule | None
    #: The number of the present run, or of the last one.
    run: Required[int]
    #: How many sources its document has.
    source_count: Required[int]
    #: The sources, as in its document: as many of them as fit in 64 KiB.
    sources: Required[list[str]]
    #: Its state.
    state: Required[JobState]
    #: When it was accepted.
    submitted: Required[str]
    #: Why a queued job does not run although there is a slot for it: what it waits for.
    waits_for: str | None


class JobDetail(JobView, total=False):
    """A job, with all that is known about its transfer."""

    #: How things stand with its transfer, with stages and paths; only while the job runs.
    transfer: Snapshot | None


class JobFailure(TypedDict, total=False):
    """An error for people and for programs: what jobs keep of a failed attempt, and what the API says of it."""

    #: Where the fault lies: `user`, `peer`, `network`, `host` or `us`.
    blame: Required[str]
    #: The code, such as `FH-NO-SPACE`.
    code: Required[str]
    #: The exit code that `farhaul cp` would have had.
    exit_code: Required[int]
    #: A hint on what to do.
    hint: str | None
    #: How the far end has broken the protocol; or, according to the far end, how this end has.
    misbehaviour: str | None
    #: True if another attempt may work although nobody has changed anything.
    retryable: Required[bool]
    #: One line that says what happened, and where.
    text: str


class JobFilePage(TypedDict, total=False):
    """A page of a run's manifest."""

    #: Entries in the form that a manifest has (docs/guide/verify.md), in the order in which they were done.
    files: Required[list[JobFileView]]
    #: The cursor for the next page, if there may be one.
    next_cursor: int | None


class JobFileView(TypedDict, total=False):
    """The part of a manifest's line that lists of files show; docs/guide/verify.md has all of it."""

    #: Why it failed.
    error: str | None
    #: The path of the entry below its source; empty for the source itself.
    path: str | None
    #: What became of it: `sent`, `unchanged`, `failed` and so on.
    result: str | None
    #: The size of a file in bytes.
    size: int | None


#: The kind of a job.
JobKind: TypeAlias = Literal["copy", "sync"]


class JobOptions(TypedDict, total=False):
    """The options of a job, grouped as they are judged."""

    #: How what is replaced or deleted at the destination is kept; `null`: it is not kept.
    backup: BackupRules | None
    #: True to decide and list only, and to change nothing.
    dry_run: bool
    #: Directories at the destination's host that hold earlier copies.
    earlier: EarlierRules
    #: How files are written.
    files: FileOptions
    #: How integrity is ensured.
    integrity: IntegrityOptions
    #: How content travels.
    network: NetworkOptions
    #: Whom the entries at the destination belong to.
    owners: OwnerOptions
    #: Which entries are taken.
    select: SelectRules
    #: Lists of directories, each on a device of its own. A location in one of them is spread over all directories of
    #: its list.
    spread: list[list[str]]
    #: Options that a sync has beyond those of a copy. Only for the kind `sync`.
    sync: SyncOptions | None


class JobPage(TypedDict, total=False):
    """A page of jobs. It may have fewer jobs than asked for, and a cursor nevertheless."""

    #: How many jobs match, by state, whatever states were asked for; only if `counts` was set.
    counts: dict[str, Any] | None
    #: True if there are older jobs that were not looked at for `counts`: of a caller that does not see all jobs, the
    #: newest 50,000 are.
    counts_are_cut: Required[bool]
    #: The jobs.
    jobs: Required[list[JobView]]
    #: The cursor for the next page, if there is one.
    next_cursor: str | None


class JobProgress(TypedDict, total=False):
    """How far a job is."""

    #: Bytes of content that are safe at the receiver.
    bytes_done: Required[int]
    #: Bytes of content that will be at the destination in the end, as far as known.
    bytes_total: Required[int]
    #: Entries that have failed.
    failed: Required[int]
    #: Files that are at the destination.
    files_done: Required[int]
    #: Files that will be at the destination in the end, as far as known.
    files_total: Required[int]
    #: Content moved, in bits per second, over the last seconds.
    goodput_bps: Required[float]
    #: Bytes that this end has sent and that are neither acknowledged nor lost.
    in_flight_bytes: Required[int]
    #: The job's id.
    job: Required[str]
    #: The thing that limits the rate: `network`, `rate`, `none`, or an end and its stage such as `sender read`; empty
    #: while it is not known.
    limit: Required[str]
    #: Packets lost as a share of packets sent, 0 to 1.
    loss_fraction: Required[float]
    #: The same share for the last second.
    loss_now_fraction: Required[float]
    #: What it does now in words, or what limits it: `scanning the source`, `the network is the limit`.
    now: Required[str]
    #: Each path, if there are several.
    paths: Required[list[PathNow]]
    #: Segments that this end sent again because they were lost, as a share of all that it sent, 0 to 1.
    retransmitted_fraction: Required[float]
    #: Smoothed round trip in milliseconds; 0 while it is not known.
    rtt_ms: Required[float]
    #: Seconds since the attempt began.
    seconds: Required[float]
    #: How many seconds it will still take, if known.
    seconds_left: int | None
    #: The rate that the sender paces at, if this end sends.
    target_bps: float | None
    #: True if the totals are final.
    totals_known: Required[bool]
    #: `udp`, `tcp`, `ssh` or `local`; empty while there is no connection.
    transport: Required[str]
    #: Source files that vanished before they were read. They have not failed.
    vanished: Required[int]
    #: Bytes of UDP payload or of the stream that this end has sent.
    wire_bytes_sent: Required[int]


class JobSpec(TypedDict, total=False):
    """The document of a job."""

    #: True to accept the job also if `finish_by` cannot be kept.
    anyway: bool
    #: The location that content goes to, written in the same way.
    destination: Required[str]
    #: The key that a daemon at the far end must have: `SHA256:...`.
    fingerprint: str | None
    #: The job is to be finished by then at the latest: a time, or a time of day such as `06:00`. It is sure of the
    #: rate that it needs for that, and takes beyond that what nobody else wants.
    finish_by: str | None
    #: The identity of the node's configuration by which the job connects to the far end. By default the peer's, or
    #: else the node's own.
    identity: str | None
    #: The kind: a copy or a sync. Default copy.
    kind: JobKind
    #: Names and values of the user's choice.
    labels: Labels
    #: The job does not begin before this time.
    not_before: str | None
    #: The options of `farhaul cp` and `farhaul sync`.
    options: JobOptions
    #: The priority, from 0 (last) to 9 (first). It decides which job starts first, and which share a running job gets
    #: in a cap. Default 5.
    priority: int
    #: True if both ends sign a receipt for what has arrived.
    receipt: bool
    #: The job runs again and again, until it is cancelled.
    repeat: RepeatRule | None
    #: Further attempts after a failure that another attempt may get past. By default as the node's configuration says.
    retry: RetryOptions | None
    #: The version of this schema: 1.
    schema: Required[int]
    #: True to go only as fast as `finish_by` needs.
    smooth: bool
    #: The locations that content comes from: absolute paths on the node's host, `[user@]host:path` over SSH,
    #: `fh://host[:port]/path` at a daemon. Bytes that are not UTF-8 are written as in reports: `\xff`.
    sources: Required[list[str]]
    #: An address that gets an HTTP POST when the job ends, and when `finish_by` will not be kept.
    webhook: str | None
    #: True if that address hears of the job although it is a dry run.
    webhook_dry_run: bool


#: The state of a job.
JobState: TypeAlias = Literal["queued", "waiting", "running", "paused", "retrying", "done", "partly_failed", "failed", "cancelled", "stopped", "pausing"]


#: How a caller is known.
KnownBy: TypeAlias = Literal["socket", "token", "login"]


#: Names and their values. A name consists of letters, digits, `-`, `_`, `.` and `/`.
Labels: TypeAlias = "dict[str, str]"


class LiveCurve(TypedDict, total=False):
    """The curve of a running transfer over its last five minutes. Each list has a value per second, the newest last.
    """

    #: Seconds since the attempt began, like `seconds` in `progress` events.
    at_s: Required[list[float]]
    #: Content moved, in bits per second.
    goodput_bps: Required[list[float]]
    #: Bytes sent that are neither acknowledged nor lost.
    in_flight_bytes: Required[list[float]]
    #: Packets lost as a share of packets sent in that second, 0 to 1.
    loss_fraction: Required[list[float]]
    #: The curve of each path, if there are several.
    paths: Required[list[PathCurve]]
    #: Smoothed round trip in milliseconds.
    rtt_ms: Required[list[float]]
    #: The rate that the sender paces at, in bits of UDP payload per second; null where it is not known.
    target_bps: Required[list[float | None]]


class LiveRates(TypedDict, total=False):
    """The rate of a job's transfer over its last five minutes, or since it began."""

    #: The time of the first rate, in seconds since the attempt began.
    begin_s: Required[float]
    #: The time of the last rate. Rates are equally far apart, about a second.
    end_s: Required[float]
    #: Content moved, in bits per second.
    goodput_bps: Required[list[int]]
    #: The job's id.
    job: Required[str]


class LiveRatesList(TypedDict, total=False):
    """The rates of all running transfers."""

    #: The rates of each transfer.
    curves: Required[list[LiveRates]]


class LogLine(TypedDict, total=False):
    """A line of a job's log."""

    #: When it happened, in milliseconds since 1970.
    at_ms: Required[int]
    #: The event for programs: of a transfer (docs/reference/events.md), or of the job itself.
    event: Required[dict[str, Any]]
    #: `warning`, `info` or `debug`.
    level: Required[str]
    #: The number of the line within the job's log, from 1.
    seq: Required[int]
    #: The text for people.
    text: Required[str]


class LogPage(TypedDict, total=False):
    """A page of a job's log."""

    #: The lines, oldest first.
    lines: Required[list[LogLine]]


class LoginWish(TypedDict, total=False):
    """The token or code to log in with: give one of the two."""

    #: The one-time code (`farhaul open`).
    code: str | None
    #: The token.
    token: str | None


class ManifestOptions(TypedDict, total=False):
    """The digests that the receiver computes for the client's manifest."""

    #: Digests of other algorithms, for other tools. Each file that has arrived is read once for all of them.
    extra: list[str]
    #: Compute digests also of files that were there already; they are read for that.
    unchanged: bool


class MemoryView(TypedDict, total=False):
    """The memory of the host."""

    #: Memory that programs could still get, caches included.
    available_bytes: Required[int]
    #: All memory.
    bytes: Required[int]
    #: Memory that caches files.
    cached_bytes: Required[int]


class MountView(TypedDict, total=False):
    """A mounted file system."""

    #: Its size.
    bytes: Required[int]
    #: The device that it is on.
    device: Required[str]
    #: Its type, such as `ext4`.
    file_system: Required[str]
    #: Bytes that the user of this node could still write.
    free_bytes: Required[int]
    #: The directory that it is mounted on.
    point: Required[str]


class NetworkOptions(TypedDict, total=False):
    """How a session uses the network."""

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


class NewCode(TypedDict, total=False):
    """A one-time code."""

    #: The code. It is shown only now, and makes one log-in.
    code: Required[str]
    #: When the code expires: after a minute.
    expires: Required[str]
    #: Addresses of the page. Append `#code=CODE` to one of them.
    pages: Required[list[str]]


class TokenView(TypedDict, total=False):
    """A token, without its secret."""

    #: When it was made.
    created: Required[str]
    #: The caller that made it.
    created_by: Required[str]
    #: When it expires; null if it never does.
    expires: str | None
    #: Its id.
    id: Required[str]
    #: Its name.
    name: Required[str]
    #: Where it reaches.
    reach: Required[CallerReach]
    #: When it was revoked.
    revoked: str | None
    #: Its scopes.
    scopes: Required[list[Scope]]
    #: Why it should be replaced, if it should.
    warning: str | None


class NewToken(TokenView, total=False):
    """A token that was just made."""

    #: The secret. It is shown only now.
    token: Required[str]


#: What happens to a destination file that exists already.
OverwriteMode: TypeAlias = Literal["always", "older", "different", "content", "never"]


class OwnerOptions(TypedDict, total=False):
    """Which owners and groups what arrives gets."""

    #: Keep the groups.
    group: bool
    #: The same for groups.
    group_map: str
    #: Keep numbers, whatever names belong to them.
    numeric: bool
    #: Keep the owners: by name where the receiver knows it, else by number.
    user: bool
    #: Other owners for some: `FROM:TO,...`, where FROM is a name, a pattern, a number or a range of numbers. The first
    #: match counts. Implies `user`.
    user_map: str


class PathAddresses(TypedDict, total=False):
    """A path between the two hosts: an address of the client and one of the far end."""

    #: The interface of the end that connects, for addresses that are valid on one link only (fe80::...). Default: the
    #: interface that has `local`.
    interface: str | None
    #: The address of this end, if this end connects.
    local: Required[str]
    #: The address of the far end.
    remote: Required[str]


class PathCurve(TypedDict, total=False):
    """The curve of one path."""

    #: Bytes sent over the path that are neither acknowledged nor lost.
    in_flight_bytes: Required[list[float]]
    #: The address of the end that opened the connection.
    local: Required[str]
    #: Packets lost as a share of packets sent in that second, 0 to 1.
    loss_fraction: Required[list[float]]
    #: Bits per second that arrived over the path, headers and control messages included.
    moved_bps: Required[list[float]]
    #: The address of the other end.
    remote: Required[str]
    #: Smoothed round trip in milliseconds.
    rtt_ms: Required[list[float]]
    #: The rate that the sender paces at on this path, in bits of UDP payload per second; null where it is not known.
    target_bps: Required[list[float | None]]


class PathFigures(TypedDict, total=False):
    """One path among several."""

    #: True if something has come back on it.
    answered: Required[bool]
    #: The address of the end that connected.
    local: Required[str]
    #: The address of the other end.
    remote: Required[str]


class PathNow(TypedDict, total=False):
    """One path at the moment."""

    #: Bytes sent over the path that are neither acknowledged nor lost.
    in_flight_bytes: Required[int]
    #: The address of the end that opened the connection.
    local: Required[str]
    #: Packets lost as a share of packets sent in the last second, 0 to 1.
    loss_fraction: Required[float]
    #: Bits per second that arrived over the path in the last second, headers and control messages included.
    moved_bps: Required[float]
    #: The address of the other end.
    remote: Required[str]
    #: Smoothed round trip in milliseconds; 0 while it is not known.
    rtt_ms: Required[float]
    #: The rate that the sender paces at on this path, in bits of UDP payload per second.
    target_bps: float | None


class PathTraffic(TypedDict, total=False):
    """The traffic of one path: of all its flows together."""

    #: Payload bytes that have arrived by it, including headers of segments and control messages.
    bytes_moved: int
    #: Bytes that this end has sent on it and that are neither acknowledged nor lost.
    in_flight_bytes: int
    #: How many of these were lost.
    packets_lost: int
    #: Packets that this end has sent on it.
    packets_sent: int
    #: The rate that its controller allows now, in bits of UDP payload per second; `None` while it does not know it,
    #: and at an end that only receives.
    rate_target_bps: float | None
    #: The smoothed round trip of its slowest flow; 0 while it is not known.
    rtt_ms: float


class PeerList(TypedDict, total=False):
    """The peers that the caller may know of."""

    #: The peers, by name.
    peers: Required[list[PeerView]]


class PeerView(TypedDict, total=False):
    """Another host that jobs of this node copy from or to."""

    #: Bytes of content that arrived.
    bytes: Required[int]
    #: The cap for jobs of the node's own user with this peer; jobs of other owners may be in other caps.
    cap: Required[str]
    #: The host, or the pattern, of the table in `[peers]` that applies to it.
    configured: str | None
    #: Those of the runs that did not bring everything.
    failed: Required[int]
    #: The key that its daemon must have, according to the configuration.
    fingerprint: str | None
    #: The identity of the configuration by which jobs connect to it; null for the node's own.
    identity: str | None
    #: The keys that its daemon is known to have from earlier connections.
    known_keys: Required[list[str]]
    #: When the last run with it ended.
    last_ended: str | None
    #: When a job with it last brought some or all of its content.
    last_reached: str | None
    #: The name of the host in jobs: `fh://host:port` or `ssh://[user@]host`. A host of the configuration that no job
    #: has named yet has its name from there, which may be a pattern.
    name: Required[str]
    #: How many of the jobs that the caller sees run with it now.
    running: Required[int]
    #: The most jobs with it that run at a time.
    running_max: Required[int]
    #: Runs with it that have ended. Runs of other owners are counted only for callers with the scope `admin`.
    transfers: Required[int]
    #: How many jobs with it are not over, running ones included.
    unfinished: Required[int]


#: A whole number of percent, written as `10%`.
Percent: TypeAlias = "str"


class Point(TypedDict, total=False):
    """One stretch of a transfer."""

    #: When the stretch ends, in seconds since the run began.
    at_s: Required[float]
    #: Content moved, in bits per second.
    goodput_bps: Required[float]
    #: Packets lost as a share of packets sent, since the beginning of the run, 0 to 1.
    loss_fraction: Required[float]
    #: Smoothed round trip in milliseconds.
    rtt_ms: Required[float]
    #: The rate that the sender paces at, in bits of UDP payload per second; null if it is not known.
    target_bps: float | None


#: How the rate is set.
Policy: TypeAlias = Literal["fixed", "fair", "high", "low"]


class Power(TypedDict, total=False):
    """Power that a sensor of the host measures."""

    #: The chip that measures it: `power_meter` (the whole host, by ACPI), `amdgpu`.
    chip: Required[str]
    #: The name of the sensor.
    label: Required[str]
    #: Watts now, or on average over the sensor's last interval.
    watts: Required[float]


class Problem(TypedDict, total=False):
    """Why a request failed."""

    #: The code, such as `FH-NOT-NOW`.
    code: Required[str]
    #: One line that says what happened, and where.
    detail: Required[str]
    #: The fields of a job that `detail` and `hint` name, where they name an option: `memory` in them is
    #: `options.network.memory_bytes` here.
    fields: list[str]
    #: A hint on what to do.
    hint: str | None
    #: True if the same request may work later although nobody has changed anything.
    retryable: Required[bool]
    #: The HTTP status.
    status: Required[int]
    #: One sentence about that kind.
    title: Required[str]
    #: The kind of problem: the address of its code in docs/reference/errors.md.
    type: Required[str]


#: Whether a deadline is kept.
PromiseState: TypeAlias = Literal["open", "kept", "late"]


class PromiseView(TypedDict, total=False):
    """The deadline of a job's run, and whether it is kept."""

    #: When it will be done as things stand, or was done; null while that is not known.
    done_by: str | None
    #: The time by which the run is to be done.
    finish_by: Required[str]
    #: Whether it is kept.
    state: Required[PromiseState]
    #: Both in words: `done by 08:20, at the latest 23:00`. Times are those of the service's clock.
    words: Required[str]


class RecordDetail(HistoryRecord, total=False):
    """A record, with the report of its last attempt."""

    #: The report of `farhaul cp --json` (docs/reference/report.md).
    report: RunReport | None


class RepeatRule(TypedDict, total=False):
    """When a job runs again. Give exactly one of `every` and `cron`."""

    #: A cron line: minute, hour, day of month, month, day of week.
    cron: str | None
    #: The time from the beginning of one run to the next, which begins at once if a run has taken longer. At least a
    #: minute.
    every: str | None
    #: The time zone of `cron` and `finish_by`, such as `Europe/Zurich`. By default the host's.
    time_zone: str | None


class RetryOptions(TypedDict, total=False):
    """How often a job is tried again, and the delays in between. They double from the first to the longest. What is left
    out is as the node's configuration says.
    """

    #: Attempts after the first one.
    attempts: int | None
    #: The delay before the second attempt.
    first_delay: str | None
    #: The longest delay.
    longest_delay: str | None


class RunCurve(TypedDict, total=False):
    """How a run went over time."""

    #: The points, oldest first.
    points: Required[list[Point]]


class SessionReport(TypedDict, total=False):
    """The report of one session."""

    #: The pages that the blocks of this end lie in, if the system says it.
    block_memory: BlockMemory | None
    #: The limiting stage in words.
    bottleneck: Required[str]
    #: Content bytes that arrived in this run.
    bytes: Required[int]
    #: As [`crate::Cipher::name`].
    cipher: Required[str]
    #: Content bytes that were read and sent again (the carrier changed, or a digest did not match).
    content_bytes_resent: Required[int]
    #: Content bytes of the blocks that the sender has begun to send, without repairs.
    content_bytes_sent: Required[int]
    #: The processor time of the threads at this end.
    cpu_seconds_local: Required[float]
    #: The same at the far end.
    cpu_seconds_remote: Required[float]
    #: The CPUs that this end has kept to, if any were chosen.
    cpus: CpuChoice | None
    #: The number of flows at the start.
    flows: Required[int]
    #: Content bits per second from the session's start to its end.
    goodput_bps: Required[float]
    #: The ID under which `farhaul doctor explain` explains it; empty if nothing has limited the transfer.
    limit_id: str
    #: The share of lost packets among those sent, 0 to 1.
    loss_fraction: Required[float]
    #: The paths that were named or found, if any.
    paths: list[PathFigures]
    #: The largest resident memory of this process.
    peak_rss_bytes_local: Required[int]
    #: The same of the process at the far end.
    peak_rss_bytes_remote: Required[int]
    #: The mean round trip.
    rtt_mean_ms: Required[float]
    #: The smallest round trip.
    rtt_min_ms: Required[float]
    #: Seconds from the session's start to its end.
    seconds: Required[float]
    #: Segments that the receiver had already.
    segments_duplicate: Required[int]
    #: Segments sent again ahead of feedback, at the tail.
    segments_proactive: Required[int]
    #: Segments sent again because they were lost.
    segments_retransmitted: Required[int]
    #: Segments sent, repairs included.
    segments_sent: Required[int]
    #: The busy share of each stage, at both ends.
    stages: Required[list[StageFigures]]
    #: What carried content at the end; `None` if no session began.
    transport: Required[str]
    #: Warnings for the user although nothing failed (UDP blocked, small socket buffers).
    warnings: Required[list[str]]
    #: UDP payload or stream bytes that the sender of the content sent.
    wire_bytes_sent: Required[int]


class RunReport(SessionReport, total=False):
    """The part of a run's report that is shown with its record. docs/reference/report.md has all of it."""

    #: Why the transfer ended early, if it did.
    error: str | None
    #: The error for programs.
    error_detail: ErrorDetail | None


#: A scope allows a caller one kind of thing.
Scope: TypeAlias = Literal["read", "submit", "control", "admin"]


class SelectRules(TypedDict, total=False):
    """Which entries of the sources are taken."""

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


class SessionFacts(TypedDict, total=False):
    """The facts that a session knows of itself while it runs."""

    #: Bytes that this end has sent and that are neither acknowledged nor lost.
    in_flight_bytes: int
    #: The limit of the transfer in the last seconds, as far as this end can tell.
    limit: Required[str]
    #: The share of lost packets among those sent, 0 to 1.
    loss_fraction: Required[float]
    #: How many of these were lost.
    packets_lost: int
    #: Packets that this end has sent.
    packets_sent: int
    #: The paths that were named or found, if any.
    paths: Required[list[PathFigures]]
    #: The far end, by the name that people know.
    peer: Required[str]
    #: The rate that the controllers allow now, in bits of UDP payload per second; `None` while they do not know it,
    #: and at an end that only receives.
    rate_target_bps: float | None
    #: The smoothed round trip of the slowest flow; 0 while it is not known.
    rtt_ms: Required[float]
    #: Segments that this end has sent again because they were lost.
    segments_retransmitted: int
    #: Segments that this end has sent, including those that it has sent again.
    segments_sent: int
    #: How busy the stages of this end have been since the transfer's beginning.
    stages: Required[list[StageFigures]]
    #: How busy the stages of both ends were in about the last five seconds, the sender's first. The far end's are
    #: there once it has reported them.
    stages_now: list[StageFigures]
    #: The traffic of each path, by its number; one entry if no paths were named or found.
    traffic: list[PathTraffic]
    #: What carries content now; `None` before a session begins.
    transport: Required[str]
    #: UDP payload or stream bytes that this end has sent.
    wire_bytes_sent: Required[int]


class Snapshot(SessionFacts, total=False):
    """The state of a transfer at one moment."""

    #: Content bytes that are safe at the receiver, including those that were there before.
    bytes_done: Required[int]
    #: Content bytes of files that were there before.
    bytes_skipped: Required[int]
    #: Content bytes that will be there in the end, as far as they are known.
    bytes_total: Required[int]
    #: The number of failed entries.
    failed: Required[int]
    #: Files that are complete at the receiver.
    files_done: Required[int]
    #: Files that will be there in the end, as far as they are known.
    files_total: Required[int]
    #: Content bits per second over the last seconds.
    goodput_bps: Required[float]
    #: Content bits per second since content began to flow.
    goodput_mean_bps: Required[float]
    #: The id of the transfer's handle.
    id: Required[str]
    #: Seconds since the handle was made.
    seconds: Required[float]
    #: Its state.
    state: Required[TransferState]
    #: True if the totals are final.
    totals_known: Required[bool]
    #: Source files that were gone when they were to be read.
    vanished: int


class StageFigures(TypedDict, total=False):
    """How busy one stage was."""

    #: The share of the transfer's time in which the busiest thread of this stage worked, 0 to 1.
    busy: Required[float]
    #: "sender" or "receiver".
    end: Required[str]
    #: The name of the [`Stage`](crate::Stage), such as `read`. A later version may have further ones.
    name: Required[str]


class SyncOptions(TypedDict, total=False):
    """Makes the destination like the content of the one source."""

    #: Compare files of the same size by their digests, not by their times.
    checksum: bool
    #: How surplus entries are removed. `None`: nothing is removed.
    delete: DeleteOptions | None
    #: Take a file from the destination if it is there under another name.
    detect_renames: bool


class Temperature(TypedDict, total=False):
    """One temperature."""

    #: Degrees Celsius.
    celsius: Required[float]
    #: The chip that measures it: `coretemp`, `nvme`, `acpitz`.
    chip: Required[str]
    #: The temperature from which on it is too hot; null if the chip does not say.
    critical_celsius: float | None
    #: The part of the chip or device: `Package id 0`, `Composite`.
    label: Required[str]


class TokenPage(TypedDict, total=False):
    """A page of tokens."""

    #: The cursor for the next page, if there is one.
    next_cursor: str | None
    #: The tokens.
    tokens: Required[list[TokenView]]


class TokenWish(TypedDict, total=False):
    """The token to make."""

    #: How long it is valid: `30d`. For ever by default.
    expires_in: str | None
    #: Its name.
    name: str
    #: Where it reaches: nowhere by default. The scope `admin` needs `everything`.
    reach: CallerReach
    #: Its scopes.
    scopes: Required[list[Scope]]


#: Where a transfer is between its beginning and its end.
TransferState: TypeAlias = Literal["starting", "running", "pausing", "paused", "ended"]


class UsageRow(TypedDict, total=False):
    """The sums for one peer, user, day or value of a label."""

    #: Bytes of content that arrived.
    bytes: Required[int]
    #: How many of them did not bring everything.
    failed: Required[int]
    #: How many files arrived.
    files: Required[int]
    #: The peer, the user, the day or the label's value; empty if there is none.
    of: Required[str]
    #: The seconds of all transfers added up.
    seconds: Required[float]
    #: How many transfers ended.
    transfers: Required[int]


class UsageSums(TypedDict, total=False):
    """Sums, the largest first."""

    #: The sums.
    usage: Required[list[UsageRow]]


#: How the receiver makes sure that it has what the sender read.
VerifyMode: TypeAlias = Literal["transit", "digest", "readback"]


class Version(TypedDict, total=False):
    """The program that answers."""

    #: The version of the API.
    api: Required[int]
    #: Always `farhaul`.
    name: Required[str]
    #: The program's version.
    version: Required[str]


class WatchListOfWatchSpec(TypedDict, total=False):
    """All watched folders. There are never many, so there are no pages."""

    #: The folders.
    watches: Required[list[WatchViewOfWatchSpec]]


class WatchSpec(TypedDict, total=False):
    """A watched folder, and where its files go."""

    #: What to do with a file once it is synced at the destination: `keep` (the default), `mark` (put a file with its
    #: name and `.farhaul-done` beside it), `delete`, or `move:DIRECTORY`. The directory is an absolute path or lies
    #: below the folder, and must be on the same file system.
    after: str
    #: The destination, written like that of a job. Files get the names that they have below the folder.
    destination: Required[str]
    #: Takes no files that match one of these patterns, and enters no directories that do.
    exclude: list[str]
    #: The key that a daemon at the far end must have: `SHA256:...`.
    fingerprint: str | None
    #: The folder: an absolute path on the node's host, written like a source of a job.
    folder: Required[str]
    #: True if names that begin with a dot are taken, too.
    hidden: bool
    #: The identity of the node's configuration by which its jobs connect to the far end.
    identity: str | None
    #: Takes only files that match one of these patterns. Without any, takes all files.
    include: list[str]
    #: Labels of its jobs. The jobs also have the label `watch` with the id of the watch.
    labels: Labels
    #: Options of its jobs. The jobs are always durable, verify digests, and compare content where a file of the same
    #: size is there already, whatever these options say.
    options: JobOptions
    #: The time between two scans of the whole folder. Default `60s`, or `10s` where the kernel does not report
    #: changes.
    rescan: str | None
    #: How long a file must not have changed before it is taken. Default `30s`.
    settle: str
    #: An address that gets an HTTP POST at the end of each of its jobs.
    webhook: str | None


class WatchViewOfWatchSpec(TypedDict, total=False):
    """A watched folder as it is now. The service has the whole document that asked for it as `spec`; whoever reads it is
    content with its [`WatchHead`].
    """

    #: When it was made.
    created: Required[str]
    #: The files that have failed and have not arrived since, if there are any.
    failing: FailingFiles | None
    #: How many files are in each state.
    files: Required[dict[str, int]]
    #: Its id.
    id: Required[str]
    #: Notices for its owner, such as what keeps files from being taken.
    notices: Required[list[str]]
    #: The caller that made it: `local`, `token:ID`, or `configuration`. Its jobs have the same owner.
    owner: Required[str]
    #: A watched folder, and where its files go.
    spec: Required[dict[str, Any]]


class WatchedFilePage(TypedDict, total=False):
    """A page of files, sorted by path."""

    #: The files.
    files: Required[list[WatchedFileView]]
    #: The cursor for the next page, if there is one.
    next_cursor: str | None


class WatchedFileView(TypedDict, total=False):
    """A file of a watched folder."""

    #: Its size.
    bytes: Required[int]
    #: The code of that reason.
    code: str | None
    #: The job that has it, or had it last.
    job: str | None
    #: When it is taken again by itself.
    next_try: str | None
    #: Its path below the folder, escaped as in reports.
    path: Required[str]
    #: Since when it is in this state.
    since: Required[str]
    #: Its state: `new`, `settling`, `taken`, `changed`, `done`, `failed` or `gone`.
    state: Required[str]
    #: How many jobs in a row have failed for it.
    tries: Required[int]
    #: Why it failed, as long as it has not arrived since.
    why: str | None


def part(text: str) -> str:
    """A part of a path, in which a slash is no slash."""
    return quote(text, safe="")


class Calls:
    """One method for each request of the API."""

    def _ask(self, method: str, path: str, *, query: dict[str, Any] | None = None, body: Any = None,
             headers: dict[str, str | None] | None = None) -> Any:
        raise NotImplementedError

    def get_caps(self) -> CapList:
        """All caps, with the rates that hold now."""
        return cast("CapList", self._ask("GET", "/api/v1/caps"))

    def get_caps_name(self, name: str) -> CapView:
        """One cap."""
        return cast("CapView", self._ask("GET", f"/api/v1/caps/{part(name)}"))

    def put_caps_name(self, name: str, body: Cap) -> CapView:
        """Sets a cap: makes it, or replaces the one of this name. Running jobs go on at the new rate."""
        return cast("CapView", self._ask("PUT", f"/api/v1/caps/{part(name)}", body=body))

    def delete_caps_name(self, name: str) -> None:
        """Removes a cap. Its sessions move to the cap that fits them then."""
        self._ask("DELETE", f"/api/v1/caps/{part(name)}")

    def get_curves(self) -> LiveRatesList:
        """How fast each running transfer was over its last five minutes."""
        return cast("LiveRatesList", self._ask("GET", "/api/v1/curves"))

    def get_files(self, *, location: str | None = None) -> DirectoryView:
        """The entries of a directory, sorted by name; 10,000 at most."""
        return cast("DirectoryView", self._ask("GET", "/api/v1/files", query={"location": location}))

    def get_health_live(self) -> None:
        """Checks whether the process answers."""
        self._ask("GET", "/api/v1/health/live")

    def get_health_ready(self) -> Health:
        """Checks whether the node takes new jobs and begins them. A node that is shutting down, or whose disk is full,
        answers 503.
        """
        return cast("Health", self._ask("GET", "/api/v1/health/ready"))

    def get_history(self, *, job: str | None = None, peer: str | None = None, owner: str | None = None, state: str | None = None, label: str | None = None, text: str | None = None, since: str | None = None, until: str | None = None, count: bool | None = None, limit: int | None = None, offset: int | None = None, cursor: int | None = None) -> HistoryPage:
        """The records of jobs that have ended."""
        return cast("HistoryPage", self._ask("GET", "/api/v1/history", query={"job": job, "peer": peer, "owner": owner, "state": state, "label": label, "text": text, "since": since, "until": until, "count": count, "limit": limit, "offset": offset, "cursor": cursor}))

    def get_history_id(self, id: str) -> RecordDetail:
        """One record."""
        return cast("RecordDetail", self._ask("GET", f"/api/v1/history/{part(id)}"))

    def get_history_id_curve(self, id: str) -> RunCurve:
        """The curve of a run: at most 600 points."""
        return cast("RunCurve", self._ask("GET", f"/api/v1/history/{part(id)}/curve"))

    def get_history_id_manifest(self, id: str) -> str:
        """The manifest of a run: what became of each entry, one line each (docs/guide/verify.md)."""
        return str(self._ask("GET", f"/api/v1/history/{part(id)}/manifest"))

    def get_history_id_receipt(self, id: str) -> dict[str, Any]:
        """The receipt that both ends have signed for a run."""
        return cast("dict[str, Any]", self._ask("GET", f"/api/v1/history/{part(id)}/receipt"))

    def get_host(self) -> HostView:
        """The counts of the interfaces, processors, disks and sensors of the node's host so far. Rates are the
        differences between two answers.
        """
        return cast("HostView", self._ask("GET", "/api/v1/host"))

    def get_jobs(self, *, state: str | None = None, label: str | None = None, peer: str | None = None, owner: str | None = None, text: str | None = None, since: str | None = None, order: Literal["newest", "queue"] | None = None, counts: bool | None = None, limit: int | None = None, offset: int | None = None, cursor: str | None = None) -> JobPage:
        """The jobs that the caller may see."""
        return cast("JobPage", self._ask("GET", "/api/v1/jobs", query={"state": state, "label": label, "peer": peer, "owner": owner, "text": text, "since": since, "order": order, "counts": counts, "limit": limit, "offset": offset, "cursor": cursor}))

    def post_jobs(self, body: JobSpec, *, idempotency_key: str | None = None) -> JobView:
        """Submits a job. The answer comes when the job is on the disk; the job begins when there is room for it."""
        return cast("JobView", self._ask("POST", "/api/v1/jobs", body=body, headers={"Idempotency-Key": idempotency_key}))

    def get_jobs_id(self, id: str) -> JobDetail:
        """One job."""
        return cast("JobDetail", self._ask("GET", f"/api/v1/jobs/{part(id)}"))

    def patch_jobs_id(self, id: str, body: JobChange) -> JobView:
        """Changes a job, also while it runs."""
        return cast("JobView", self._ask("PATCH", f"/api/v1/jobs/{part(id)}", body=body))

    def post_jobs_id_cancel(self, id: str) -> JobView:
        """Cancels a job. Files that have arrived stay."""
        return cast("JobView", self._ask("POST", f"/api/v1/jobs/{part(id)}/cancel"))

    def get_jobs_id_curve(self, id: str) -> LiveCurve:
        """How the transfer of a running job goes: its last five minutes, one point a second, with its paths. `progress`
        events continue it; the curve of a whole run is in its record.
        """
        return cast("LiveCurve", self._ask("GET", f"/api/v1/jobs/{part(id)}/curve"))

    def get_jobs_id_document(self, id: str) -> JobSpec:
        """The document that a job was submitted with."""
        return cast("JobSpec", self._ask("GET", f"/api/v1/jobs/{part(id)}/document"))

    def get_jobs_id_files(self, id: str, *, result: str | None = None, run: int | None = None, limit: int | None = None, cursor: int | None = None) -> JobFilePage:
        """Lists what became of each entry of a job."""
        return cast("JobFilePage", self._ask("GET", f"/api/v1/jobs/{part(id)}/files", query={"result": result, "run": run, "limit": limit, "cursor": cursor}))

    def get_jobs_id_log(self, id: str, *, after: int | None = None, limit: int | None = None) -> LogPage:
        """The log of a job, oldest line first."""
        return cast("LogPage", self._ask("GET", f"/api/v1/jobs/{part(id)}/log", query={"after": after, "limit": limit}))

    def post_jobs_id_pause(self, id: str) -> JobView:
        """Pauses a job: it sends nothing new until it is resumed."""
        return cast("JobView", self._ask("POST", f"/api/v1/jobs/{part(id)}/pause"))

    def post_jobs_id_resume(self, id: str) -> JobView:
        """Resumes a paused job."""
        return cast("JobView", self._ask("POST", f"/api/v1/jobs/{part(id)}/resume"))

    def post_jobs_id_retry(self, id: str, *, delete_anyway: bool | None = None) -> JobView:
        """Begins another run of a job that has ended, or begins the next attempt of a waiting job now."""
        return cast("JobView", self._ask("POST", f"/api/v1/jobs/{part(id)}/retry", query={"delete_anyway": delete_anyway}))

    def post_jobs_id_take(self, id: str) -> JobView:
        """Takes over a job that was stopped because the token of its owner is not valid any more. It goes on as the
        caller's job, or waits for its next time.
        """
        return cast("JobView", self._ask("POST", f"/api/v1/jobs/{part(id)}/take"))

    def post_login(self, body: LoginWish) -> CallerView:
        """Logs in with a browser: from now on a cookie, which no script can read, stands for the token. The request
        needs no token but the one in its body.
        """
        return cast("CallerView", self._ask("POST", "/api/v1/login", body=body))

    def post_login_codes(self, body: CodeWish) -> NewCode:
        """Makes a code that logs in once, within a minute, as the service's own user. Only callers on the Unix socket
        may.
        """
        return cast("NewCode", self._ask("POST", "/api/v1/login-codes", body=body))

    def post_logout(self) -> None:
        """Ends the log-in that the request was made with."""
        self._ask("POST", "/api/v1/logout")

    def get_me(self) -> CallerView:
        """Says who makes this request."""
        return cast("CallerView", self._ask("GET", "/api/v1/me"))

    def get_openapi_json(self) -> dict[str, Any]:
        """This description of the API."""
        return cast("dict[str, Any]", self._ask("GET", "/api/v1/openapi.json"))

    def get_peers(self) -> PeerList:
        """The other hosts of the configuration, of jobs and of the history; for a token with a list of peers, only
        those.
        """
        return cast("PeerList", self._ask("GET", "/api/v1/peers"))

    def get_peers_peer(self, peer: str) -> PeerView:
        """One peer."""
        return cast("PeerView", self._ask("GET", f"/api/v1/peers/{part(peer)}"))

    def post_store_backup(self, body: BackupRequest) -> None:
        """Writes a copy of the store, as it is at one moment, while the node goes on working."""
        self._ask("POST", "/api/v1/store/backup", body=body)

    def get_store_check(self) -> Findings:
        """Checks the whole store."""
        return cast("Findings", self._ask("GET", "/api/v1/store/check"))

    def get_tokens(self, *, limit: int | None = None, cursor: str | None = None) -> TokenPage:
        """All tokens, also those that have expired or were revoked."""
        return cast("TokenPage", self._ask("GET", "/api/v1/tokens", query={"limit": limit, "cursor": cursor}))

    def post_tokens(self, body: TokenWish) -> NewToken:
        """Makes a token."""
        return cast("NewToken", self._ask("POST", "/api/v1/tokens", body=body))

    def delete_tokens_id(self, id: str) -> None:
        """Revokes a token: it is not valid from now on."""
        self._ask("DELETE", f"/api/v1/tokens/{part(id)}")

    def get_usage(self, *, by: str | None = None, since: str | None = None, until: str | None = None) -> UsageSums:
        """How much was moved, summed up by peer, user, day or label. As the sums cover all transfers, this needs the
        scope `admin`.
        """
        return cast("UsageSums", self._ask("GET", "/api/v1/usage", query={"by": by, "since": since, "until": until}))

    def get_version(self) -> Version:
        """The version of the program and of the interface."""
        return cast("Version", self._ask("GET", "/api/v1/version"))

    def get_watches(self) -> WatchListOfWatchSpec:
        """The watched folders that the caller may see."""
        return cast("WatchListOfWatchSpec", self._ask("GET", "/api/v1/watches"))

    def post_watches(self, body: WatchSpec) -> WatchViewOfWatchSpec:
        """Watches a folder: each of its files becomes a job of the caller when it is whole."""
        return cast("WatchViewOfWatchSpec", self._ask("POST", "/api/v1/watches", body=body))

    def get_watches_id(self, id: str) -> WatchViewOfWatchSpec:
        """One watched folder."""
        return cast("WatchViewOfWatchSpec", self._ask("GET", f"/api/v1/watches/{part(id)}"))

    def delete_watches_id(self, id: str) -> None:
        """Stops watching a folder. Jobs that have its files go on."""
        self._ask("DELETE", f"/api/v1/watches/{part(id)}")

    def get_watches_id_files(self, id: str, *, state: str | None = None, limit: int | None = None, cursor: str | None = None) -> WatchedFilePage:
        """Lists what became of each file of a watched folder."""
        return cast("WatchedFilePage", self._ask("GET", f"/api/v1/watches/{part(id)}/files", query={"state": state, "limit": limit, "cursor": cursor}))

    def post_watches_id_retry(self, id: str) -> None:
        """Takes files that have failed again, once they have not changed for the usual time."""
        self._ask("POST", f"/api/v1/watches/{part(id)}/retry")

    def post_watches_id_take(self, id: str) -> WatchViewOfWatchSpec:
        """Takes over a watch whose owner's token is not valid any more. From now on it is the caller's."""
        return cast("WatchViewOfWatchSpec", self._ask("POST", f"/api/v1/watches/{part(id)}/take"))

    def get_metrics(self) -> str:
        """Metrics of the node for collectors such as Prometheus: OpenMetrics, or the older text format if `Accept`
        prefers it.
        """
        return str(self._ask("GET", "/metrics"))
