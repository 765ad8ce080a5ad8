"""Clients of `read` that ask for what they may not have, or for too much: what they get, and how much the
daemon keeps.

The client is harness/reading.py; the real daemon is at the other end. After each case the same daemon serves an honest client,
nothing has panicked, and no byte from outside the root has come.
"""

import contextlib
import dataclasses
import os
import threading

import pytest

from harness import peer
from harness.hosts import USER, wait_until
from harness.peer import counted, leb
from harness.play import daemon_session
from harness.product import EXIT_PROTOCOL, Daemon, cp, keygen
from harness.reading import (ADVISE, CANCEL, CLOSE, DIGEST, FILES_MAX, FIND, LIST, LISTS_MAX, MORE, OPEN, OPENED, OUTSTANDING_MAX,
                             RANGES_MAX, READ, STAT, Refused, message, range_list, reader,
                             reader_over_ssh, wish)
from harness.sampling import MemoryWatch, resident_bytes
from harness.trees import make_file, sha256

MIB = 1 << 20
NOT_FOUND, PERMISSION_DENIED, NOT_A_DIRECTORY, BAD_PATH = 1022, 1023, 1025, 1026
MISBEHAVED = 2013
MISBEHAVIOURS = {"SenselessMessage": 0x201, "UnexpectedMessage": 0x202, "SecondRequest": 0x20d, "TooMuchAsked": 0x701, "FileNumber": 0x702,
                 "ImpossibleRange": 0x703}
PUBLIC, SECRET = b"public " * 100, b"secret" * 70
HUGE = 1 << 40


class Guarded:
    """A folder in a daemon's root, and one outside of the root, of which a client must see nothing."""

    def __init__(self, net):
        self.net = net
        self.inside = net.daemon.root / f"guarded{len(list(net.daemon.root.iterdir()))}"
        self.inside.mkdir()
        self.outside = net.folder("outside")
        (self.outside / "secret").write_bytes(SECRET)
        (self.inside / "file").write_bytes(PUBLIC)
        with (self.inside / "huge").open("wb") as file:
            file.truncate(HUGE)

    def path(self, name):
        """The path of a name as a client writes it."""
        return f"{self.inside.name}/{name}"

    def check(self):
        """The daemon still serves a client that keeps to the rules."""
        with reader(self.net) as far:
            file, _ = far.open(self.path("file"))
            assert far.read(file, (0, 10), (7, HUGE)) == [PUBLIC[:10], PUBLIC[7:]]
            assert len(far.list(self.path(""))) > 1
            far.finish()
        assert self.net.daemon.process.poll() is None and "panicked" not in self.net.daemon.log_text()


@pytest.fixture
def guarded(net):
    made = Guarded(net)
    yield made
    made.check()


@contextlib.contextmanager
def ends(net, name, words="broke the protocol"):
    """The session in this context ends, and the daemon's log has one more line with this misbehaviour."""
    what = f'misbehaviour="{name}"' if words == "broke the protocol" else words
    told = net.daemon.log_text().count(what)
    with contextlib.suppress(peer.Closed):
        yield
    wait_until(lambda: net.daemon.log_text().count(what) > told, what=f"the daemon logs {what}")


# ---- what cannot be asked for ----------------------------------------------------------------------------------------

def says(code, *parts):
    return lambda far, _guarded: far.say(code, *parts)


def says_of_a_file(code, *parts):
    """Says a message about an open file; its body begins with 1, the operation, and the file's number."""
    def script(far, guarded):
        file, _ = far.open(guarded.path("file"))
        far.say(code, 1, file, *parts)
    return script


def reads(*ranges, first=0):
    return says_of_a_file(READ, first, range_list(ranges))


def opens_twice(far, guarded):
    far.say(OPEN, 5, counted(guarded.path("file").encode()))
    far.say(OPEN, 5, counted(guarded.path("huge").encode()))


def closes_twice(far, guarded):
    file, _ = far.open(guarded.path("file"))
    far.close(file)
    far.close(file)


def reads_what_was_closed(far, guarded):
    file, _ = far.open(guarded.path("file"))
    far.close(file)
    far.begin_read(file, (0, 1))


def opens_too_many(far, guarded):
    far.say_all(b"".join(message(OPEN, n, counted(guarded.path("file").encode())) for n in range(FILES_MAX + 1)))


