"""rsync, over ssh and to its daemon."""

from .peer import GCM, Peer

PORT = 8730


class OverSsh(Peer):
    name = "rsync ssh"
    packages = ("rsync",)
    programs = ("rsync", "ssh")
    options = f"-W (no delta: the target is not there) -e 'ssh -c {GCM}', no compression"
    reference = "rsync(1): --whole-file, -e"

    def command(self, site, job):
        return ["rsync", "-rW", "-e", f"ssh -c {GCM}", job.source, f"beta:{job.into}/"]


class ToDaemon(Peer):
    name = "rsync daemon"
    packages = ("rsync",)
    programs = ("rsync",)
    options = "-W; socket buffers left to the kernel's own tuning"
    reference = "rsync(1): --whole-file; rsyncd.conf(5): socket options"
    sealed = False

    def start(self, site):
        folder = site.scratch("rsyncd")
        (folder / "rsyncd.conf").write_text(
            f"port = {PORT}\nuse chroot = no\npid file = {folder}/pid\nlog file = {folder}/log\nuid = 0\ngid = 0\n"
            f"[bench]\npath = {site.root}\nread only = no\n")
        site.serve(["rsync", "--daemon", "--no-detach", f"--config={folder}/rsyncd.conf"], PORT)

    def command(self, site, job):
        folder = job.into.relative_to(site.root)
        return ["rsync", "-rW", job.source, f"rsync://{site.address}:{PORT}/bench/{folder}/"]
