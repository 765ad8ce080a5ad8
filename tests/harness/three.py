"""Three hosts on one switch: `alpha` runs the client, `beta` and `gamma` a daemon each.

Always true: the only interface of a host carries what that host itself sends and receives, and no traffic
between the others.
"""

from . import play, product
from .hosts import Host, Pair, call
from .product import Daemon, keygen

#: The device of the switch, in a network namespace of its own.
BRIDGE = "switch"


class Trio(Pair):
    """A `Pair` with a third host."""

    @property
    def hosts(self):
        return (self.alpha, self.beta, self.gamma)

    def _build(self, binary, mtu):
        tag = self.alpha.netns.removesuffix("-a")
        self.gamma = Host("gamma", f"{tag}-g", f"{self.alpha.interface[:-1]}g", self.directory / "gamma", "10.77.0.3", "fd77::3")
        self.switch = f"{tag}-s"
        super()._build(binary, mtu)
        for host in self.hosts:
            with open(f"/etc/netns/{host.netns}/hosts", "a") as names:
                names.write(f"{self.gamma.v4} gamma\n{self.gamma.v6} gamma6\n")

    def _join(self, mtu):
        for name in (self.switch, *(host.netns for host in self.hosts)):
            call("ip", "netns", "add", name)
        call("ip", "-n", self.switch, "link", "add", BRIDGE, "type", "bridge", "stp_state", "0", "forward_delay", "0")
        call("ip", "-n", self.switch, "link", "set", BRIDGE, "up")
        for host in self.hosts:
            port = f"p{host.interface[1:]}"
            call("ip", "link", "add", host.interface, "netns", host.netns, "mtu", str(mtu), "type", "veth",
                 "peer", "name", port, "netns", self.switch, "mtu", str(mtu))
            call("ip", "-n", self.switch, "link", "set", port, "master", BRIDGE, "up")
            inside = ("ip", "-n", host.netns)
            call(*inside, "link", "set", "lo", "up")
            call(*inside, "addr", "add", f"{host.v4}/24", "dev", host.interface)
            call(*inside, "addr", "add", f"{host.v6}/64", "dev", host.interface, "nodad")
            call(*inside, "link", "set", host.interface, "up")

    def close(self):
        super().close()
        from .hosts import remove_host
        remove_host(self.switch)


class ThreeNet:
    """A trio with a daemon on beta and one on gamma. Both know alpha's key, but not each other's."""

    def __init__(self):
        self.pair = Trio(product.binary())
        try:
            self.key = keygen(self.pair.alpha)
            self.b = Daemon(self.pair, self.pair.beta, [self.key])
            self.c = Daemon(self.pair, self.pair.gamma, [self.key])
        except BaseException:
            self.pair.close()
            raise

    @property
    def alpha(self):
        return self.pair.alpha

    @property
    def beta(self):
        return self.pair.beta

    @property
    def gamma(self):
        return self.pair.gamma

    def folder(self, name):
        return self.pair.folder(name)

    def cp(self, *arguments, **options):
        return product.cp(self.alpha, "--accept-new", *arguments, **options)

    def start(self, *arguments, **options):
        return product.start_cp(self.alpha, "--accept-new", *arguments, **options)

    def bytes_at_alpha(self):
        """All that alpha's interface has carried, both ways."""
        return self.alpha.counter("rx_bytes") + self.alpha.counter("tx_bytes")

    def session(self, daemon, wish, key=None, host=None, **hello):
        """A session with a daemon under the key in this file: (reply, session or None), as long as the
        context lasts."""
        key = key or self.alpha.home / ".config/farhaul/id_ed25519"
        return play.session_with(host or self.alpha, daemon, key, wish, **hello)
