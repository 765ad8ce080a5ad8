"""rclone: pushing by SFTP and WebDAV, fetching by HTTP in several threads."""

import shutil

from . import http
from .peer import Peer


class Rclone(Peer):
    packages = ("rclone",)
    programs = ("rclone",)

    def run(self, *options):
        return ["rclone", "--config", "", "-q", "--ignore-checksum", *options]


class Sftp(Rclone):
    name = "rclone sftp"
    options = ("--sftp-chunk-size 255k --sftp-concurrency 256: the largest requests that sshd takes, more of them; "
               "--transfers 16; no check of hashes by further ssh commands")
    reference = "rclone.org/sftp: --sftp-chunk-size, --sftp-concurrency, --sftp-disable-hashcheck"

    def command(self, site, job):
        common = self.run("--sftp-host", site.address, "--sftp-port", str(site.link.ssh_port), "--sftp-user", "root",
                          "--sftp-key-file", site.a.home / ".ssh/id_ed25519", "--sftp-chunk-size", "255k",
                          "--sftp-concurrency", "256", "--sftp-disable-hashcheck", "--transfers", "16")
        return [*common, "copy" if job.is_tree else "copyto", job.source, f":sftp:{job.target}"]


class Http(Rclone):
    name = "rclone http"
    packages = ("rclone", "nginx-light")
    programs = ("rclone", "nginx")
    pulls = True
    sealed = False
    options = "--multi-thread-streams 16 --multi-thread-cutoff 8M --transfers 16, from nginx"
    reference = "rclone.org/docs: --multi-thread-streams, --multi-thread-cutoff, --transfers"

    def start(self, site):
        http.nginx(site)

    def command(self, site, job):
        common = self.run("--http-url", f"http://{site.address}:{http.PORT}", "--multi-thread-streams", "16",
                          "--multi-thread-cutoff", "8M", "--transfers", "16")
        return [*common, "copy" if job.is_tree else "copyto", f":http:{job.source.relative_to(site.root)}", job.target]


class Webdav(Rclone):
    name = "rclone webdav"
    packages = ("rclone", "nginx-light")
    programs = ("rclone", "nginx")
    sealed = False
    options = "--transfers 16; a WebDAV push is one stream a file. The server is rclone's own"
    reference = "rclone.org/webdav; rclone serve webdav"
    port = 8081

    def start(self, site):
        site.serve([shutil.which("rclone"), "serve", "webdav", site.root, "--config", "",
                    "--addr", f"{site.address}:{self.port}", "--dir-cache-time", "0s"], self.port)

    def command(self, site, job):
        common = self.run("--webdav-url", f"http://{site.address}:{self.port}", "--transfers", "16")
        return [*common, "copy" if job.is_tree else "copyto", job.source, f":webdav:{job.target.relative_to(site.root)}"]
