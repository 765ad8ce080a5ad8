"""The C library: programs in C (tests/c, bindings/c/examples) use it as users do, between hosts and with the real daemon.

Where a program is about wrong use of the library it runs under gcc's address and undefined-behaviour sanitizers: what
Rust allocates is seen by them, its code is not instrumented.
"""

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys

import pytest

from harness import c_library, lab
from harness.c_library import C, ROOT, SANITIZED, SANITIZERS, compile_program
from harness.hosts import wait_until
from harness.packets import Udp, start_capture
from harness.play import SECONDS_MAX, FarEnd
from harness.reading import LIST, READ, STAT, STATED
from harness.trees import make_file, make_tree, sha256
from test_hostile_served import LISTS, MIB, SYMLINK, Server, counted, entry

HEADER = ROOT / "bindings/c/include/farhaul.h"
EXAMPLES = ROOT / "bindings/c/examples"
#: Symbols and layouts. They may get more, and never lose or change what is there.
ABI = ROOT / "bindings/c/abi.txt"
#: The header of the first release, with which old programs were compiled.
FIRST = C / "first"


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """Compiles a program once: `programs("wrong")`, `programs("wrong", sanitized=True)`."""
    folder, made = tmp_path_factory.mktemp("programs"), {}

    def program(name, sanitized=False, source=None, include=None):
        key = (name, sanitized)
        if key not in made:
            to = folder / f"{name}{'-sanitized' if sanitized else ''}"
            made[key] = compile_program(source or C / f"{name}.c", to, *(SANITIZERS if sanitized else ()), include=include)
        return made[key]
    return program


def run(host, *argv, expect=0, prefix=(), **options):
    done = host.run([*prefix, *argv], timeout=180, env=SANITIZED, **options)
    out, err = done.stdout.decode(), done.stderr.decode(errors="replace")
    assert done.returncode == expect, f"{argv}: exit {done.returncode}\n{out}\n{err[-4000:]}"
    assert "panicked" not in err and "Sanitizer" not in err and "runtime error" not in err, err
    return out


class Frames:
    """A program that receives on beta, and what one on alpha needs to send to it."""

    def __init__(self, net, receive, prefix=()):
        self.net, keys = net, net.folder("keys")
        self.key = keys / "sender"
        net.alpha.run(["farhaul", "keygen", "-f", self.key], check=True)
        argv = [*prefix, receive, "[::]:0", keys / "receiver", f"{self.key}.pub"]
        self.process = net.beta.start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        _, address, self.fingerprint = self.process.stdout.readline().decode().split()
        self.location = f"fh://beta:{address.rpartition(':')[2]}/frames"

    def end(self):
        """What the receiver has said at its end: its digest."""
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, (out, err)
        return out.decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def digest(said):
    return re.search(r"(\d+) frames, digest (\w{16})", said).groups()


# ---- header, symbols, layouts ----------------------------------------------------------------------------------------

def test_the_header_is_what_cbindgen_makes_of_the_source(tmp_path):
    cbindgen = ROOT / "target/tools/bin/cbindgen"
    if not cbindgen.exists():
        pytest.skip("no cbindgen: ./x bindings --header installs it")
    made = tmp_path / "farhaul.h"
    subprocess.run([ROOT / "bindings/c/header.py", cbindgen, made], check=True)
    assert made.read_text() == HEADER.read_text(), "run ./x bindings --header"


@pytest.mark.parametrize("compiler", [("gcc", "-std=c99", "-x", "c"), ("g++", "-std=c++11", "-x", "c++")])
def test_the_header_compiles_by_itself(compiler):
    source = b"#include <farhaul.h>\nint main(void) { return fh_close(0) == FH_OK; }\n"
    flags = ["-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{HEADER.parent}", "-fsyntax-only", "-"]
    subprocess.run([*compiler, *flags], input=source, check=True)


def structs(header):
    """The structs of a header, each with the names of its fields."""
    found = re.findall(r"^typedef struct (\w+) \{(.*?)^\}", header, re.S | re.M)
    return {name: re.findall(r"^    (?!//).*?(\w+)(?:\[\d+\])?;$", body, re.M) for name, body in found}


