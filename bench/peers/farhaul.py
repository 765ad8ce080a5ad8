"""Farhaul itself, over SSH and to a daemon."""

import json

from harness import product

from .peer import Peer, stored


class Farhaul(Peer):
    over_tcp = False  # UDP; the congestion control of the kernel's TCP is not its own
    reference = "docs/guide/copy.md"
    tells_when_interrupted = True

    def arrived(self, job, out):
        try:
            return min(job.size, json.loads(out)["bytes"])
        except (ValueError, KeyError):
            return min(job.size, stored(job.into))


class OverSsh(Farhaul):
    name = "farhaul ssh"
    options = "none: farhaul cp FILE host:PATH"

    def command(self, site, job):
        return ["farhaul", "cp", "--json", job.source, f"beta:{job.into}/"]


class ToDaemon(Farhaul):
    def __init__(self, flows=None, cipher=None, mtu=None):
        self.name = "farhaul daemon"
        self.options = "none: farhaul cp FILE fh://host/PATH"
        self.extra = []
        for option, value in (("--flows", flows), ("--cipher", cipher), ("--mtu", mtu)):
            if value is not None:
                self.extra += [option, str(value)]
                self.name += f" {option.removeprefix('--')} {value}"
                self.options = " ".join(self.extra)
        self.sealed = cipher != "none"

    def start(self, site):
        def make():
            key = site.a.home / ".config/farhaul/id_ed25519.pub"
            if not key.exists():
                product.keygen(site.a)
            daemon = product.Daemon(site.link.pair, site.b, [key.read_text()], site.link.daemon_port, root=site.root,
                                    arguments=["--allow-cipher-none"])
            site.on_close(daemon.kill)
            # Each case has a daemon of its own, with a fingerprint of its own.
            (site.a.home / ".config/farhaul/known_hosts").unlink(missing_ok=True)
            site.processes.append(daemon.process)
            return daemon
        self.daemon = site.shared("farhaul", make)

    def command(self, site, job):
        folder = job.into.relative_to(site.root)
        return ["farhaul", "cp", "--json", "--accept-new", *self.extra, job.source, self.daemon.url(f"{folder}/")]