def opens_too_many_that_are_not_there(far, guarded):
    far.say_all(b"".join(message(OPEN, n, counted(b"none")) for n in range(FILES_MAX + 1)))


def lists_too_many(far, guarded):
    path = counted(guarded.path("").encode())
    far.say_all(b"".join(message(LIST, n, 0, 0, path) for n in range(LISTS_MAX // 2)))
    far.say_all(b"".join(message(FIND, LISTS_MAX + n, 0, path) for n in range(LISTS_MAX // 2 + 1)))


def asks_too_much(far, guarded):
    """Asks for 2^20 ranges of one operation. None is answered, as the client grants no credit."""
    file = far.begin_open(guarded.path("huge"))
    ranges = range_list([(0, 1 << 20)] * RANGES_MAX)
    for first in range(0, 1 << 20, RANGES_MAX):
        far.say_all(message(READ, 1, file, first, ranges))


def advises_too_much(far, guarded):
    """The thread that would take the advice is busy with a long range, for which there is no credit."""
    file = far.begin_open(guarded.path("huge"))
    far.say_all(message(READ, 1, file, 0, range_list([(0, HUGE)] * 64)))
    for _ in range(OUTSTANDING_MAX // RANGES_MAX + 8):
        far.say_all(message(ADVISE, file, range_list([(0, 0)] * RANGES_MAX)))


BROKEN = {
    "a range that ends beyond all numbers": ("ImpossibleRange", reads((2**64 - 1, 1))),
    "a range as long as numbers go": ("ImpossibleRange", reads((0, 5), (1, 2**64 - 1))),
    "a range of 2^63 from 2^63 on": ("ImpossibleRange", reads((2**63, 2**63))),
    "ranges whose numbers go beyond all": ("ImpossibleRange", reads((0, 1), (0, 1), first=2**64 - 1)),
    "more ranges than a message has": ("SenselessMessage", reads(*[(0, 1)] * (RANGES_MAX + 1))),
    "2^63 ranges, but for their bytes": ("SenselessMessage", says_of_a_file(READ, 0, 2**63)),
    "2^20 ranges": ("TooMuchAsked", asks_too_much),
    "advice without end": ("TooMuchAsked", advises_too_much),
    "more advice than a message has": ("SenselessMessage", says(ADVISE, 1, range_list([(0, 1)] * (RANGES_MAX + 1)))),
    "a file that was never opened": ("FileNumber", says(READ, 1, 1, 0, range_list([(0, 1)]))),
    "a digest of no file": ("FileNumber", says(DIGEST, 1, 2**64 - 1, 0, counted(b"md5"))),
    "advice on no file": ("FileNumber", says(ADVISE, 1, 0)),
    "the close of no file": ("FileNumber", says(CLOSE, 0)),
    "a number for two files": ("FileNumber", opens_twice),
    "a close too many": ("FileNumber", closes_twice),
    "a file that was closed": ("FileNumber", reads_what_was_closed),
    "1,025 files": ("TooMuchAsked", opens_too_many),
    "1,025 files that are not there": ("TooMuchAsked", opens_too_many_that_are_not_there),
    "65 lists": ("TooMuchAsked", lists_too_many),
    "a path that is too long": ("SenselessMessage", says(OPEN, 1, counted(b"x/" * 2048))),
    "a path with a zero byte": ("SenselessMessage", says(STAT, 1, 1, counted(b"a\0b"))),
    "a path beyond the message": ("SenselessMessage", says(LIST, 1, 1, 1, leb(4000), b"x")),
    "a pattern that is too long": ("SenselessMessage", says(FIND, 1, 1, counted(b"*" * 4096))),
    "an unknown digest": ("SenselessMessage", says_of_a_file(DIGEST, 0, counted(b"crc32"))),
    "neither all of a file nor a range": ("SenselessMessage", says_of_a_file(DIGEST, 2, 0, 1, counted(b"md5"))),
    "neither through links nor not": ("SenselessMessage", says(STAT, 1, 2, counted(b"x"))),
    "no such message": ("SenselessMessage", says(85)),
    "a message of a copy": ("SenselessMessage", says(peer.DECIDE, 0, 0)),
    "something behind": ("SenselessMessage", says(CANCEL, 1, 1)),
    "a message that is cut": ("SenselessMessage", says(MORE, 1)),
    "what a server says": ("UnexpectedMessage", says(OPENED, 1, bytes(7))),
    "another request": ("SecondRequest", lambda far, _guarded: far.session.message(peer.OPEN, leb(3) + b"{}")),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_asked_for_ends_the_session(net, guarded, case):
    misbehaviour, script = BROKEN[case]
    with reader(net, window=0) as far, ends(net, misbehaviour):
        with contextlib.suppress(peer.Closed):
            script(far, guarded)
        complaint = far.ended()
        # The daemon's last words may be lost: TCP drops them if the daemon closes with unread data.
        assert complaint is None or complaint[:3] == (EXIT_PROTOCOL, MISBEHAVED, MISBEHAVIOURS[misbehaviour]), complaint


def test_over_ssh_the_far_end_says_why_and_ends(net):
    with reader_over_ssh(net.beta) as (far, process):
        with contextlib.suppress(peer.Closed):
            far.say(CLOSE, 0)
        complaint = far.ended()
        assert complaint is None or complaint.misbehaviour == MISBEHAVIOURS["FileNumber"], complaint
    assert process.returncode == EXIT_PROTOCOL and b"panicked" not in process.stderr.read()


# ---- what is harmless ------------------------------------------------------------------------------------------------

def test_cancels_of_what_was_never_asked_are_passed_over(net, guarded):
    with reader(net) as far:
        far.say_all(b"".join(message(CANCEL, n * 2**50) for n in range(5000)))
        far.say_all(b"".join(message(MORE, n, 2**64 - 1) for n in range(2000)))
        assert far.stat(guarded.path("file")).kind == "file"
        far.finish()


def test_a_storm_of_reads_and_cancels_is_weathered(net, guarded):
    with reader(net, window=4) as far:
        file, _ = far.open(guarded.path("huge"))
        out = bytearray()
        for op in range(100, 3100):
            ranges = [(op, 70_000)] if op % 2 else [(op * 10, 100)] * 3
            out += message(READ, op, file, 0, range_list(ranges)) + message(CANCEL, op)
            if op % 3 == 0:
                out += message(CANCEL, op)
        far.ops = 5000
        far.say_all(bytes(out))
        assert far.read(file, (5, 5)) == [bytes(5)]
        far.finish()


def test_who_cancels_all_may_ask_for_as_much_again(net, guarded):
    """Without credit the server cannot answer any range. Cancelled ranges must not count against new ones all
    the same."""
    with reader(net, window=0) as far:
        file = far.begin_open(guarded.path("huge"))
        ranges = range_list([(0, MIB)] * RANGES_MAX)
        for op in range(1, 6):
            for first in range(0, OUTSTANDING_MAX // 2, RANGES_MAX):
                far.say_all(message(READ, op, file, first, ranges))
            far.say_all(message(CANCEL, op))
        far.ops = 6
        for turn in range(8):
            lists = range(100 * turn, 100 * turn + LISTS_MAX // 2)
            far.say_all(b"".join(message(LIST, 1000 + n, 1, 0, counted(b"")) for n in lists))
            far.say_all(b"".join(message(CANCEL, 1000 + n) for n in lists))
        assert far.stat(guarded.path("file")).kind == "file"


def test_one_number_for_several_operations_harms_who_uses_it(net, guarded):
    with reader(net) as far:
        path = counted(guarded.path("").encode())
        out = message(LIST, 7, 1, 0, path) * 3 + message(FIND, 7, 5, path) + message(STAT, 7, 1, path)
        far.say_all(out + message(MORE, 7, 1 << 20) + message(CANCEL, 7) + message(LIST, 7, 1, 100, path))
        far.ops = 10
        assert far.stat(guarded.path("file")).kind == "file"


def test_numbers_at_the_end_of_all_numbers_are_numbers(net, guarded):
    last = 2**64 - 1
    with reader(net) as far:
        far.say(OPEN, last, counted(guarded.path("file").encode()))
        far.say(READ, last - 1, last, last, range_list([(last, 0)]))
        far.say(READ, last - 2, last, 0, leb(0))
        far.say(ADVISE, last, range_list([(last, last), (0, last)]))
        far.say(DIGEST, last - 3, last, 1, last, last, counted(b"sha256"))
        far.say(LIST, last - 4, last, last, counted(b""))
        far.say(MORE, last - 4, last)
        far.ops = last
        far.wait(lambda: ("op", last - 3) in far.answers and any(piece[:2] == (last - 1, last) for piece in far.pieces))
        assert far.answers["op", last - 3][0] == 0
        far.wait(lambda: any(piece[0] == last - 4 and piece[4] for piece in far.pieces))


def test_blocks_from_who_reads_are_dropped(net, guarded):
    with reader(net) as far:
        far.stat("")
        far.session.segment(0, 0, b"evil" + bytes(8), True)
        far.session.segment(1 << 39, 0, b"evil" + (1).to_bytes(8, "little"), True)
        assert far.stat(guarded.path("file")).kind == "file"
        far.finish()


def test_who_finishes_with_all_of_it_outstanding_is_let_go(net, guarded):
    with reader(net, window=1) as far:
        file, _ = far.open(guarded.path("huge"))
        far.begin_read(file, *[(0, HUGE)] * 500)
        far.begin_digest(file, "md5")
        far.begin_list("", room=0)
        far.finish()


def test_who_goes_without_a_word_leaves_nothing_behind(net, guarded):
    """Its descriptors and threads are free again."""
    def count():
        return len(os.listdir(f"/proc/{net.daemon.process.pid}/fd")), len(os.listdir(f"/proc/{net.daemon.process.pid}/task"))

    before = count()
    for _ in range(3):
        with reader(net, window=0) as far:
            for _ in range(200):
                far.begin_read(far.begin_open(guarded.path("huge")), (0, HUGE))
            far.open(guarded.path("file"))
    wait_until(lambda: all(now <= then + 4 for now, then in zip(count(), before)), what="descriptors and threads are free")


# ---- who takes nothing -----------------------------------------------------------------------------------------------

MEMORY, KEY_MEMORY = 320, 96


@pytest.fixture
def watched(own_net):
    """A daemon with little memory for each key, which also knows the key of another user."""
    keys = [own_net.key, keygen(own_net.alpha, user=USER)]
    arguments = ["--memory", f"{MEMORY}M", "--memory-per-key", f"{KEY_MEMORY}M"]
    net = dataclasses.replace(own_net, daemon=Daemon(own_net.pair, own_net.beta, keys, port=33120, arguments=arguments))
    made = Guarded(net)
    make_file(net.daemon.root / "copied", 3 * MIB)
    near = net.folder("near")
    near.chmod(0o777)
    before = resident_bytes(net.daemon.process.pid)
    with MemoryWatch([net.daemon.process.pid]) as watch:
        def others_are_served():
            cp(net.alpha, "--accept-new", net.daemon.url("copied"), near / "copied", user=USER)
            assert sha256(near / "copied") == sha256(net.daemon.root / "copied")

        yield net, made, others_are_served
    # The 64 MiB are for the honest copies and for the daemon itself.
    assert watch.peak < before + (KEY_MEMORY + 64) * MIB, (before // MIB, watch.peak // MIB)
    made.check()


def test_who_grants_no_credit_holds_up_only_himself(watched):
    net, guarded, others_are_served = watched
    with reader(net, window=0) as far:
        file, _ = far.open(guarded.path("huge"))
        far.begin_read(file, *[(n * MIB, HUGE - n * MIB) for n in range(1000)])
        for _ in range(20):
            far.say_all(message(READ, far.ops + 1, file, 0, range_list([(0, 30)] * RANGES_MAX)))
        others_are_served()
        assert far.stat(guarded.path("file")).kind == "file"


def test_who_reads_nothing_holds_up_only_himself(watched):
    net, guarded, others_are_served = watched
    with reader(net) as far:
        file, _ = far.open(guarded.path("huge"))
        far.session.granted = 1 << 30
        far.session.feedback()
        # From here on the client reads nothing from the stream.
        out = message(READ, 1, file, 0, range_list([(0, HUGE)] * 200))
        out += b"".join(message(STAT, 10 + n, 1, counted(guarded.path("huge").encode() + b"/." * 1000)) for n in range(300))
        far.session.stream.settimeout(5)
        with contextlib.suppress(peer.Closed):
            far.session.words(out)
        others_are_served()
        far.session.stream.close()


def test_digests_without_end_are_counted(watched):
    """Each digest keeps its state until it is done, and a digest of a huge file never is."""
    net, guarded, others_are_served = watched
    with reader(net) as far, ends(net, None, "FH-SHARE-USED"):
        file, _ = far.open(guarded.path("huge"))
        others_are_served()
        for start in range(0, OUTSTANDING_MAX, 1000):
            far.say_all(b"".join(message(DIGEST, start + n, file, 0, counted(b"blake3")) for n in range(1000)))
        far.ended()
    others_are_served()


# ---- what lies outside -----------------------------------------------------------------------------------------------

def make_ways_out(guarded):
    """Makes names that lead out of the root, each in another way."""
    inside, outside = guarded.inside, guarded.outside
    up = os.path.relpath(outside, inside)
    for name, target in {"absolute": outside, "relative": up, "file-absolute": outside / "secret", "file-relative": f"{up}/secret",
                         "chain": "relative", "up": "..", "far-up": "../..", "top": "/", "own": inside, "loop": "loop",
                         "proc": "/proc/self/root"}.items():
        (inside / name).symlink_to(target)
    (inside / "folder").mkdir()
    (inside / "folder/link").symlink_to(f"../{up}")
    beside = os.path.relpath(outside, guarded.net.daemon.root)
    return ([f"{beside}/secret", f"/{beside}/secret", f"{outside}/secret", f"{inside.name}/{up}/secret", "..", "../", "/.."] +
            [guarded.path(name) for name in (
                "absolute/secret", "relative/secret", "file-absolute", "file-relative", "chain/secret", f"up/{up}/secret",
                f"up/{beside}/secret", "far-up", "far-up/x", f"top{outside}/secret", "own/file", "loop", "loop/x",
                f"proc{outside}/secret", "folder/link/secret", f"folder/../{up}/secret", f"./folder/./../../{up}/secret")])


def test_no_path_leads_out_of_the_root(net, guarded):
    ways = make_ways_out(guarded)
    with reader(net) as far:
        for path in ways:
            for call in (far.open, far.stat, far.list):
                with pytest.raises(Refused) as failed:
                    call(path)
                assert failed.value.code in (NOT_FOUND, PERMISSION_DENIED, BAD_PATH, NOT_A_DIRECTORY, 4005), (path, failed.value)
            with contextlib.suppress(Refused):
                far.stat(path, follow=False)
        # A link that leads up, but not out of the root, is followed.
        assert far.stat(guarded.path(f"up/{guarded.path('file')}")).identity.size == len(PUBLIC)
        for pattern in ["../*", "/../*", guarded.path("absolute/*"), guarded.path("relative/*"), guarded.path("far-up/*"),
                        guarded.path("top/*"), guarded.path("*/secret"), guarded.path("file-*/"), f"{guarded.outside}/*",
                        guarded.path("folder/link/*")]:
            with contextlib.suppress(Refused):
                found = far.find(pattern)
                # A pattern that matches nothing stands for itself.
                assert found == [os.fsencode(pattern)] or not any(b"secret" in path for path in found), (pattern, found)
        for depth in (0, 1, 5):
            listed = far.list(guarded.path(""), depth)
            assert not any(b"secret" in record[1].path for record in listed if record[0] == "entry")
        far.finish()


@pytest.mark.parametrize("what", ["directory", "file"])
def test_what_is_swapped_for_a_link_meanwhile_is_never_followed_out(net, guarded, what):
    """A name leads inside and outside in turn, and changes as fast as possible."""
    inside = guarded.inside
    (inside / "real").mkdir()
    (inside / "real/secret").write_bytes(PUBLIC)
    if what == "directory":
        there, aside, way = inside / "real", inside / "link", inside / "way"
        aside.symlink_to(guarded.outside)
    else:
        there, aside, way = inside / "real/plain", inside / "link", inside / "way"
        there.write_bytes(PUBLIC)
        aside.symlink_to(guarded.outside / "secret")
    stop, turns = threading.Event(), [0]

    def swap():
        while not stop.is_set():
            for parked in (there, aside):
                os.rename(parked, way)
                turns[0] += 1
                os.rename(way, parked)

    path = guarded.path("way/secret" if what == "directory" else "way")
    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        with reader(net) as far:
            for _ in range(40):
                files = [far.begin_open(path) for _ in range(10)]
                reads = [far.begin_read(file, (0, 5000)) for file in files]
                stats = [far.begin_stat(path) for _ in range(5)]
                lists = [far.begin_list(guarded.path("way"), depth=0) for _ in range(3)]
                finds = [far.begin_find(guarded.path("way/*")) for _ in range(2)]
                digests = [far.begin_digest(file, "md5") for file in files[:3]]
                for op in reads:
                    with contextlib.suppress(Refused):
                        seen.add(far.content(op, 1)[0])
                for op in stats:
                    with contextlib.suppress(Refused):
                        assert far.answer("op", op).identity.size != len(SECRET)
                for op in digests:
                    with contextlib.suppress(Refused):
                        assert far.answer("op", op)[0] == len(PUBLIC)
                for op in lists:
                    with contextlib.suppress(Refused):
                        for record in far.stream(op, 1 << 20, 1):
                            assert record[0] != "entry" or record[1].kind != "file" or record[1].identity.size == len(PUBLIC), record
                for op in finds:
                    with contextlib.suppress(Refused):
                        far.stream(op, 1 << 20, 1)
                for file in files:
                    far.wait(lambda file=file: ("file", file) in far.answers)
                    far.close(file)
            far.finish()
    finally:
        stop.set()
        thread.join()
    assert seen <= {PUBLIC} and turns[0] > 100, (len(seen), turns)


def test_a_directory_that_changes_while_it_is_paged_is_listed_to_its_end(net, guarded):
    folder = guarded.inside / "folder"
    folder.mkdir()
    stays = {f"stays{n:0>60}" for n in range(300)}
    for name in stays:
        (folder / name).touch()
    stop, turns = threading.Event(), [0]

    def change():
        while not stop.is_set():
            for n in range(100):
                (folder / f"comes{n}").mkdir()
                (folder / f"comes{n}/below").touch()
            for n in range(100):
                os.rename(folder / f"comes{n}/below", folder / f"goes{n}")
                (folder / f"comes{n}").rmdir()
                (folder / f"goes{n}").unlink()
            turns[0] += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        with reader(net) as far:
            for _ in range(8):
                listed = far.list(guarded.path("folder"), depth=0, room=1000, more=1000)
                names = [os.fsdecode(record[1].path) for record in listed if record[0] == "entry"]
                assert len(names) == len(set(names)) and stays < set(names)
            far.finish()
    finally:
        stop.set()
        thread.join()
    assert turns[0] > 0


# ---- what a key may do -----------------------------------------------------------------------------------------------

def test_who_may_only_write_reads_nothing(own_net):
    own_net.daemon.keys.write_text(f"write-only {own_net.key}")
    (own_net.daemon.root / "file").write_bytes(PUBLIC)
    with daemon_session(own_net, wish()) as (reply, _session):
        assert reply["refusal"]["code"] == "FH-FORBIDDEN" and reply["refusal"]["exit"] == 4, reply
    own_net.daemon.keys.write_text(f"read-only {own_net.key}")
    with reader(own_net) as far:
        assert far.stat("file").identity.size == len(PUBLIC)


def test_a_keys_root_is_all_that_there_is(own_net):
    root = own_net.daemon.root
    (root / "mine/sub").mkdir(parents=True)
    (root / "mine/file").write_bytes(PUBLIC)
    (root / "theirs").mkdir()
    (root / "theirs/secret").write_bytes(SECRET)
    (root / "mine/link").symlink_to("../theirs")
    (root / "mine/sub/up").symlink_to("..")
    own_net.daemon.keys.write_text(f'root="{root}/mine" {own_net.key}')
    with reader(own_net) as far:
        assert sorted(entry.path for _, entry in far.list("/")) == [b"", b"file", b"link", b"sub"]
        assert far.stat("sub/up/file").identity.size == len(PUBLIC)
        for path in ("theirs/secret", "../theirs/secret", "/theirs/secret", "link/secret", "sub/up/../theirs", "mine/file",
                     f"{root}/theirs/secret", "sub/up/link/secret"):
            for call in (far.open, far.stat, far.list):
                with pytest.raises(Refused):
                    call(path)
        assert far.find("*/*") == [b"sub/up"]
        far.finish()
