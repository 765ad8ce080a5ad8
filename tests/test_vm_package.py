"""The life of the deb in whole systems with systemd as pid 1: Debian 11, 12 and 13 as guests of qemu.

Installed, used, replaced by a newer version and by the older one again while jobs and clients run, through a power cut, removed
and purged. The packages are those that `./x package` has made, with the scripts of this source tree.
"""

import json
import re
import shutil

import pytest

from deploy.package import scripts
from harness.debs import with_version
from vm.guest import Guest
from vm.releases import RELEASES, ROOT

OUT = ROOT / "target/package/out"
VERSION, NEWER = "0.1.0", "0.1.1"
#: Not in the PATH, where systemd would find it for the service.
HOSTS_PROGRAM = "/srv/farhaul"
HOSTS = f"sh /repository/tests/vm/hosts.sh {HOSTS_PROGRAM}"
EXPOSURE_MAX = 3.0
#: A restart takes long in an emulated guest, and has to be over before the work is.
RATE = "2M"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (OUT / "SHA256SUMS").exists(), reason="./x package has made no packages"),
    pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="there is no qemu; ./x vm build installs it"),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="there is no debootstrap; ./x vm build installs it"),
]

CONFIGURED = """
install -d -o farhaul /srv/node /srv/node/out
cp /srv/keys /etc/farhaul/authorized_keys
cat >/etc/farhaul/farhaul.toml <<'END'
[serve]
root = "/srv/node"
authorized_keys = "/etc/farhaul/authorized_keys"
[api]
socket = "/run/farhaul/api.sock"
END
mkdir -p /etc/systemd/system/farhaul.service.d
printf '[Service]\\nReadWritePaths=/srv/node\\n' >/etc/systemd/system/farhaul.service.d/served.conf
systemctl daemon-reload
head -c 60000000 /dev/urandom >/srv/node/out/big
head -c 30000000 /dev/urandom >/srv/mine
chown -R farhaul /srv/node
"""


class Node:
    """The service in a guest, a job of it that pushes to the host `far`, and a client on `far` that pushes to it."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.number = 0
        self.job = ""

    def farhaul(self, command: str) -> str:
        return self.guest.shell(f"runuser -u farhaul -- farhaul {command}")

    def dpkg(self, command: str) -> str:
        # The disk of a guest is slow to sync, and nothing here is to survive the guest.
        return self.guest.shell(f"dpkg --force-unsafe-io {command}")

    def properties(self) -> dict[str, str]:
        shown = self.guest.shell("systemctl show farhaul -p MainPID -p ActiveState -p NRestarts -p Result")
        return dict(line.split("=", 1) for line in shown.splitlines())

    def start_work(self) -> None:
        self.number += 1
        self.job = self.farhaul(f"submit --rate {RATE} /srv/node/out/big fh://far/job{self.number}").strip()
        self.guest.shell(
            f"systemd-run -q --unit=client{self.number} -p Type=oneshot -p RemainAfterExit=yes --no-block -p NetworkNamespacePath=/run/netns/far"
            f" --setenv=HOME=/root {HOSTS_PROGRAM} cp --accept-new --rate {RATE} /srv/mine fh://10.9.0.1/client{self.number}"
        )
        self.guest.shell(
            f"for try in $(seq 300); do runuser -u farhaul -- farhaul job {self.job} --json | grep -q '\"bytes_done\":[1-9]' && break; sleep 0.5; done;"
            f"for try in $(seq 300); do ls -a /srv/node | grep -q fhjournal && break; sleep 0.5; done"
        )
        assert self.seen()["state"] == "running"

    def seen(self) -> dict:
        return json.loads(self.farhaul(f"job {self.job} --json"))

    def finish_work(self) -> dict:
        """Both have to end well. Returns the record of the job's run."""
        client = f"client{self.number}"
        self.farhaul(f"wait {self.job}")
        self.guest.shell(f"cmp /srv/node/out/big /srv/data/job{self.number}")
        self.guest.shell(f"until systemctl show {client} -p ActiveState | grep -Eq '=(active|failed|inactive)'; do sleep 0.5; done")
        said = self.guest.shell(f"journalctl -u {client} -o cat --no-pager")
        assert self.guest.run(f"cmp /srv/mine /srv/node/client{self.number}").code == 0, said
        self.guest.shell(f"rm /srv/data/job{self.number} /srv/node/client{self.number}")
        records = json.loads(self.farhaul("history --json"))
        record = next(record for record in records if record["job"] == self.job)
        print(f"Debian {self.guest.release.version}: the client said:\n{said}")
        return record


@pytest.fixture(scope="module", params=RELEASES, ids=[f"Debian {version}" for version in RELEASES])
def node(request, tmp_path_factory):
    share = tmp_path_factory.mktemp("share")
    shutil.copy(ROOT / "target/package/made/farhaul-static", share / "farhaul")
    for version in (VERSION, NEWER):
        with_version(OUT / f"farhaul_{VERSION}_amd64.deb", version, share, scripts.DEB)
    for unneeded in share.glob("deb-*"):
        shutil.rmtree(unneeded)
    with Guest(request.param, share) as guest:
        guest.shell(HOSTS)
        yield Node(guest)


