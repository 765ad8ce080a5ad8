"""The product in whole systems with kernels of their own: Debian 11 (Linux 5.10), 12 (6.1) and 13 (6.12) as guests of qemu.

`./x package --check --full` runs these tests. They take the static program, as one program has to run in all three.
"""

import json
import os
import pathlib
import shutil

import pytest

from vm.guest import Guest
from vm.releases import RELEASES, ROOT

#: The static program: `./x package` makes it.
PROGRAM = pathlib.Path(os.environ.get("FARHAUL_STATIC", ROOT / "target/package/made/farhaul-static"))
HOSTS = "sh /repository/tests/vm/hosts.sh"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM.exists(), reason="./x package has made no static program"),
    pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="there is no qemu; ./x vm build installs it"),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="there is no debootstrap; ./x vm build installs it"),
]

SOURCE = """
mkdir -p /srv/source/sub
head -c 6000000 /dev/urandom >/srv/source/large
truncate -s 3M /srv/source/sparse && echo end >>/srv/source/sparse
for n in $(seq 30); do seq $((n * 500)) >/srv/source/sub/small$n; done
ln -s large /srv/source/link
ln /srv/source/sub/small1 /srv/source/second-name
chmod 640 /srv/source/sub/small2
touch -d '2020-02-02 02:02:02.123456789Z' /srv/source/sub/small3
"""


@pytest.fixture(scope="module", params=RELEASES, ids=[f"Debian {version}" for version in RELEASES])
def guest(request, tmp_path_factory):
    share = tmp_path_factory.mktemp("share")
    shutil.copy(PROGRAM, share / "farhaul")
    with Guest(request.param, share) as made:
        made.shell(HOSTS)
        made.shell(SOURCE)
        yield made


def same(one: str, other: str) -> str:
    """A script that fails if two trees differ in names, kinds, contents, modes or times. A destination that was there before
    keeps its own mode."""
    listing = "find . -mindepth 1 -type d -printf '%p %y %m\\n' -o -printf '%p %y %m %s %T@ %l\\n' | sort"
    lists = f"(cd {one} && {listing}) >/tmp/one; (cd {other} && {listing}) >/tmp/other"
    return f"diff -r --no-dereference {one} {other}; {lists}; diff /tmp/one /tmp/other"


def test_a_guest_has_the_kernel_of_its_system_and_systemd(guest):
    assert guest.shell("uname -r").startswith(guest.release.kernel)
    assert guest.shell("cat /proc/1/comm").strip() == "systemd"
    assert guest.shell(". /etc/os-release && echo $VERSION_ID").strip() == guest.release.version
    assert guest.shell("systemctl --failed --no-legend") == ""


def test_a_guest_has_what_this_machine_may_lack(guest):
    """VLANs, disks of disks and queues: a test that needs one of them takes a guest."""
    guest.shell("""
    ip netns add other
    ip link add trunk0 type veth peer name trunk1 netns other
    ip link add link trunk0 name trunk0.7 type vlan id 7
    ip addr add 10.7.0.1/24 dev trunk0.7 && ip link set trunk0 up && ip link set trunk0.7 up
    ip -n other link add link trunk1 name trunk1.7 type vlan id 7
    ip -n other addr add 10.7.0.2/24 dev trunk1.7 && ip -n other link set trunk1 up && ip -n other link set trunk1.7 up
    ping -c 1 10.7.0.2

    tc qdisc add dev trunk0 root netem delay 1ms
    tc qdisc replace dev trunk0 root fq
    tc qdisc show dev trunk0 | grep -q 'qdisc fq '

    truncate -s 64M /srv/disk1 /srv/disk2
    one=$(losetup --find --show /srv/disk1) two=$(losetup --find --show /srv/disk2)
    mdadm --create /dev/md7 --run --level=1 --raid-devices=2 --metadata=1.2 $one $two
    dmsetup create held --table "0 65536 linear /dev/md7 0"
    mkfs.ext4 -q /dev/mapper/held && mount /dev/mapper/held /mnt
    farhaul cp /srv/source/large /mnt/ && cmp /srv/source/large /mnt/large
    umount /mnt && dmsetup remove held && mdadm --stop /dev/md7 && losetup --detach $one && losetup --detach $two
    rm /srv/disk1 /srv/disk2 && ip netns del other
    """)


