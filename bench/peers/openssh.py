"""OpenSSH's copies, and tar through it."""

from .peer import GCM, Peer


class Scp(Peer):
    name = "scp"
    packages = ("openssh-client", "openssh-server")
    programs = ("scp",)
    options = f"-c {GCM}: the fastest of OpenSSH's ciphers where the CPU has AES; no compression (its default)"
    reference = "scp(1) -c, ssh_config(5) Ciphers"

    def command(self, site, job):
        return ["scp", "-q", "-c", GCM, *(["-r"] if job.is_tree else []), job.source, f"beta:{job.into}/"]


class Sftp(Peer):
    name = "sftp"
    packages = ("openssh-client", "openssh-server")
    programs = ("sftp",)
    options = f"-c {GCM} -B 261120 -R 256: the largest request that sshd takes, four times as many outstanding"
    reference = "sftp(1): -B buffer_size, -R num_requests"

    def before(self, site, job):
        job.notes["batch"] = batch = site.scratch("batch") / "commands"
        verb = "put -r" if job.is_tree else "put"
        batch.write_text(f'{verb} "{job.source}" "{job.into}/"\n')

    def command(self, site, job):
        return ["sftp", "-q", "-c", GCM, "-B", "261120", "-R", "256", "-b", job.notes["batch"], "beta"]


class Tar(Peer):
    name = "tar over ssh"
    packages = ("openssh-client", "openssh-server", "tar")
    programs = ("tar", "ssh")
    options = f"tar -b 512 | ssh -c {GCM} tar -b 512: 256 KiB records"
    reference = "tar(1) --blocking-factor; ssh_config(5) Ciphers"

    def command(self, site, job):
        script = f'tar -b 512 -C "$1" -cf - "$2" | ssh -c {GCM} beta tar -b 512 -C "$3" -xf -'
        return ["bash", "-o", "pipefail", "-c", script, "tar", job.source.parent, job.source.name, job.into]