def replaced(node: Node, version: str) -> None:
    """Replaces the package while a job and a client run."""
    # What takes long in a guest, to unpack, is over before the work begins.
    node.dpkg(f"--unpack /share/farhaul_{version}_amd64.deb")
    node.start_work()
    before = node.properties()["MainPID"]
    seconds = float(node.guest.shell(
        "begin=$(date +%s.%N); dpkg --force-unsafe-io --configure farhaul >/dev/null; date +\"%s.%N $begin\" | awk '{print $1 - $2}'"
    ).split()[-1])
    after = node.properties()
    assert after["MainPID"] != before and (after["ActiveState"], after["Result"]) == ("active", "success"), after
    node.guest.shell(f"[ /proc/{after['MainPID']}/exe -ef /usr/bin/farhaul ]")
    assert node.guest.shell("dpkg-query -W -f '${Version} ${Status}' farhaul") == f"{version} install ok installed"
    begun_again = node.seen()
    assert (begun_again["state"], begun_again["attempt"]) == ("running", 1), begun_again
    node.farhaul(f"set {node.job} --rate 1G")
    record = node.finish_work()
    print(f"Debian {node.guest.release.version}: version {version} ran {seconds:.1f} s after `dpkg --configure`; {record}")
    assert (record["state"], record["attempts"]) == ("done", 1), record


def test_an_installed_package_waits_for_its_operator(node):
    node.dpkg(f"--install /share/farhaul_{VERSION}_amd64.deb")
    assert node.guest.shell("farhaul --version").split()[-1] == VERSION
    for unit in ("farhaul.service", "farhaul.socket"):
        assert node.guest.run(f"systemctl is-enabled {unit}").stdout.strip() == "disabled"
        assert node.guest.run(f"systemctl is-active {unit}").stdout.strip() == "inactive"
    assert node.guest.shell("stat -c '%U %a' /var/lib/farhaul").strip() == "farhaul 700"
    assert node.guest.shell("getent passwd farhaul | cut -d: -f6,7").strip() == "/var/lib/farhaul:/usr/sbin/nologin"


def test_the_service_starts_shut_in(node):
    node.guest.shell(CONFIGURED)
    node.guest.shell("systemctl enable --now farhaul")
    # The node and the host `far` know each other's keys.
    node.guest.shell("cat /var/lib/farhaul/.config/farhaul/id_ed25519.pub >>/srv/keys")
    node.farhaul("ls --accept-new fh://far/")
    assert node.farhaul("jobs").strip() == "no jobs"
    owner = node.guest.shell("stat -c '%U %a' /var/lib/farhaul /run/farhaul /proc/$(systemctl show farhaul -p MainPID --value)")
    assert owner.splitlines()[:2] == ["farhaul 700", "farhaul 700"] and owner.splitlines()[2].startswith("farhaul"), owner
    judged = node.guest.shell("systemd-analyze security --no-pager farhaul.service")
    exposure = re.search(r"exposure level for farhaul.service: ([0-9.]+)", judged)
    assert exposure and float(exposure[1]) < EXPOSURE_MAX, judged
    print(f"Debian {node.guest.release.version}: exposure {exposure[1]}")
    assert node.guest.shell("journalctl -p err -o cat --no-pager -u farhaul") == ""


def test_an_upgrade_while_a_job_and_a_client_run(node):
    replaced(node, NEWER)


def test_a_downgrade_while_a_job_and_a_client_run(node):
    replaced(node, VERSION)


def test_a_job_goes_on_by_itself_after_the_power_was_cut(node):
    node.start_work()
    node.guest.shell("sleep 8")
    node.guest.cut_power()
    node.guest.boot()
    node.guest.shell(HOSTS)
    assert node.properties()["ActiveState"] == "active"
    seen = node.seen()
    assert (seen["run"], seen["attempt"]) == (1, 1) or seen["state"] in ("retrying", "running", "queued"), seen
    node.farhaul(f"wait {node.job}")
    node.guest.shell(f"cmp /srv/node/out/big /srv/data/job{node.number}")


def test_a_removed_package_leaves_state_and_a_purged_one_none(node):
    node.dpkg("--remove farhaul")
    assert node.guest.run("systemctl is-active farhaul").stdout.strip() in ("inactive", "unknown")
    assert node.guest.run("pgrep -u farhaul -x farhaul").stdout == ""
    node.guest.shell("test -e /var/lib/farhaul/jobs.sqlite && test -e /etc/farhaul/farhaul.toml")
    # Installed again, it goes on as the same node.
    node.dpkg(f"--install /share/farhaul_{VERSION}_amd64.deb")
    node.guest.shell("systemctl enable --now farhaul")
    assert json.loads(node.farhaul("history --json")), "the history is there"
    node.dpkg("--purge farhaul")
    left = node.guest.shell("ls -d /var/lib/farhaul /etc/farhaul/* /usr/lib/farhaul /run/farhaul 2>/dev/null || true")
    assert left.split() == ["/etc/farhaul/authorized_keys"], left
    assert node.guest.shell("find /etc/systemd /var/lib/systemd -name 'farhaul.s*ice' -o -name 'farhaul.socket' | head") == ""
