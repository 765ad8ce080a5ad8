"""A copy that ends early, in whatever phase it is: nothing changes any more once its end is told, what is left behind is
known, and the same command goes on."""

import os
import shutil
import signal
import time

import pytest

from conftest import make_net
from harness.hosts import wait_until
from harness.product import EXIT_LOST
from harness.trees import differences
from test_pause import PHASES, Deleting, HardLinks, Patching, look


@pytest.fixture(scope="module")
def net():
    made = make_net()
    for host, folder in ((made.alpha, made.folder("near")), (made.beta, made.daemon.root / "memory")):
        folder.mkdir(exist_ok=True)
        made.pair.mount_memory(folder, 1400)
        setattr(made, f"memory_{host.name}", folder)
    #: What a phase looks for.
    made.far, made.net = made.daemon, made
    yield made
    made.pair.close()


def is_still(root, seconds):
    before = look(root)
    time.sleep(seconds)
    return look(root) == before


def command(net, phase, *options):
    to = net.far.url(phase.far.relative_to(net.far.root))
    # The far end that was ended is not waited for.
    return ["farhaul", "sync", "--accept-new", "--busy-wait", "1", f"{phase.source}/", to, *options]


def interrupt(net, process):
    """Ctrl-C."""
    process.send_signal(signal.SIGINT)
    return 128 + signal.SIGINT


def kill_near(_net, process):
    process.kill()
    return -signal.SIGKILL


def kill_far(net, _process):
    net.far.kill()
    return EXIT_LOST


def end_far(net, _process):
    """SIGTERM to the daemon, which gives sessions no time here (FARHAUL_SERVE_DRAIN)."""
    assert net.far.stop() == 0
    return EXIT_LOST


DEEDS = [interrupt, kill_near, kill_far, end_far]
#: These are looked at each time.
QUICK = {(Deleting, interrupt), (Deleting, end_far), (HardLinks, kill_far), (Patching, interrupt)}


def cases():
    for kind in PHASES:
        for deed in DEEDS:
            marks = [] if (kind, deed) in QUICK else [pytest.mark.slow]
            yield pytest.param(kind, deed, id=f"{kind.__name__}-{deed.__name__}", marks=marks)


@pytest.mark.parametrize("kind, deed", cases())
def test_a_copy_that_ends_in_a_phase_changes_nothing_after_that_and_the_same_command_goes_on(net, kind, deed, request):
    if net.far.process.poll() is not None:
        net.far.start()
    phase = kind(net, f"{kind.__name__}-{deed.__name__}")
    request.addfinalizer(lambda: [shutil.rmtree(folder) for folder in (phase.source, phase.far)])
    phase.far.mkdir(mode=0o755, exist_ok=True)
    quick = [option for option, before in zip(phase.options, ("", *phase.options)) if "--rate" not in (option, before)]
    process = net.alpha.start(command(net, phase, *phase.options), stdin=-3, stdout=-3, stderr=-3)
    wait_until(lambda: phase.has_begun() or process.poll() is not None, 60, 0.002, "the phase has begun")
    expected = deed(net, process)
    code = process.wait(timeout=60)
    if deed is kill_near:
        # The far end finds that out by itself, soon or after 8 s.
        wait_until(lambda: is_still(phase.far, 3), 20, 0.01, "the far end stops")
    assert is_still(phase.far, 1)
    # A phase may be over before somebody has acted.
    assert code == expected or code == 0 and differences(phase.source, phase.far) == [], code
    if net.far.process.poll() is not None:
        net.far.start()
    again = net.alpha.run(command(net, phase, *quick))
    assert again.returncode == 0, again.stderr.decode()
    assert differences(phase.source, phase.far) == []
    left = [name for folder, _, files in os.walk(phase.far) for name in files if name.startswith(".") and ".fh" in name]
    assert left == []