@pytest.mark.parametrize("far", ["far:/srv/by-ssh", "fh://far/by-daemon"], ids=["ssh", "daemon"])
def test_a_copy_goes_there_and_back(guest, far):
    there = "/srv/by-ssh" if "://" not in far else "/srv/data/by-daemon"
    report = json.loads(guest.shell(f"mkdir -p {there} && chown mover /srv/data/* 2>/dev/null || true; "
                                    f"farhaul cp --json --accept-new /srv/source/ {far}"))
    assert (report["complete"], report["transport"]) == (True, "udp"), report
    guest.shell(same("/srv/source", there))
    guest.shell(f"rm -rf /srv/back && farhaul cp {far}/ /srv/back; {same('/srv/source', '/srv/back')}")


def test_a_sync_makes_the_far_end_alike(guest):
    guest.shell(f"""
    rm -rf /srv/changing && cp -a /srv/source /srv/changing
    farhaul sync --accept-new --delete /srv/changing/ fh://far/synced
    printf changed | dd of=/srv/changing/large bs=1 seek=3000000 conv=notrunc status=none
    rm /srv/changing/sub/small4 && mkdir /srv/changing/new && seq 10 >/srv/changing/new/file
    farhaul sync --delete /srv/changing/ fh://far/synced
    {same("/srv/changing", "/srv/data/synced")}
    """)
    again = json.loads(guest.shell("farhaul sync --json --delete /srv/changing/ fh://far/synced"))
    assert (again["files"], again["deleted"], again["bytes"]) == (0, 0, 0), again


def test_reads_in_place(guest):
    guest.shell("""
    mkdir -p /srv/data/read && cp /srv/source/large /srv/data/read/ && chmod -R a+rX /srv/data/read
    farhaul cat --accept-new --range 1000000-2999999 fh://far/read/large >/tmp/range
    tail -c +1000001 /srv/source/large | head -c 2000000 | cmp - /tmp/range
    farhaul ls fh://far/read | grep -qx large
    test "$(farhaul sum fh://far/read/large | cut -c-64)" = "$(sha256sum /srv/source/large | cut -c-64)"
    test "$(farhaul stat --json fh://far/read/large | grep -o '"size":[0-9]*')" = '"size":6000000'
    """)


#: Each fails if a file that is there under its own name is not as its source.
LOOK = """
cd /srv/heavy && find . -type f | while read -r file; do
    there=/srv/data/TARGET/$file
    if [ -e "$there" ]; then cmp "$file" "$there" || echo "taken for complete: $file"; fi
done
"""


@pytest.mark.parametrize("options", ["", "--durable", "--durable=file"], ids=lambda options: options or "plain")
def test_a_transfer_goes_on_after_the_power_was_cut(guest, options):
    """Both ends lose power in the middle, the receiver before most of what it has written is on its disk."""
    target = f"cut{options.replace('--', '-').replace('=', '-')}"
    guest.shell("""
    [ -e /srv/heavy/file3 ] || {
        mkdir -p /srv/heavy/small
        for n in 1 2 3; do head -c 24000000 /dev/urandom >/srv/heavy/file$n; done
        for n in $(seq 40); do seq $((n * 100)) >/srv/heavy/small/$n; done
        sync
    }
    """)
    begun = int(guest.shell("cat /sys/class/net/near0/statistics/tx_bytes"))
    guest.shell(f"systemd-run -q --unit={target} farhaul cp --accept-new --rate 16M {options} /srv/heavy/ fh://far/{target}")
    # A half has travelled. Sizes say nothing: files have their whole room from the start.
    guest.shell(f"""
    sent() {{ cat /sys/class/net/near0/statistics/tx_bytes; }}
    until [ $(sent) -gt $(({begun} + 40000000)) ]; do
        systemctl is-active -q {target} || {{ journalctl -u {target} >&2; exit 1; }}
        sleep 0.2
    done
    """)
    guest.cut_power()
    guest.boot()
    guest.shell(HOSTS)
    assert guest.shell(LOOK.replace("TARGET", target)) == ""
    report = json.loads(guest.shell(f"farhaul cp --json --accept-new {options} /srv/heavy/ fh://far/{target}"))
    print(f"Debian {guest.release.version} {options or 'plain'}: {report['bytes']} bytes sent again of 72 million, "
          f"{report['bytes_resumed']} resumed, {report['skipped']} files skipped")
    assert report["complete"] and (report["bytes_resumed"] or report["skipped"]), report
    # A partial file or a journal of a complete file may have come back.
    guest.shell(f"farhaul clean --older 0s /srv/data/{target}; {same('/srv/heavy', f'/srv/data/{target}')}")
    guest.shell(f"rm -rf /srv/data/{target}; sync")
