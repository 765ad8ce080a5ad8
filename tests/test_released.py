"""Released versions and this one talk to each other.

vectors/released has for each release the bytes of its messages, which unit tests of the crates read, and whole sessions.
Here each end of such a session is played to the product, which is the other end. `--record` records the sessions that
a release does not have yet, with the program under test, which then has to be that release. With `--full` the programs
of the releases are built from their tags, and work with the one under test.
"""

import base64
import json
import os
import shutil
import subprocess

import pytest

from conftest import FAILING_PORTS
from harness import peer, recorded
from harness.play import FarEnd, endpoint
from harness.product import EXIT_OK, ROOT, Daemon, cp
from harness.trees import differences

RELEASED = ROOT / "vectors/released"
#: What each session does: the verb, its direction, its options.
SESSIONS = {
    "push": ("cp", "push", []),
    "pull": ("cp", "pull", []),
    "sync": ("sync", "push", ["--delete"]),
}
CASES = [(release.name, name) for release in sorted(RELEASED.iterdir()) for name in SESSIONS]


def make_tree(root, with_large):
    """What is copied. Its names, sizes and contents are those of the recorded sessions, and so is the order in which a
    scan finds them: a file system in memory lists the newest first. Only one session has a file of several chunks, as the
    player deciphers a megabyte in 8 seconds."""
    root.mkdir()
    if with_large:
        (root / "large").write_bytes(b"0123456789abcdef" * 65536 + b"the second chunk")
    (root / "small").write_bytes(b"small")
    (root / "empty").write_bytes(b"")
    (root / "link").symlink_to("small")
    (root / "second").hardlink_to(root / "small")
    (root / "dir").mkdir(mode=0o750)
    for path in (*root.iterdir(), root):
        os.utime(path, (1_700_000_000, 1_700_000_000), follow_symlinks=False)
    return root


@pytest.fixture
def memory(net):
    """A directory in memory, in which the hosts keep their files."""
    folder = net.pair.mount_memory(net.folder("memory"), 32)
    yield folder
    subprocess.run(["umount", folder], check=True)


def places(memory, name):
    """The source and the destination, as directories of both hosts, and as a client on alpha names them."""
    direction = SESSIONS[name][1]
    near, far = memory / "near", memory / "far"
    near.mkdir(exist_ok=True)
    far.mkdir(exist_ok=True)
    here, there = (near / "tree", far / "copy") if direction == "push" else (near / "copy", far / "tree")
    source, copy = (here, there) if direction == "push" else (there, here)
    make_tree(source, with_large=name == "push")
    return source, copy, [f"{here}/", f"beta:{there}/"] if direction == "push" else [f"beta:{there}/", f"{here}/"]


def prepare(verb, copy):
    """A sync finds something that its source does not have."""
    if verb == "sync":
        copy.mkdir()
        (copy / "old").write_text("goes")


def run(net, verb, options, far, arguments):
    return cp(net.alpha, "--cipher", "chacha20-poly1305", "--flows", "1", "--remote-program", far.program, *options, *arguments,
              verb=verb, check=False, timeout=60)


def assert_equal(source, copy):
    assert differences(source, copy, root_too=False) == []


@pytest.fixture
def session(request, net, memory):
    """A recorded session, recorded first if that is wished."""
    release, name = request.param
    path = RELEASED / release / f"{name}.session"
    if not path.exists() and request.config.getoption("record"):
        verb, direction, options = SESSIONS[name]
        source, copy, arguments = places(memory, name)
        prepare(verb, copy)
        with recorded.Recorder(net) as recorder:
            outcome = run(net, verb, options, recorder, arguments)
        assert outcome.code == EXIT_OK, outcome
        assert_equal(source, copy)
        recorder.write(path)
        for folder in (source, copy):
            folder.rename(folder.with_name(f"recorded-{folder.name}"))
    return name, *recorded.read(path)


@pytest.mark.parametrize("session", CASES, indirect=True, ids="-".join)
def test_a_released_far_end(net, memory, session):
    name, first, steps = session
    verb, direction, options = SESSIONS[name]
    source, copy, arguments = places(memory, name)
    prepare(verb, copy)

    def script(_hello, live):
        recorded.play(live, steps, recorded.FAR_END)
        if direction == "push":
            live.finish()

    with FarEnd(net, script, features=first["reply"]["features"]) as far:
        outcome = run(net, verb, options, far, arguments)
    assert outcome.code == EXIT_OK, outcome
    if direction == "pull":
        assert_equal(source, copy)


