"""An OpenSSH server on `beta` and the configuration of a client on `alpha`, as real users would have them."""

import os
import shutil

from .hosts import USER, USER_ID, call, wait_until

PORTS = (22, 2222)


class SshServer:
    """sshd on ports 22 and 2222 of one host. `alpha`'s root can log in as root and as the ordinary user.

    With other ports, the client's configuration names the first of them.
    """

    def __init__(self, pair, ports=PORTS):
        self.pair = pair
        self.ports = ports
        self.directory = pair.folder("sshd")
        client = pair.alpha.home / ".ssh"
        client.mkdir(mode=0o700)
        self.client_key = client / "id_ed25519"
        self.host_key = self.directory / "host_key"
        for path, comment in ((self.client_key, "client"), (self.host_key, "host")):
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))
        public = self.host_key.with_suffix(".pub").read_text().split()
        names = f"beta,beta6,{pair.beta.v4},{pair.beta.v6}"
        names += "".join(f",[{name}]:{port}" for name in names.split(",") for port in ports if port != 22)
        if 22 not in ports:
            (client / "config").write_text(f"Host *\n    Port {ports[0]}\n")
        (client / "known_hosts").write_text(f"{names} {public[0]} {public[1]}\n")
        self._authorize()
        self.process = self._start()
        pair.on_close(self.stop)

    def _authorize(self):
        beta = self.pair.beta
        for home, owner in ((beta.home, 0), (beta.user_home, USER_ID)):
            folder = home / ".ssh"
            folder.mkdir(mode=0o700)
            shutil.copyfile(self.client_key.with_suffix(".pub"), folder / "authorized_keys")
            for path in (folder, folder / "authorized_keys"):
                os.chown(path, owner, owner)

    def _start(self):
        beta = self.pair.beta
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        config = self.directory / "sshd_config"
        config.write_text("".join(f"Port {port}\n" for port in self.ports) + (
            f"HostKey {self.host_key}\n"
            f"PidFile {self.directory}/pid\n"
            "AuthorizedKeysFile .ssh/authorized_keys\n"
            "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nUseDNS no\n"
            "MaxStartups 100\nPrintMotd no\nPrintLastLog no\nLogLevel ERROR\n"
            # The tests log in thousands of times. This key exchange takes half of the default's processor time.
            "KexAlgorithms curve25519-sha256\n"
            f"SetEnv PATH={beta.environment()['PATH']}\n"
            "Subsystem sftp internal-sftp\n"
        ))
        log = open(self.directory / "log", "wb")
        process = beta.start(["/usr/sbin/sshd", "-D", "-e", "-f", config], stdout=log, stderr=log)
        log.close()
        wait_until(lambda: process.poll() is not None or self.pair.alpha.run(["ssh", "beta", "true"]).returncode == 0,
                   what="sshd answers", every=0.1)
        if process.poll() is not None:
            raise RuntimeError(f"sshd ended: {(self.directory / 'log').read_text()}")
        return process

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()


def user_target():
    """The ordinary user on beta, as ssh takes it: user@host."""
    return f"{USER}@beta"
