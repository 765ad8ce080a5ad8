"""The harness of guests, as far as it needs no guest: archives, orders of modules, answers of the agent, options of qemu."""

import base64
import contextlib
import json
import socket
import threading

import pytest

from vm import accelerator, guest, image, initrd
from vm.agent import Agent, AgentError
from vm.releases import RELEASES

DEPENDENCIES = """\
kernel/fs/ext4/ext4.ko: kernel/lib/crc16.ko kernel/fs/mbcache.ko kernel/fs/jbd2/jbd2.ko
kernel/fs/jbd2/jbd2.ko:
kernel/fs/mbcache.ko:
kernel/lib/crc16.ko:
kernel/drivers/virtio/virtio_pci.ko.xz: kernel/drivers/virtio/virtio_ring.ko.xz kernel/drivers/virtio/virtio.ko.xz
kernel/drivers/virtio/virtio_ring.ko.xz: kernel/drivers/virtio/virtio.ko.xz
kernel/drivers/virtio/virtio.ko.xz:
kernel/drivers/net/dummy-one.ko:
"""


def test_modules_come_after_what_they_need_and_built_in_ones_not_at_all(tmp_path):
    (tmp_path / "modules.dep").write_text(DEPENDENCIES)
    order = [initrd.module_name(place) for place in initrd.load_order(tmp_path / "modules.dep", ["virtio_pci", "virtio_blk", "ext4"])]
    assert order == ["virtio", "virtio_ring", "virtio_pci", "jbd2", "mbcache", "crc16", "ext4"]
    assert initrd.module_name("kernel/drivers/net/dummy-one.ko") == "dummy_one"


def test_an_archive_is_one_that_the_kernel_unpacks():
    """From: Documentation/driver-api/early-userspace/buffer-format.rst of Linux."""
    packed = initrd.archive(["bin"], {"init": b"hello"})
    entries, at = [], 0
    while True:
        assert packed[at : at + 6] == b"070701" and at % 4 == 0
        numbers = [int(packed[at + 6 + 8 * field : at + 14 + 8 * field], 16) for field in range(13)]
        mode, size, name_size = numbers[1], numbers[6], numbers[11]
        name = packed[at + 110 : at + 110 + name_size]
        assert name.endswith(b"\0")
        data = at + 110 + name_size + (-(110 + name_size)) % 4
        entries.append((name[:-1].decode(), mode, packed[data : data + size]))
        at = data + size + (-size) % 4
        if name == b"TRAILER!!!\0":
            break
    assert entries == [("bin", 0o40755, b""), ("init", 0o100755, b"hello"), ("TRAILER!!!", 0, b"")]
    assert at == len(packed)


@pytest.mark.parametrize(
    "name,wanted",
    [
        ("./boot/vmlinuz-6.1.0-50-amd64", True),
        ("./boot/System.map-6.1.0-50-amd64", False),
        ("./lib/modules/6.1.0-50-amd64/kernel/drivers/md/dm-mod.ko", True),
        ("./usr/lib/modules/6.12.1-amd64/kernel/net/sched/sch_fq.ko.xz", True),
        ("./lib/modules/6.1.0-50-amd64/kernel/drivers/gpu/drm/drm.ko", False),
        ("./lib/modules/6.1.0-50-amd64/kernel/drivers/scsi/sd_mod.ko", False),
        ("./lib/modules/6.1.0-50-amd64/modules.builtin", True),
        ("./usr/share/doc/linux-image/copyright", False),
    ],
)
def test_modules_of_devices_that_no_guest_has_are_left_out(name, wanted):
    assert image.is_wanted(name) == wanted


@contextlib.contextmanager
def agent_that_answers(path, *answers):
    """Each question gets the next of these functions' answers; a function takes the question and returns bytes."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve():
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as questions:
            for answer, line in zip(answers, questions):
                connection.sendall(answer(json.loads(line)))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    client = Agent(str(path))
    try:
        yield client
    finally:
        client.close()
        thread.join(10)
        server.close()


def answer(value):
    return lambda _: json.dumps({"return": value}).encode() + b"\n"


def in_step(question):
    """What an earlier connection has asked for, and half a line, come before the answer."""
    return b'{"return": {"pid": 1}}\n\xff{"ret\n' + json.dumps({"return": question["arguments"]["id"]}).encode() + b"\n"


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def test_the_agent_runs_a_command_to_its_end(tmp_path):
    ended = {"exited": True, "exitcode": 3, "out-data": encoded("some output\n"), "err-data": encoded("a complaint\n")}
    with agent_that_answers(tmp_path / "agent", in_step, answer({"pid": 17}), answer({"exited": False}), answer(ended)) as agent:
        agent.connect(10)
        done = agent.wait(agent.start("exit 3"), 10)
    assert (done.code, done.stdout, done.stderr) == (3, "some output\n", "a complaint\n")


def test_the_agent_tells_what_was_refused_and_that_a_guest_has_ended(tmp_path):
    def refuse(_):
        return b'{"error": {"class": "GenericError", "desc": "no such file"}}\n'

    with agent_that_answers(tmp_path / "agent", in_step, refuse) as agent:
        agent.connect(10)
        with pytest.raises(AgentError, match="guest-exec: no such file"):
            agent.start("true")
        with pytest.raises((AgentError, OSError)):
            agent.ask("guest-ping", seconds=10)


def test_a_device_that_runs_no_kernel_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(accelerator, "FOLDER", tmp_path)
    monkeypatch.setattr(accelerator.os, "access", lambda *_: False)
    assert accelerator.options(RELEASES["12"]) == accelerator.EMULATED
    monkeypatch.setattr(accelerator.os, "access", lambda *_: True)
    tried = []
    monkeypatch.setattr(accelerator, "runs_a_kernel", lambda *_: bool(tried.append(1)))
    for _ in range(2):
        assert accelerator.options(RELEASES["12"]) == accelerator.EMULATED
    assert len(tried) == 1
    (tmp_path / "kvm-runs").write_text("yes")
    assert accelerator.options(RELEASES["12"]) == accelerator.KVM


def test_a_guest_takes_at_most_one_gibibyte_and_writes_to_nothing_but_its_layer_and_its_share(tmp_path):
    argv = guest.command_line(RELEASES["11"], tmp_path / "layer", accelerator.EMULATED, tmp_path / "share", "agent", "none")
    given = dict(zip(argv, argv[1:]))
    assert int(given["-m"]) <= 1024 and "-no-reboot" in argv
    assert [option.split(",")[0] for option in argv if option.startswith("file=")] == [f"file={tmp_path}/layer"]
    shared = [option for option in argv if option.startswith("local,")]
    assert ["readonly=on" in option for option in shared] == [True, False]
    assert "-netdev" not in argv and "-nic" not in argv
