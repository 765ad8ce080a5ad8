"""A transfer service on a host, and its command line as a user runs it."""

import json
import os

from .product import Daemon

FINAL = {"done", "partly_failed", "failed", "cancelled", "stopped"}


class Service:
    """`farhaul serve` on `host`, whose jobs reach the daemon of the other host."""

    def __init__(self, net, host, port=34001, arguments=(), env=None, far=None, hooks=()):
        self.net, self.host, self.far = net, host, far
        self.daemon = Daemon(net.pair, host, [], port=port, arguments=arguments, env=env, hooks=hooks)
        self.socket = self.daemon.directory / "state/api.sock"
        if far is not None:
            far.keys.write_text(far.keys.read_text() + self.key)

    @property
    def key(self):
        """The line for the authorized keys of daemons that are to let the service in."""
        return self.daemon.identity.with_suffix(".pub").read_text()

    @property
    def state(self):
        return self.daemon.directory / "state"

    def run(self, *arguments, expect=0, env=None, input=None, timeout=120):
        """Runs `farhaul ARGUMENTS` against this service; returns stdout as text."""
        env = {"FARHAUL_API": os.fspath(self.socket), **(env or {})}
        done = self.host.run(["farhaul", *map(os.fspath, arguments)], env=env, input=input, timeout=timeout)
        said = f"farhaul {arguments}: {done.returncode}\n{done.stdout.decode()}{done.stderr.decode()}"
        assert done.returncode in ([expect] if isinstance(expect, int) else expect), said
        self.stderr = done.stderr.decode()
        return done.stdout.decode()

    def json(self, *arguments, **options):
        return json.loads(self.run(*arguments, "--json", **options))

    def submit(self, *arguments, **options):
        """Submits a job; returns its id."""
        return self.run("submit", *arguments, **options).strip()

    def job(self, id):
        return self.json("job", id)

    def wait(self, *ids, expect=0):
        self.run("wait", *ids, expect=expect)

    def to_far(self, path):
        """The location at the other host's daemon, and the option with the fingerprint to expect there."""
        return [self.far.url(path), "--fingerprint", self.far.fingerprint]
