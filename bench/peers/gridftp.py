"""GridFTP: the server of the Grid Community Toolkit with anonymous access, and globus-url-copy."""

from harness.hosts import USER

from .peer import Peer

PORT = 2811


class GridFtp(Peer):
    packages = ("globus-gass-copy-progs", "globus-gridftp-server-progs")
    programs = ("globus-url-copy", "globus-gridftp-server")
    sealed = False  # the data channel is in the clear by default, with certificates too
    extra = ()

    def start(self, site):
        def make():
            # The server refuses anonymous users if it runs as root. Its log says what it could not do.
            log = site.scratch("gridftp", user=True)
            return site.serve(
                ["globus-gridftp-server", "-aa", "-anonymous-user", USER, "-p", str(PORT), "-control-interface",
                 site.address, "-data-interface", site.address, "-home-dir", "/", "-l", log / "log", "-d", "WARN,ERROR",
                 "-disable-usage-stats", "-s"], PORT, user=USER)
        site.shared("gridftp", make)

    def environment(self, site):
        return {"GLOBUS_HOSTNAME": site.a.v4}

    def command(self, site, job):
        if job.is_tree:
            ends = ["-r", "-cd", f"file://{job.source}/", f"ftp://{site.address}:{PORT}{job.target}/"]
        else:
            ends = [f"file://{job.source}", f"ftp://{site.address}:{PORT}{job.target}"]
        return ["globus-url-copy", *self.extra, *ends]


class Default(GridFtp):
    name = "gridftp"
    options = "none: one stream, one file at a time"
    reference = "globus-url-copy -help"


class Tuned(GridFtp):
    name = "gridftp -p 4 -cc 4 -pp -fast"
    extra = ("-fast", "-p", "4", "-cc", "4", "-pp")
    options = "-p 4: parallel streams, -cc 4: concurrent files, -pp: pipelining, -fast: data channels reused"
    reference = "globus-url-copy -help; fasterdata.es.net, GridFTP quick start"
