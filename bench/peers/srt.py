"""SRT's file transfer."""

import subprocess

from .peer import Peer, end

PORT = 9710


class Srt(Peer):
    name = "srt-file-transmit"
    packages = ("srt-tools",)
    programs = ("srt-file-transmit",)
    moves = frozenset({"file"})
    over_tcp = False
    sealed = False
    concurrent = False
    options = "transtype=file; fc, sndbuf and rcvbuf for the bandwidth-delay product (256 MiB); -chunk 14560"
    reference = "SRT, API socket options: SRTO_FC, SRTO_SNDBUF, SRTO_RCVBUF, SRTO_TRANSTYPE; 'Configuration guidelines'"
    parameters = "transtype=file&messageapi=0&fc=184000&sndbuf=268435456&rcvbuf=268435456"

    def before(self, site, job):
        job.notes["receiver"] = site.serve(
            ["srt-file-transmit", "-q", "-sf", "-chunk:14560", f"srt://:{PORT}?mode=listener&{self.parameters}",
             f"file://{job.target}"],
            PORT, udp=True)

    def command(self, site, job):
        return ["srt-file-transmit", "-q", "-chunk:14560", f"file://{job.source}",
                f"srt://{site.address}:{PORT}?mode=caller&{self.parameters}"]

    def finish(self, site, job, seconds):
        try:
            job.notes["receiver"].wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return job.notes["receiver"].returncode == 0

    def after(self, site, job):
        end(job.notes["receiver"])
