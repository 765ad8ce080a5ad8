"""Who may talk to whom: server keys that are pinned on first use, client keys, and the borders of the served
root."""

import os
import pathlib
import re
import shutil
import stat
import subprocess

import pytest

from harness.hosts import USER, call, wait_until
from harness.product import (EXIT_AUTH, EXIT_CONNECT, EXIT_FILES, EXIT_OK, EXIT_USAGE, Daemon, binary, cp, finish, keygen,
                             public_key_line, start_cp)
from harness.trees import make_file, sha256

KNOWN = ".config/farhaul/known_hosts"


@pytest.fixture
def fresh(own_net):
    """Hosts on which nobody has met the daemon yet."""
    (own_net.alpha.home / KNOWN).unlink(missing_ok=True)
    return own_net


def test_first_use_without_terminal_fails_and_tells_the_fingerprint(fresh):
    source = make_file(fresh.folder("near") / "file", 100)
    outcome = cp(fresh.alpha, source, fresh.daemon.url("file"), expect=EXIT_AUTH)
    assert fresh.daemon.fingerprint in outcome.stderr
    assert "--fingerprint" in outcome.stderr or "--accept-new" in outcome.stderr
    assert not (fresh.daemon.root / "file").exists()


def test_accept_new_pins_the_key(fresh):
    source = make_file(fresh.folder("near") / "file", 100)
    cp(fresh.alpha, "--accept-new", source, fresh.daemon.url("one"))
    assert fresh.daemon.fingerprint in (fresh.alpha.home / KNOWN).read_text()
    cp(fresh.alpha, source, fresh.daemon.url("two"))


def test_fingerprint_given(fresh):
    source = make_file(fresh.folder("near") / "file", 100)
    cp(fresh.alpha, "--fingerprint", fresh.daemon.fingerprint, source, fresh.daemon.url("one"))
    wrong = "SHA256:" + "A" * 43
    cp(fresh.alpha, "--fingerprint", wrong, source, fresh.daemon.url("two"), expect=EXIT_AUTH)


def test_changed_server_key_always_fails(fresh):
    source = make_file(fresh.folder("near") / "file", 100)
    cp(fresh.alpha, "--accept-new", source, fresh.daemon.url("one"))
    fresh.daemon.kill()
    for path in fresh.daemon.directory.glob("identity*"):
        path.unlink()
    fresh.daemon.start()
    for extra in ([], ["--accept-new"]):
        outcome = cp(fresh.alpha, *extra, source, fresh.daemon.url("two"), expect=EXIT_AUTH)
        assert "changed" in outcome.stderr
    assert not (fresh.daemon.root / "two").exists()


def test_unknown_client_key(fresh):
    source = make_file(fresh.folder("near") / "file", 100)
    fresh.daemon.keys.write_text(public_key_line(7))
    fresh.daemon.restart()
    outcome = cp(fresh.alpha, "--accept-new", source, fresh.daemon.url("one"), expect=EXIT_AUTH)
    assert "key" in outcome.stderr
    assert list(fresh.daemon.root.iterdir()) == []


def test_client_without_a_key_is_told_to_make_one(fresh):
    source = make_file(fresh.folder("near") / "file", 100)
    (fresh.alpha.home / ".config/farhaul/id_ed25519").unlink()
    outcome = cp(fresh.alpha, "--accept-new", source, fresh.daemon.url("one"), expect=EXIT_AUTH)
    assert "keygen" in outcome.stderr


def test_keygen_makes_a_private_file_and_keeps_an_old_one(own_net):
    key = own_net.alpha.home / ".config/farhaul/id_ed25519"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert own_net.key.startswith("farhaul-ed25519 ")
    before = key.read_bytes()
    assert own_net.alpha.run(["farhaul", "keygen"]).returncode != 0
    assert key.read_bytes() == before


def test_key_readable_by_others_is_refused(own_net):
    source = make_file(own_net.folder("near") / "file", 100)
    (own_net.alpha.home / ".config/farhaul/id_ed25519").chmod(0o644)
    outcome = cp(own_net.alpha, "--accept-new", source, own_net.daemon.url("one"), check=False)
    assert outcome.code in (EXIT_OK, EXIT_AUTH)
    if outcome.code == EXIT_AUTH:
        assert "permission" in outcome.stderr or "0600" in outcome.stderr or "can be read by others" in outcome.stderr