def test_symbols_and_layouts_are_those_of_the_list(tmp_path):
    library = c_library.assembled() / "lib/libfarhaul.so"
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], check=True, stdout=subprocess.PIPE, text=True).stdout
    lines = sorted(line.split()[2] for line in symbols.splitlines())
    shown = []
    for name, fields in structs(HEADER.read_text()).items():
        shown.append(f'printf("{name} %zu\\n", sizeof({name}));')
        shown += [f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));' for field in fields]
    source = tmp_path / "layout.c"
    source.write_text("#include <farhaul.h>\n#include <stdio.h>\nint main(void) {\n" + "\n".join(shown) + "\nreturn 0;\n}\n")
    layouts = subprocess.run([compile_program(source, tmp_path / "layout")], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = "\n".join(lines) + "\n\n" + layouts
    if os.environ.get("GOLDEN") == "write":
        ABI.write_text(found)
    assert found == ABI.read_text(), "what programs were compiled with has changed; if it only got more, run this with GOLDEN=write"
    assert all(line.startswith("fh_") and line.endswith("@@FARHAUL_0") for line in lines if line != "FARHAUL_0"), lines
    dynamic = subprocess.run(["readelf", "-d", library], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert "soname: [libfarhaul.so.0]" in dynamic.lower()


def test_the_reference_page_is_made_of_the_header():
    made = subprocess.run([sys.executable, "-c", "import reference; print(reference.page(reference.HEADER.read_text()), end='')"],
                          cwd=ROOT / "bindings/c", check=True, stdout=subprocess.PIPE, text=True).stdout
    assert made == (ROOT / "docs/reference/c.md").read_text(), "run ./x bindings --header"


def test_the_code_of_the_guide_compiles():
    blocks = re.findall(r"^```c\n(.*?)^```$", (ROOT / "docs/guide/from-c.md").read_text(), re.S | re.M)
    assert len(blocks) == 2
    for block in blocks:
        subprocess.run(["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{HEADER.parent}", "-fsyntax-only", "-x", "c", "-"],
                       input=block.encode(), check=True)


# ---- streams ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("header", ["today's", "the first"])
def test_two_programs_send_frames_to_each_other(net, programs, header):
    """One was compiled with the first header: it runs with this library."""
    first = header == "the first"
    names = [f"{name}{'-first' if first else ''}" for name in ("frames_receive", "frames_send")]
    receive, send = (programs(name, source=EXAMPLES / f"{name.removesuffix('-first')}.c", include=FIRST if first else None)
                     for name in names)
    assert all(len((EXAMPLES / f"{name}.c").read_text().splitlines()) <= 80 for name in ("frames_receive", "frames_send"))
    with Frames(net, receive) as frames:
        sent = run(net.alpha, send, frames.location, frames.fingerprint, frames.key, "120")
        assert digest(sent) == digest(frames.end()) and digest(sent)[0] == "120"


def test_a_static_program_needs_no_library(tmp_path):
    folder = c_library.assembled()
    flags = subprocess.run(["pkg-config", "--static", "--libs-only-l", "farhaul"], check=True, stdout=subprocess.PIPE, text=True,
                           env={**os.environ, "PKG_CONFIG_PATH": str(folder / "lib/pkgconfig")}).stdout.split()
    program = tmp_path / "send"
    subprocess.run(["gcc", "-O1", f"-I{HEADER.parent}", EXAMPLES / "frames_send.c", folder / "lib/libfarhaul.a", "-o", program,
                    *(flag for flag in flags if flag != "-lfarhaul")], check=True)
    needed = subprocess.run(["readelf", "-d", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert "libfarhaul" not in needed
    done = subprocess.run([program], stderr=subprocess.PIPE)
    assert done.returncode == 2 and b"usage" in done.stderr


def test_a_sender_whose_receiver_is_killed_hears_it(net, programs):
    receive, send = (programs(name, source=EXAMPLES / f"{name}.c") for name in ("frames_receive", "frames_send"))
    with Frames(net, receive) as frames:
        argv = [send, frames.location, frames.fingerprint, frames.key, "10000000"]
        process = net.alpha.start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        before = net.beta.device_bytes()
        wait_until(lambda: net.beta.device_bytes() > before + 20_000_000, what="frames arrive", seconds=60)
        frames.process.send_signal(signal.SIGKILL)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 1 and re.search(r"error: FH-PEER-(GONE|SILENT|ENDED)", err.decode()), err


def test_a_stream_over_standard_input_and_output_arrives_whole(net, programs):
    """ssh starts the receiving program, which also prints something."""
    program = programs("ends")
    report = json.loads(run(net.alpha, program, "beta", program, "40"))
    assert report["bytes"] == 40 * MIB and report["transport"] == "udp" and "paths" not in report
    assert report["block_memory"]["bytes"] > MIB


def test_a_stream_takes_several_paths(programs, tmp_path):
    """The second of two links carries the blocks for which the first one is out of use."""
    program, blocks = programs("ends"), 60
    with lab.Up("--home", str(tmp_path), "--rtt", "10ms", "--rate", "200m", "--link", "rtt=20ms") as up:
        at = [up.environment[f"FARHAUL_LAB_{name}"] for name in ("A", "B", "A_LINK2", "B_LINK2")]
        before = [link["forward"]["passed_bytes"] for link in up.stats()["links"]]
        done = up.execute("a", program, at[1], program, str(blocks), *at, timeout=120)
        passed = [link["forward"]["passed_bytes"] - then for link, then in zip(up.stats()["links"], before, strict=True)]
    report = json.loads(done.stdout)
    assert report["bytes"] == blocks * MIB
    assert [(path["local"], path["remote"], path["answered"]) for path in report["paths"]] == [(*at[:2], True), (*at[2:], True)]
    assert passed[1] > blocks / 4 * MIB and passed[0] > 2 * MIB, passed


@pytest.fixture(scope="session")
def counter(tmp_path_factory):
    """A library that counts what the process beside it allocates and copies (tests/c/counter.c)."""
    made = tmp_path_factory.mktemp("counter") / "counter.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-fno-builtin", C / "counter.c", "-o", made], check=True)
    return made


def figures_of(err):
    """(allocations, allocated bytes, copies, copied bytes) of a process."""
    return [int(figure) for figure in re.search(r"^counted: (\d+) (\d+) (\d+) (\d+)$", err, re.M).groups()]


def frames_counted(net, programs, counter, frames):
    """What sender and receiver of so many frames of 1 MiB have allocated and copied."""
    receive, send = (programs(name, source=EXAMPLES / f"{name}.c") for name in ("frames_receive", "frames_send"))
    preload = ["env", f"LD_PRELOAD={counter}"]
    with Frames(net, receive, prefix=preload) as receiver:
        done = net.alpha.run([*preload, send, receiver.location, receiver.fingerprint, receiver.key, str(frames)], timeout=180)
        _, said = receiver.process.communicate(timeout=60)
        assert done.returncode == 0 and receiver.process.returncode == 0, (done, said)
    return figures_of(done.stderr.decode()), figures_of(said.decode())


def test_a_block_costs_no_allocation_and_no_copy_but_sealing_and_opening(net, programs, counter):
    """The threads that blocks pass allocate as much for many blocks as for few, except that a receiver's thread which waits for a
    block takes a few bytes for its wait. A sender seals from the block into datagrams. A receiver opens a datagram into its block,
    or where it lies, and then copies it there: no byte more than once."""
    few, many = 300, 1300
    before, after = (frames_counted(net, programs, counter, frames) for frames in (few, many))
    blocks = many - few
    for end, first, second in zip(("sender", "receiver"), before, after):
        allocations, allocated, copies, copied = ((late - early) / blocks for late, early in zip(second, first))
        print(f"{end}: {allocations:.3f} allocations of {allocated:.1f} bytes a block, {copies:.2f} copies of {copied:.0f} bytes")
        assert allocations < (0.05 if end == "sender" else 1.5) and allocated < 1000, (end, allocations, allocated)
        assert copied < (10_000 if end == "sender" else 1.05 * (1 << 20)), (end, copied)


# ---- wrong use -------------------------------------------------------------------------------------------------------

@pytest.fixture
def key(net):
    path = net.folder("keys") / "key"
    net.alpha.run(["farhaul", "keygen", "-f", path], check=True)
    return path


def test_each_function_refuses_each_wrong_argument(net, programs, key):
    assert run(net.alpha, programs("wrong", sanitized=True), key, net.folder("wrong")) == "0 faults\n"


def test_handles_are_used_by_several_threads(net, programs, key):
    assert run(net.alpha, programs("threads", sanitized=True), key) == "0 faults\n"


@pytest.mark.slow
def test_valgrind_finds_nothing(net, programs, key):
    """Its processor has no AVX-512, so the library takes other ways than on the host."""
    if not shutil.which("valgrind"):
        pytest.skip("no valgrind: ./x bench core installs it")
    prefix = ["valgrind", "--error-exitcode=9", "--quiet", "--fair-sched=yes", f"--suppressions={C / 'valgrind.supp'}"]
    assert run(net.alpha, programs("wrong"), key, net.folder("wrong"), "2", prefix=prefix).endswith("0 faults\n")


# ---- files -----------------------------------------------------------------------------------------------------------

def test_files_go_to_a_daemon_and_are_read_there(net, programs):
    near, far = net.folder("near"), net.daemon.root / "c"
    far.mkdir()
    make_file(near / "large", 20_000_000)
    make_tree(near / "tree")
    (net.daemon.root / "outside").write_text("of nobody's business")
    (far / "link").symlink_to("/etc/passwd")
    said = run(net.alpha, programs("files", sanitized=True), near, "fh://beta/c", net.daemon.fingerprint, cwd=near)
    assert said.endswith("0 faults\n"), said
    assert sha256(far / "large") == sha256(near / "large") == sha256(near / "back")
    assert not (far / "cancelled").exists()
    files = sum(path.stat().st_size for path in (near / "tree").rglob("*") if path.is_file() and not path.is_symlink())
    assert f"tree {files}\n" in said
    assert (far / "kept").is_dir() and not (far / "names").exists()
    assert (net.daemon.root / "outside").read_text() == "of nobody's business"


def test_names_change_over_ssh(net, programs):
    """The tests' ssh leads alpha to beta."""
    folder = net.folder("names")
    said = run(net.alpha, programs("names", sanitized=True), f"beta:{folder}")
    assert said.endswith("0 faults\n"), said
    assert [path.name for path in folder.iterdir()] == ["kept"]


LOOKS = {
    **{f"list of {name}": ("list", LIST, case) for name, case in LISTS.items()},
    "link with an endless target": ("stat", STAT, lambda server, op: server.say(STATED, op, counted(b"d"), entry(SYMLINK, b"x" * 60_000))),
    "answer of another kind": ("stat", STAT, lambda server, op: server.send((op, 0, 0, b"x", True))),
    **{f"{verb} of overlapping pieces": (verb, READ, lambda server, op: [
        server.send((op, 0, at, bytes(MIB // 2), False)) for at in (0, 1)]) for verb in ("read", "ranges")},
    "bytes that nobody asked for": ("ranges", READ, lambda server, op: server.send((op + 7, 0, 0, b"x", True))),
}


@pytest.mark.parametrize("case", LOOKS)
def test_a_far_end_that_lies_is_an_error(net, programs, case):
    verb, question, lie = LOOKS[case]

    def play(_hello, session):
        server = Server(session)
        lie(server, server.asked(question).leb())
        server.until_refused()

    with FarEnd(net, play, features=[]) as far:
        options = '{"connection": {"remote_program": "%s"}}' % far.program
        done = net.alpha.run([programs("reader", sanitized=True), "beta:/dir", options, verb, ""], timeout=SECONDS_MAX, env=SANITIZED)
    assert done.returncode == 0 and done.stdout.startswith(b"FH-MISBEHAVED "), done
    assert b"panicked" not in done.stderr and b"Sanitizer" not in done.stderr, done


# ---- fork ------------------------------------------------------------------------------------------------------------

def our_numbers(frames):
    """Flow and number of each data packet, from its header of eight clear bytes."""
    headers = [Udp(frame).payload[:8] for frame in frames]
    return [struct.unpack(">Q", header)[0] for header in headers if len(header) == 8 and header[0] == 5]


def test_children_of_a_sender_send_nothing_of_its_session(own_net, programs):
    """No packet number is used twice, and every frame arrives, while twenty children come and go."""
    net = own_net
    net.pair.plain_link()
    receive = programs("frames_receive", source=EXAMPLES / "frames_receive.c")
    with Frames(net, receive) as frames:
        captured = start_capture(net.beta, 30, count=20_000)
        process = net.alpha.start([programs("forks"), frames.location, frames.fingerprint, frames.key, "60", net.folder("files")],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        numbers = our_numbers(captured())
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, (out, err)
        assert digest(out.decode()) == digest(frames.end())
    assert len(numbers) > 5000 and len(numbers) == len(set(numbers))