@pytest.mark.parametrize("session", CASES, indirect=True, ids="-".join)
def test_a_released_client(net, memory, session):
    name, first, steps = session
    verb, direction, options = SESSIONS[name]
    source, copy, _ = places(memory, name)
    prepare(verb, copy)
    asked = json.loads(base64.b64decode(first["hello"]["request"]))
    # A client names the far end's path.
    path = f"{copy if direction == 'push' else source}/"
    asked["paths"] = [base64.b64encode(os.fsencode(path)).decode()]
    hello = {**first["hello"], "request": base64.b64encode(json.dumps(asked).encode()).decode(), "udp": False}
    with endpoint(net.beta, {}, **hello) as (reply, live, process):
        assert reply["refusal"] is None, reply
        live.message(peer.START)
        recorded.play(live, steps, recorded.CLIENT)
        if direction == "pull":
            live.finish()
        live.drain()
    assert process.returncode == EXIT_OK
    if direction == "push":
        assert_equal(source, copy)
        assert not (copy / "old").exists()


@pytest.fixture(scope="module", params=sorted(release.name for release in RELEASED.iterdir()))
def older(request):
    """A directory with the program of a release, as `farhaul`."""
    release = request.param
    work = ROOT / "target/released" / release
    source = work / "source"
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", ROOT]
    if subprocess.run([*git, "rev-parse", "--verify", "--quiet", f"refs/tags/v{release}"], stdout=subprocess.DEVNULL).returncode:
        pytest.skip(f"this clone has no tag v{release}")
    if not (work / "farhaul").exists():
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir(parents=True)
        archive = subprocess.run([*git, "archive", f"v{release}"], check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
        # The page is embedded, and does not matter here.
        (source / "web/dist").mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "CARGO_TARGET_DIR": str(work / "build"), "CARGO_PROFILE_RELEASE_LTO": "off"}
        subprocess.run(["cargo", "build", "--release", "--locked", "-p", "farhaul-cli"], cwd=source, env=environment, check=True)
        shutil.copy(work / "build/release/farhaul", work / "farhaul")
        shutil.rmtree(work / "build")
    return work


@pytest.fixture(params=["client", "far end"])
def sides(request, net, older):
    """The environments of a client on alpha and of a far end on beta; one of them has the release."""
    folder = net.folder("older")
    shutil.copy(older / "farhaul", folder / "farhaul")
    folder.chmod(0o755)
    paths = {"client": net.alpha.environment()["PATH"], "far end": net.beta.environment()["PATH"]}
    paths[request.param] = f"{folder}:{paths[request.param]}"
    return {side: {"PATH": path} for side, path in paths.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", SESSIONS)
@pytest.mark.parametrize("road", ["ssh", "daemon"])
def test_a_release_and_this_program_copy(net, near, sides, road, name):
    verb, direction, options = SESSIONS[name]
    daemon = Daemon(net.pair, net.beta, [net.key], port=next(FAILING_PORTS), env=sides["far end"])
    source, copy = (near / "tree", daemon.root / "copy") if direction == "push" else (daemon.root / "tree", near / "copy")
    make_tree(source, with_large=True)
    prepare(verb, copy)
    far, here = (copy, source) if direction == "push" else (source, copy)
    program = shutil.which("farhaul", path=sides["far end"]["PATH"])
    reach = ["--remote-program", program] if road == "ssh" else ["--accept-new"]
    there = f"beta:{far}/" if road == "ssh" else f"fh://beta:{daemon.port}/{far.name}/"
    ends = [f"{here}/", there] if direction == "push" else [there, f"{here}/"]
    try:
        cp(net.alpha, *reach, *options, *ends, verb=verb, env=sides["client"])
        assert_equal(source, copy)
        assert not (copy / "old").exists()
        # Once more: nothing is left to be done, and both understand that.
        assert cp(net.alpha, *reach, *options, *ends, verb=verb, env=sides["client"]).report["bytes"] == 0
        listed = net.alpha.run(["farhaul", "ls", *reach, there], env=sides["client"], check=True).stdout.decode()
        assert "large" in listed and "small" in listed, listed
    finally:
        daemon.kill()