def test_an_ordinary_user_uses_and_runs_it(own_net):
    """Neither end needs to run as root."""
    pair = own_net.pair
    key = keygen(pair.alpha, user=USER)
    daemon = Daemon(pair, pair.beta, [key], port=33050, user=USER)
    near = own_net.folder("near")
    near.chmod(0o777)
    source = make_file(near / "file", 3_000_000)
    report = cp(pair.alpha, "--accept-new", source, daemon.url("file"), user=USER).report
    assert report["transport"] == "udp"
    cp(pair.alpha, daemon.url("file"), near / "back", user=USER)
    assert sha256(near / "back") == sha256(source)
    assert (daemon.root / "file").stat().st_uid != 0


OUTSIDE = ["../outside", "a/../../outside", "/etc/outside", "link/outside", "..", "dir/link2/x"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_push_never_leaves_the_root(own_net, path):
    root = own_net.daemon.root
    elsewhere = own_net.folder("elsewhere")
    (root / "link").symlink_to(elsewhere)
    (root / "dir").mkdir()
    (root / "dir/link2").symlink_to("..")
    source = make_file(own_net.folder("near") / "evil", 100)
    was_there = pathlib.Path("/etc/outside").exists()
    outcome = cp(own_net.alpha, "--accept-new", source, own_net.daemon.url(path), check=False)
    outside = [folder / name for folder in (own_net.pair.directory, root.parent) for name in ("outside", "evil")]
    assert not any(path.exists() for path in outside)
    assert not list(elsewhere.iterdir()) and pathlib.Path("/etc/outside").exists() == was_there
    if outcome.code == EXIT_OK:
        inside = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
        assert inside, "an accepted path must lie below the root"
    else:
        assert outcome.code in (EXIT_FILES, EXIT_AUTH) and outcome.error_line


@pytest.mark.parametrize("path", ["../secret", "link/secret", "/../secret", "alias"])
def test_pull_never_leaves_the_root(own_net, path):
    root = own_net.daemon.root
    (root.parent / "secret").write_text("secret")
    (root / "link").symlink_to("..")
    (root / "alias").symlink_to("../secret")
    near = own_net.folder("near")
    outcome = cp(own_net.alpha, "--accept-new", own_net.daemon.url(path), near / "got", check=False)
    got = near / "got"
    assert not (got.exists() and not got.is_symlink() and got.read_text() == "secret")
    assert outcome.code != EXIT_OK or got.is_symlink()


def test_glob_never_leaves_the_root(own_net):
    (own_net.daemon.root.parent / "secret.txt").write_text("secret")
    near = own_net.folder("near")
    outcome = cp(own_net.alpha, "--accept-new", own_net.daemon.url("../*.txt"), f"{near}/", check=False)
    assert outcome.code != EXIT_OK and list(near.iterdir()) == []


def test_symlink_in_the_destination_is_not_followed_out(own_net):
    """A directory of the tree has the name of an existing symbolic link that leads out of the root."""
    near = own_net.folder("near")
    (near / "tree/sub").mkdir(parents=True)
    make_file(near / "tree/sub/file", 100)
    elsewhere = own_net.folder("elsewhere")
    (own_net.daemon.root / "tree").mkdir()
    (own_net.daemon.root / "tree/sub").symlink_to(elsewhere)
    cp(own_net.alpha, "--accept-new", near / "tree", own_net.daemon.url(""), check=False)
    assert list(elsewhere.iterdir()) == []


def test_a_tree_cannot_write_through_its_own_symlink(own_net):
    near = own_net.folder("near")
    elsewhere = own_net.folder("elsewhere")
    (near / "tree").mkdir()
    (near / "tree/out").symlink_to(elsewhere)
    cp(own_net.alpha, "--accept-new", near / "tree", own_net.daemon.url("tree"))
    (near / "tree/out").unlink()
    (near / "tree/out").mkdir()
    make_file(near / "tree/out/file", 10)
    cp(own_net.alpha, near / "tree/", own_net.daemon.url("tree/"), check=False)
    assert list(elsewhere.iterdir()) == []


def test_wrong_port_and_wrong_host(net, near):
    source = make_file(near / "file", 10)
    outcome = cp(net.alpha, "--accept-new", source, "fh://beta:44444/x", expect=EXIT_CONNECT, timeout=30)
    assert "44444" in outcome.error_line and outcome.seconds < 15
    outcome = cp(net.alpha, "--accept-new", source, "fh://nowhere.invalid/x", expect=EXIT_CONNECT, timeout=30)
    assert "nowhere.invalid" in outcome.error_line
    outcome = cp(net.alpha, source, "nowhere.invalid:x", expect=EXIT_CONNECT, timeout=30)
    assert "nowhere.invalid" in outcome.stderr
    outcome = cp(net.alpha, "-P", "44444", source, "beta:x", expect=EXIT_CONNECT, timeout=30)
    assert "44444" in outcome.stderr


def test_ssh_without_permission(net, near):
    source = make_file(near / "file", 10)
    key = near / "key"
    import subprocess
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    outcome = cp(net.alpha, "-i", key, "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-F", "/dev/null", "-o",
                 "StrictHostKeyChecking=no", source, "beta:x", check=False, timeout=30)
    assert outcome.code in (EXIT_AUTH, EXIT_CONNECT)
    assert "denied" in outcome.stderr.lower()


def test_ssh_without_the_binary_there(own_net):
    source = make_file(own_net.folder("near") / "file", 10)
    (own_net.beta.bin / "farhaul").unlink()
    outcome = cp(own_net.alpha, source, "beta:x", check=False, timeout=30)
    assert outcome.code == EXIT_CONNECT, outcome
    assert "farhaul" in outcome.error_line and "beta" in outcome.stderr


def test_versions_that_do_not_fit(own_net):
    """The far end answers with bytes that are not the protocol."""
    source = make_file(own_net.folder("near") / "file", 10)
    fake = own_net.beta.bin / "farhaul"
    for text in ("#!/bin/sh\necho hello\n", "#!/bin/sh\nexit 0\n", "#!/bin/sh\nhead -c 100000 /dev/urandom\n",
                 "#!/bin/sh\nprintf '\\377\\377\\377\\377'; sleep 1\n"):
        fake.unlink()
        fake.write_text(text)
        fake.chmod(0o755)
        outcome = cp(own_net.alpha, source, "beta:x", check=False, timeout=30)
        assert outcome.code in (3, 5, 7, 8), outcome
        assert outcome.error_line and "panicked" not in outcome.stderr


def test_nothing_secret_in_arguments_or_environment(own_net):
    """What `ps` shows at either end holds no key material, that is, no long random words."""
    import re
    import time
    from harness.product import finish, start_cp
    source = make_file(own_net.folder("near") / "file", 100 << 20)
    far = own_net.folder("far")
    process = start_cp(own_net.alpha, "--rate", "400M", source, f"beta:{far}/x")
    time.sleep(1)
    for host in (own_net.alpha, own_net.beta):
        for pid in host.pids("farhaul"):
            text = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() + pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            words = [word for word in re.split(rb"[\0= ]", text) if b"/" not in word and b":" not in word]
            assert not [word for word in words if len(word) >= 32], (pid, text)
    assert finish(process).code == EXIT_OK
    assert os.path.exists(far / "x")


def test_authorized_keys_are_noticed_whatever_their_size_and_time(fresh):
    source = make_file(fresh.folder("near") / "file", 100)
    keys = fresh.daemon.keys
    before = keys.stat()
    cp(fresh.alpha, "--accept-new", source, fresh.daemon.url("one"))
    other = public_key_line(7).split()[1]
    keys.write_text(fresh.key.replace(fresh.key.split()[1], other))
    os.utime(keys, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (keys.stat().st_size, keys.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    outcome = cp(fresh.alpha, source, fresh.daemon.url("two"), expect=EXIT_AUTH)
    assert "does not know this key" in outcome.error_line
    log = fresh.daemon.log_text()
    own = re.search(r"SHA256:[A-Za-z0-9+/]{43}", outcome.stderr).group(0)
    begun = [line for line in log.splitlines() if "session begins" in line]
    ended = [line for line in log.splitlines() if " session peer=" in line]
    refused = [line for line in log.splitlines() if "refused: the key is not authorized" in line]
    for lines in (begun, ended, refused):
        assert lines and all(own in line and fresh.alpha.v4 in line for line in lines), log
    assert all("WARN" in line for line in refused) and all("INFO" in line for line in begun)


def test_running_sessions_of_a_key_that_was_removed_end(fresh):
    """The session of another user's key goes on."""
    near = fresh.folder("near")
    near.chmod(0o755)
    source = make_file(near / "file", 20 << 20)
    keys, other = fresh.daemon.keys, keygen(fresh.alpha, user=USER)
    keys.write_text(fresh.key + other)
    # This would take more than a minute if the daemon did not end it.
    own = start_cp(fresh.alpha, "--accept-new", "--rate", "2M", source, fresh.daemon.url("own"))
    others = start_cp(fresh.alpha, "--accept-new", "--rate", "20M", source, fresh.daemon.url("others"), user=USER)
    wait_until(lambda: fresh.daemon.log_text().count("session begins") == 2, what="both sessions begin")
    keys.write_text(other)
    outcome = finish(own, timeout=30)
    assert outcome.code == EXIT_AUTH and "no longer authorized" in outcome.error_line, outcome
    assert "no longer authorized" in fresh.daemon.log_text()
    assert finish(others).code == EXIT_OK
    assert sha256(fresh.daemon.root / "others") == sha256(source)


@pytest.mark.parametrize("given", [True, False])
def test_a_daemons_mask_limits_modes_and_a_second_run_finds_nothing_to_do(own_net, given):
    """The mask comes from an option or from the process. The bits that it removes count as no difference."""
    near, root = own_net.folder("near"), own_net.folder("served")
    (near / "tree/sub").mkdir(parents=True)
    for name, mode in (("a", 0o666), ("sub/b", 0o777), ("sub/c", 0o600)):
        make_file(near / "tree" / name, 1000)
        (near / "tree" / name).chmod(mode)
    make_file(near / "tree/large", 6 << 20)
    (near / "tree/large").chmod(0o664)
    (near / "tree/sub").chmod(0o777)
    arguments = ["--mask", "027"] if given else []
    start = own_net.beta.start
    own_net.beta.start = start if given else lambda argv, *args, **options: start(
        ["sh", "-c", 'umask 027; exec "$@"', "sh", *argv], *args, **options)
    daemon = Daemon(own_net.pair, own_net.beta, [own_net.key], port=33085, root=root, arguments=arguments, mask=())
    own_net.beta.start = start
    manifest = near / "manifest"
    cp(own_net.alpha, "--accept-new", "--manifest", manifest, near / "tree", daemon.url("new/"))
    modes = {path.relative_to(root).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")}
    assert modes == {"new": 0o750, "new/tree": 0o750, "new/tree/a": 0o640, "new/tree/large": 0o640, "new/tree/sub": 0o750,
                     "new/tree/sub/b": 0o750, "new/tree/sub/c": 0o600}, {name: oct(mode) for name, mode in modes.items()}
    for arguments in (["--checksum"], []):
        again = cp(own_net.alpha, *arguments, near / "tree", daemon.url("new/tree"), verb="sync")
        assert again.report["files"] == 0 and again.report["skipped"] == 4, again
    changed = {path.relative_to(root).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")}
    assert changed == modes
    for place in (root / "new", near):
        checked = own_net.beta.run(["farhaul", "verify", "--metadata", manifest, place])
        assert checked.returncode == 0, checked
    (root / "new/tree/a").chmod(0o644)
    checked = own_net.beta.run(["farhaul", "verify", "--metadata", manifest, root / "new"])
    assert checked.returncode != 0 and b"mode 0644 instead of 0640" in checked.stdout + checked.stderr, checked


def test_read_only_daemon(own_net):
    daemon = Daemon(own_net.pair, own_net.beta, [own_net.key], port=33080, arguments=["--read-only"])
    near = own_net.folder("near")
    make_file(daemon.root / "there", 1000)
    cp(own_net.alpha, "--accept-new", daemon.url("there"), near / "got")
    outcome = cp(own_net.alpha, near / "got", daemon.url("new"), check=False)
    assert outcome.code in (EXIT_FILES, EXIT_AUTH) and "read" in outcome.error_line
    assert not (daemon.root / "new").exists()


OWN_FILES = ["home", "all", "identity", "identity made at the start", "authorized", "link to authorized", "link on the way",
             "bind mount", "hard link", "state", "log", "program"]


@pytest.mark.parametrize("case", OWN_FILES)
def test_a_root_with_files_of_the_daemons_own_is_refused(net, case):
    """Clients could read and replace them."""
    folder = net.folder("own")
    root, keys = folder / "root", folder / "keys"
    root.mkdir()
    keys.mkdir()
    identity, authorized, log, served, environment = keys / "identity", keys / "authorized", folder / "log", root, {}
    program = "farhaul"
    if case == "identity":
        identity = root / "identity"
    elif case == "identity made at the start":
        environment = {"FARHAUL_SERVE_IDENTITY": str(root / "new/identity")}
    elif case in ("authorized", "link to authorized"):
        authorized = root / "authorized"
    elif case == "home":
        served = net.beta.home
    elif case == "all":
        served = "/"
    elif case == "link on the way":
        (root / "to_keys").symlink_to(keys)
        identity = root / "to_keys/identity"
    elif case == "bind mount":
        (root / "mounted").mkdir()
        call("mount", "--bind", str(keys), str(root / "mounted"))
    elif case == "state":
        environment = {"XDG_STATE_HOME": str(root / "state")}
    elif case == "log":
        log = root / "log"
    elif case == "program":
        program = root / "farhaul"
        shutil.copy(binary(), program)
    authorized.write_text(net.key)
    named = []
    if case != "identity made at the start":
        net.beta.run(["farhaul", "keygen", "-f", identity], check=True)
        named = ["-i", identity]
    if case == "link to authorized":
        authorized.rename(keys / "real")
        authorized.symlink_to(keys / "real")
    elif case == "hard link":
        os.link(authorized, root / "another_name")
    before = sorted(root.rglob("*"))
    argv = [program, "serve", "--listen", "127.0.0.1:33090", "--root", served, *named, "--authorized-keys", authorized]
    with open(log, "wb") as out:
        done = net.beta.run(argv, env=environment, stdout=subprocess.DEVNULL, stderr=out, timeout=15)
    # The service inside may have said where its API listens by then.
    told = [line for line in log.read_text().splitlines() if " INFO " not in line]
    # What the configuration says is refused with a hint at `config check`.
    assert done.returncode == EXIT_USAGE and len(told) == (1 if named else 2), (done.returncode, told)
    assert told[0].startswith("error: ") and " lies in " in told[0], told
    assert sorted(root.rglob("*")) == before or case == "log", "no key was made in the root"


def test_a_root_beside_the_daemons_own_files_is_served(own_net):
    """Both lie under the home directory, as many users have them."""
    home = own_net.beta.home
    root, keys = home / "data", home / "keys"
    root.mkdir()
    keys.mkdir()
    (keys / "authorized").write_text(own_net.key)
    argv = ["farhaul", "serve", "--listen", "[::]:33091", "--root", root, "--authorized-keys", keys / "authorized"]
    environment = {"FARHAUL_SERVE_IDENTITY": str(keys / "identity")}
    process = own_net.beta.start(argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: 33091 in own_net.beta.udp_ports(process.pid), what="the daemon listens")
        assert (keys / "identity").exists(), "the first start makes the key"
    finally:
        process.kill()
        process.wait()


def test_a_mistyped_key_is_not_made(own_net):
    """A daemon with a new key would be another one to all its clients."""
    folder = own_net.folder("keys")
    typed = folder / "id_ed25591"
    for host, argv in (
        (own_net.beta, ["farhaul", "serve", "--listen", "[::]:33092", "--identity", typed]),
        (own_net.alpha, ["farhaul", "ls", "-i", typed, own_net.daemon.url("")]),
    ):
        done = host.run(argv, timeout=60)
        assert done.returncode == EXIT_AUTH, done
        assert f"there is no key in {typed}".encode() in done.stderr, done.stderr
        assert f"farhaul keygen -f {typed}".encode() in done.stderr, done.stderr
    assert not list(folder.iterdir())


@pytest.mark.parametrize("family", ["v4", "v6"])
def test_daemon_on_one_address(own_net, family):
    address = getattr(own_net.beta, family)
    literal = f"[{address}]" if ":" in address else address
    daemon = Daemon(own_net.pair, own_net.beta, [own_net.key], port=33081, listen=f"{literal}:33081")
    source = make_file(own_net.folder("near") / "file", 3_000_000)
    report = cp(own_net.alpha, "--accept-new", source, daemon.url("file", host=literal)).report
    assert report["transport"] == "udp"
    assert sha256(daemon.root / "file") == sha256(source)


def test_port_in_use_is_told(own_net):
    done = own_net.beta.run(["farhaul", "serve", "--listen", f"[::]:{own_net.daemon.port}", "--root", own_net.daemon.root,
                             "--authorized-keys", own_net.daemon.keys, "--identity", own_net.daemon.identity], timeout=15)
    assert done.returncode != 0
    assert str(own_net.daemon.port).encode() in done.stderr and b"in use" in done.stderr


def test_daemon_ends_in_order(own_net):
    """SIGTERM ends the daemon in order."""
    assert own_net.daemon.stop() in (0, 130, 143)
