"""What the tests share: a pair of hosts with sshd and a daemon, and the two roads to the far end."""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import random
import shutil
import tempfile

import pytest

from harness import hooks, old_kernel, product, surroundings
from harness.hosts import Pair, install_signal_handlers
from harness.product import Daemon, keygen
from harness.ssh import SshServer


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="run the slow tests too")
    parser.addoption("--kernel", choices=old_kernel.KINDS, help="run the product as if the kernel were this one")
    parser.addoption("--record", action="store_true", help="record the sessions that a release does not have yet")
    parser.addoption("--shuffle", metavar="SEED", help="run the files, and the tests of each, in an order by chance")


def pytest_configure(config):
    install_signal_handlers()
    if (kind := config.getoption("--kernel")) and not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="farhaul-kernel-")
        config.add_cleanup(lambda: shutil.rmtree(folder))
        os.environ["FARHAUL_BIN"] = str(old_kernel.wrapper(folder, kind, product.binary().resolve()))
    # The controller of a parallel run keeps its surroundings: it starts the workers with them, and each
    # settles itself.
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        surroundings.settle()


def pytest_collection_modifyitems(config, items):
    drop_slow(config, items)
    if seed := config.getoption("--shuffle"):
        shuffle(items, seed)


def shuffle(items, seed):
    """Finds tests that need what another one has left behind. All workers of a run get the same order."""
    chance = random.Random(seed)
    files = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    groups = list(files.values())
    chance.shuffle(groups)
    for group in groups:
        chance.shuffle(group)
    items[:] = itertools.chain.from_iterable(groups)


def drop_slow(config, items):
    if config.getoption("--full") or config.getoption("-m"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


#: Ports of daemons that one test starts for itself.
FAILING_PORTS = itertools.count(33500)
#: Names of folders below a daemon's root are never used twice.
FAR_FOLDERS = itertools.count()


@dataclasses.dataclass
class Net:
    """Two hosts: `alpha` runs the client, `beta` has sshd and a daemon that knows alpha's key."""

    pair: Pair
    ssh: SshServer
    daemon: Daemon
    key: str

    @property
    def alpha(self):
        return self.pair.alpha

    @property
    def beta(self):
        return self.pair.beta

    def folder(self, name):
        return self.pair.folder(name)

    def entries(self):
        """What lies in the pair's directory and below the daemon's root."""
        return {*self.pair.directory.iterdir(), *self.daemon.root.iterdir()}


def make_net(arguments=()):
    pair = Pair(product.binary())
    try:
        ssh = SshServer(pair)
        key = keygen(pair.alpha)
        daemon = Daemon(pair, pair.beta, [key], arguments=arguments)
        return Net(pair, ssh, daemon, key)
    except BaseException:
        pair.close()
        raise


@pytest.fixture(scope="session")
def shared_net():
    made = make_net()
    yield made
    made.pair.close()


@pytest.fixture
def net(shared_net):
    """Hosts that many tests share. What a test has left there is removed after it, as all tests together write
    more than a disk may hold. Notes that UDP was blocked are removed as well: such a note gives TCP an even start,
    and a short job of the next test could then end over TCP."""
    before = shared_net.entries()
    yield shared_net
    for entry in shared_net.entries() - before:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    for host in shared_net.pair.hosts:
        (host.home / ".local/state/farhaul/blocked.json").unlink(missing_ok=True)


@pytest.fixture
def own_net():
    """Hosts of this test alone, for tests that kill daemons or change the link."""
    made = make_net()
    yield made
    made.pair.close()


@dataclasses.dataclass
class Road:
    """One way of reaching `beta` from `alpha`, and a folder there that it leads to."""

    name: str
    net: Net
    far: pathlib.Path
    daemon: Daemon
    #: Those of the programs on `alpha`, as `hooks.prefix` makes them.
    hooks: list = dataclasses.field(default_factory=list)
    #: Options that each command gets.
    arguments: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.alpha = self.net.alpha
        self.arguments = self.arguments or ([] if self.name == "ssh" else ["--accept-new"])
        #: What the report calls the carrier when UDP does not work.
        self.fallback = "tcp"
        #: The program that serves the far end.
        self.process = "farhaul"

    def url(self, relative="", host="beta"):
        """A path below the far folder, as the command line names it."""
        path = f"{self.far}/{relative}" if relative else f"{self.far}"
        if self.name == "ssh":
            return f"{host}:{path}"
        return self.daemon.url(str(pathlib.PurePosixPath(path).relative_to(self.daemon.root))
                               + ("/" if path.endswith("/") else ""), host)

    def cp(self, *arguments, **options):
        return product.cp(self.alpha, *self.arguments, *arguments, hooks=self.hooks, **options)

    def sync(self, *arguments, **options):
        return self.cp(*arguments, verb="sync", **options)

    def start(self, *arguments, **options):
        return product.start_cp(self.alpha, *self.arguments, *arguments, hooks=self.hooks, **options)

    @contextlib.contextmanager
    def failing(self, fault=None, epoch_bits=None):
        """The same road with both ends set up to fail on purpose. The protocol does not carry this: each end is
        started with the hooks, over one road by ssh, over the other one as a daemon of its own."""
        made = hooks.prefix(fault, epoch_bits)
        if not made:
            yield self
            return
        if self.name == "ssh":
            far_end = hooks.far_end(self.net.folder("far-end"), made)
            yield dataclasses.replace(self, hooks=made, arguments=["--remote-program", str(far_end), *self.arguments])
            return
        daemon = Daemon(self.net.pair, self.net.beta, [self.net.key], port=next(FAILING_PORTS), root=self.daemon.root, hooks=made)
        yield dataclasses.replace(self, daemon=daemon, hooks=made)
        daemon.kill()


def road_to(net, name):
    far = net.folder("far") if name == "ssh" else net.daemon.root / f"far{next(FAR_FOLDERS)}"
    far.mkdir(exist_ok=True)
    return Road(name, net, far, net.daemon)


@pytest.fixture(params=["ssh", "daemon"])
def road(request, net):
    return road_to(net, request.param)


@pytest.fixture
def road_of(net):
    """A function that returns the road of a name, for tests that choose their roads."""
    return lambda name: road_to(net, name)


@pytest.fixture(params=["ssh", "daemon"])
def own_road(request, own_net):
    return road_to(own_net, request.param)


@pytest.fixture
def ssh_road(net):
    return road_to(net, "ssh")


@pytest.fixture
def daemon_road(net):
    return road_to(net, "daemon")


@pytest.fixture
def near(net):
    """A folder on alpha."""
    return net.folder("near")


class Way:
    """A source and a destination: one of them on alpha, the other at the far end."""

    def __init__(self, direction, road, near):
        self.road = road
        self.is_push = direction == "push"
        here, there = near / "tree", road.far / "tree"
        self.source, self.target = (here, there) if self.is_push else (there, here)

    def sync(self, *arguments, slash="", target_slash="", verb="sync", **options):
        far = self.road.url("tree")
        source, target = (f"{self.source}", far) if self.is_push else (far, f"{self.target}")
        run = self.road.sync if verb == "sync" else self.road.cp
        return run(*arguments, f"{source}{slash}", f"{target}{target_slash}", **options)


@pytest.fixture(params=["push", "pull"])
def way(request, road, near):
    return Way(request.param, road, near)
