"""`farhaul doctor` on this kernel: what a network namespace makes wrong is found, mended and undone; recordings; what is
printed to whom.

Everything that is changed belongs to a namespace of its own, never to the machine.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from harness.product import EXIT_FILES, EXIT_OK, EXIT_SOME_FAILED, EXIT_USAGE, ROOT, binary

MACHINES = ROOT / "crates/doctor/fixtures"
IPV4 = pathlib.Path("/proc/sys/net/ipv4")


def doctor(*arguments, expect=EXIT_OK, namespace=None):
    argv = [str(binary().resolve()), "doctor", *map(str, arguments)]
    if namespace:
        argv = ["ip", "netns", "exec", namespace, *argv]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == expect, (argv, done)
    return done


def findings(*arguments, namespace=None):
    argv = [str(binary().resolve()), "doctor", "--json", *map(str, arguments)]
    if namespace:
        argv = ["ip", "netns", "exec", namespace, *argv]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    report = json.loads(done.stdout)
    assert report["schema"] == 1 and done.returncode in (EXIT_OK, EXIT_SOME_FAILED), done
    return report


def ids(report):
    return {finding["id"] for finding in report["findings"]}


class Namespace:
    """A network namespace with a pair of interfaces, whose settings a test may change."""

    def __init__(self, name):
        self.name = name

    def run(self, script):
        done = subprocess.run(["ip", "netns", "exec", self.name, "bash", "-ec", script], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, (script, done)
        return done.stdout

    def value(self, name):
        return self.run(f"cat {IPV4}/{name}").split()

    def set(self, name, value):
        self.run(f"echo '{value}' > {IPV4}/{name}")


@pytest.fixture
def space():
    if os.geteuid() != 0:
        pytest.skip("only root makes network namespaces")
    name = f"doctor{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        made = Namespace(name)
        made.run("ip link set lo up; ip link add data0 type veth peer name data1; ip link set data0 up; ip link set data1 up")
        yield made
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.mark.parametrize(("name", "value", "id"), [
    ("tcp_rmem", "4096 4096 8192", "tcp-rmem"),
    ("tcp_wmem", "4096 4096 8192", "tcp-wmem"),
    ("tcp_sack", "0", "tcp-options"),
    ("tcp_window_scaling", "0", "tcp-options"),
    ("tcp_moderate_rcvbuf", "0", "rcvbuf-tuning"),
])
def test_a_wrong_setting_is_found_set_and_undone_to_the_letter(space, tmp_path, name, value, id):
    assert id not in ids(findings(namespace=space.name))
    space.set(name, value)
    before = space.value(name)
    found = [finding for finding in findings(namespace=space.name)["findings"] if finding["id"] == id]
    assert len(found) == 1 and found[0]["sources"] and found[0]["changes"][0]["place"] == f"proc/sys/net/ipv4/{name}", found
    undo = tmp_path / "undo.json"
    doctor("--apply", id, "--keep", "--undo-file", undo, namespace=space.name)
    assert space.value(name) != before and id not in ids(findings(namespace=space.name))
    done = doctor("--undo", id, "--undo-file", undo, namespace=space.name)
    assert f"net/ipv4/{name} is " in done.stdout and space.value(name) == before
    assert doctor("--undo", "--all", "--undo-file", undo, namespace=space.name).stderr == "nothing to undo\n"


def test_a_window_that_strangles_tcp_is_measured_and_the_remedy_kept(space, tmp_path):
    space.set("tcp_rmem", "4096 4096 4096")
    done = doctor("--apply", "tcp-rmem", "--json", "--undo-file", tmp_path / "undo.json", namespace=space.name)
    (applied,) = json.loads(done.stdout)["applied"]
    (trial,) = applied["trials"]
    assert applied["outcome"] == "kept" and trial["verdict"] == "better" and trial["gain"] > trial["noise"], applied
    assert len(trial["before"]) == len(trial["after"]) == 5
    assert space.value("tcp_rmem")[2] != "4096"


def test_what_cannot_be_measured_here_is_set_only_by_its_id_and_says_so(space, tmp_path):
    space.set("tcp_sack", "0")
    undo = tmp_path / "undo.json"
    # Without IDs, buffers may be tried, too, which belong to the machine and are refused in a namespace.
    argv = ["ip", "netns", "exec", space.name, str(binary().resolve()), "doctor", "--apply", "--undo-file", str(undo)]
    subprocess.run(argv, capture_output=True, timeout=60, check=False)
    assert space.value("tcp_sack") == ["0"]
    done = doctor("--apply", "tcp-options", "--undo-file", undo, namespace=space.name)
    assert "not measured" in done.stdout and space.value("tcp_sack") == ["1"]


def test_what_somebody_else_has_changed_is_named_and_left(space, tmp_path):
    space.set("tcp_rmem", "4096 4096 8192")
    undo = tmp_path / "undo.json"
    doctor("--apply", "tcp-rmem", "--keep", "--undo-file", undo, namespace=space.name)
    space.set("tcp_rmem", "4096 5000 6000")
    done = doctor("--undo", "--all", "--undo-file", undo, expect=EXIT_SOME_FAILED, namespace=space.name)
    assert "somebody has changed" in done.stdout and space.value("tcp_rmem") == ["4096", "5000", "6000"]


def test_a_firewall_that_drops_by_default_is_found_by_root_and_hidden_from_others(space):
    assert "firewall" not in ids(findings(namespace=space.name))
    space.run("nft 'table inet t { chain c { type filter hook input priority 0; policy drop; udp dport 9 accept; }; }'")
    (found,) = [one for one in findings("--notes", namespace=space.name)["findings"] if one["id"] == "firewall"]
    assert "drops what no rule lets in (1 rules)" in found["what"], found
    argv = ["ip", "netns", "exec", space.name, "setpriv", "--reuid=65534", "--clear-groups", str(binary().resolve()), "doctor"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd="/", check=False)
    assert "not visible to this user" in done.stderr and "firewalls" in done.stderr, done


def test_a_route_whose_ways_are_not_used_by_flows_is_found_mended_and_undone(space, tmp_path):
    space.run("ip address add 10.9.1.1/24 dev data0; ip address add 10.9.2.1/24 dev data1")
    space.run("ip route add 10.10.0.0/16 nexthop via 10.9.1.2 nexthop via 10.9.2.2")
    (found,) = [one for one in findings(namespace=space.name)["findings"] if one["id"] == "several-routes"]
    assert "2 ways" in found["what"] and found["changes"] == [{"place": "proc/sys/net/ipv4/fib_multipath_hash_policy", "value": "1"}]
    undo = tmp_path / "undo.json"
    doctor("--apply", "several-routes", "--undo-file", undo, namespace=space.name)
    assert space.value("fib_multipath_hash_policy") == ["1"] and "several-routes" not in ids(findings(namespace=space.name))
    doctor("--undo", "--all", "--undo-file", undo, namespace=space.name)
    assert space.value("fib_multipath_hash_policy") == ["0"]


def test_a_core_that_somebody_keeps_busy_is_named():
    core = max(os.sched_getaffinity(0))
    busy = subprocess.Popen(["taskset", "-c", str(core), "sh", "-c", "echo; while :; do :; done"], stdout=subprocess.PIPE)
    try:
        busy.stdout.readline()
        (found,) = [one for one in findings("--for", "10G", "--role", "dtn")["findings"] if one["id"] == "busy-core"]
        assert f"cpu{core}" in found["what"] or found["what"].startswith("all "), found
    finally:
        busy.kill()
        busy.wait()


def test_a_log_directory_on_a_slow_mount_is_named():
    """A mount namespace has its own /var/log: a directory that FUSE serves, over a file descriptor that nobody answers."""
    script = f"""mount --make-rprivate /
        exec 9<>/dev/fuse
        mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0,subtype=s3fs far /var/log
        {binary().resolve()} doctor --json --notes"""
    done = subprocess.run(["unshare", "-m", "bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    found = [one for one in json.loads(done.stdout)["findings"] if one["id"] == "log-directory"]
    assert [one["what"] for one in found] == ["/var/log is on /var/log (fuse.s3fs)"], done


@pytest.mark.skipif(not shutil.which("ethtool"), reason="needs ethtool to turn an offload off")
def test_an_offload_that_is_off_is_turned_on_and_off_again(space, tmp_path):
    space.run("ethtool -K data0 tso off")
    undo = tmp_path / "undo.json"
    found = [one for one in findings(namespace=space.name)["findings"] if one["id"] == "offloads"]
    assert [(one["subject"], one["commands"]) for one in found] == [("data0", ["ethtool -K data0 tx-tcp-segmentation on"])]
    doctor("--apply", "offloads", "--undo-file", undo, namespace=space.name)
    assert "tcp-segmentation-offload: on" in space.run("ethtool -k data0")
    doctor("--undo", "--all", "--undo-file", undo, namespace=space.name)
    assert "tx-tcp-segmentation: off" in space.run("ethtool -k data0")


@pytest.mark.skipif(not shutil.which("ethtool"), reason="needs ethtool to compare with")
def test_the_doctor_reads_what_ethtool_reads(space, tmp_path):
    doctor("--record", tmp_path, namespace=space.name)
    recorded = (tmp_path / "host.txt").read_text()
    block = recorded.split("asked/ethtool/data0/features =\n")[1].split("\nasked/")[0]
    ours = {words[1]: words[2] for words in (line.split() for line in block.splitlines() if line.startswith("| "))}
    theirs = dict(line.strip().split(": ") for line in space.run("ethtool -k data0").splitlines()[1:])
    # ethtool also sums features up under names of its own.
    same = {name: state for name, state in ours.items() if name in theirs}
    assert len(same) > 30 and all(theirs[name].split()[0] == state for name, state in same.items()), (ours, theirs)


def test_persistent_settings_are_files_that_undo_takes_away(space, tmp_path):
    """A mount namespace has its own /etc."""
    for name in ("sysctl.d", "tmpfiles.d", "udev/rules.d"):
        (tmp_path / "etc" / name).mkdir(parents=True)
    space.set("tcp_sack", "0")
    file = "/etc/sysctl.d/90-farhaul-doctor.conf"
    script = f"""mount --bind {tmp_path}/etc/sysctl.d /etc/sysctl.d
        {binary().resolve()} doctor --apply tcp-options --persist --undo-file {tmp_path}/undo.json && cat {file}
        {binary().resolve()} doctor --undo --all --undo-file {tmp_path}/undo.json; ! test -e {file}"""
    if not pathlib.Path("/etc/sysctl.d").is_dir():
        pytest.skip("/etc has no sysctl.d to mount over")
    done = subprocess.run(["ip", "netns", "exec", space.name, "bash", "-ec", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "net.ipv4.tcp_sack = 1" in done.stdout, done
    assert done.stdout.count("Made by `farhaul doctor") == 1


def test_without_root_the_commands_are_printed_and_nothing_is_changed(space):
    """A user can be somebody else in a namespace that root has entered."""
    space.set("tcp_sack", "0")
    argv = ["ip", "netns", "exec", space.name, "setpriv", "--reuid=65534", "--clear-groups", str(binary().resolve()), "doctor", "--apply", "tcp-options"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd="/", check=False)
    assert done.returncode == EXIT_OK and done.stdout == "sysctl -w net.ipv4.tcp_sack=1\n", done
    assert "only root" in done.stderr and space.value("tcp_sack") == ["0"]


def test_a_recording_of_this_host_is_judged_like_the_host(tmp_path):
    doctor("--record", tmp_path)
    for target in ((), ("--for", "100G", "--role", "dtn")):
        live, kept = findings(*target), findings(*target, "--from", tmp_path)
        # Counters go on while the second one is made.
        counted = {"udp-errors", "softnet-drops", "softirq-budget", "steal", "free-space", "nic-drops", "busy-core", "reverse-dns"}
        assert ids(live) - counted == ids(kept) - counted


def test_lines_and_exit_codes():
    done = doctor("--from", MACHINES / "dtn-10g", expect=EXIT_SOME_FAILED)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("fail  ens16f0: UDP is spread over queues by addresses only") and lines[0].endswith("[udp-hash]")
    assert all(line.split()[0] in ("fail", "warn") for line in lines) and "judged for 10G as dtn: 7 to mend" in done.stderr
    assert "note  " in doctor("--from", MACHINES / "dtn-10g", "--notes", expect=EXIT_SOME_FAILED).stdout
    clean = doctor("--from", MACHINES / "dtn-100g")
    assert clean.stdout == "" and "nothing to mend" in clean.stderr
    assert "no check with the ID" in doctor("explain", "nonsense", expect=EXIT_USAGE).stderr
    assert "no check with the ID" in doctor("--undo", "nonsense", "--undo-file", "/dev/shm/none.json", expect=EXIT_USAGE).stderr
    doctor("--undo", expect=EXIT_USAGE)
    doctor("--from", "/nonexistent", expect=EXIT_FILES)


def test_every_id_is_explained():
    listed = [line.split()[0] for line in doctor("explain").stdout.splitlines()]
    assert len(listed) > 80 and {"slow-receiver-disk", "socket-buffers"} <= set(listed)
    for id in listed:
        text = doctor("explain", id).stdout
        assert f"[{id}]" in text and ("source " in text or "What to do:" in text), id


def test_the_options_that_explanations_name_exist():
    """A text such as `farhaul bench link --flows 8 HOST` can be typed."""
    texts = [doctor("explain", line.split()[0]).stdout for line in doctor("explain").stdout.splitlines()]
    helps = {}
    for verb, rest in re.findall(r"farhaul ((?:bench |cap )?[a-z]+)((?: --?[a-z-]+(?: [A-Z0-9]+)?)*)", "\n".join(texts)):
        if verb not in helps:
            done = subprocess.run([str(binary().resolve()), *verb.split(), "--help"], capture_output=True, text=True, check=False)
            assert done.returncode == EXIT_OK, verb
            helps[verb] = done.stdout
        for flag in re.findall(r"--[a-z-]+", rest):
            assert f"{flag}" in helps[verb], (verb, flag)
    assert len(helps) > 4 and "bench link" in helps, helps.keys()
    # What stands by itself is an option of a copy.
    known = subprocess.run([str(binary().resolve()), "cp", "--help"], capture_output=True, text=True, check=True).stdout
    limits = [text for text in texts if "What to do:" in text]
    for flag in set(re.findall(r"(?<![\w=])--[a-z][a-z-]+", "\n".join(limits))) - {"--write", "--help"}:
        assert flag in known, flag
