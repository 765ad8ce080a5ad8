"""XRootD: its server and xrdcp."""

from harness.hosts import USER

from .peer import Peer

PORT = 1094


class Xrootd(Peer):
    packages = ("xrootd-client", "xrootd-server")
    programs = ("xrdcp", "xrootd")
    sealed = False
    extra = ()

    def start(self, site):
        def make():
            folder = site.scratch("xrootd", user=True)
            (folder / "config").write_text(
                f"all.export {site.root}\nall.adminpath {folder}/admin\nall.pidpath {folder}/pid\nxrd.port {PORT}\n"
                "xrd.allow host *\n")
            return site.serve(["xrootd", "-c", folder / "config", "-l", folder / "log", "-n", "bench"], PORT, user=USER)
        site.shared("xrootd", make)

    def command(self, site, job):
        tree = ["-r", "--parallel", "16"] if job.is_tree else []
        return ["xrdcp", "-N", "-s", *tree, *self.extra, job.source, f"root://{site.address}:{PORT}/{job.into}/"]


class Default(Xrootd):
    name = "xrdcp"
    options = "none (trees: --parallel 16, as the others)"
    reference = "xrdcp --help"


class Streams(Xrootd):
    name = "xrdcp -S 15"
    extra = ("-S", "15")
    options = ("-S 15: as many TCP connections as it allows (trees: --parallel 16); XRD_CPPARALLELCHUNKS=16: chunks of "
               "8 MiB in flight")
    reference = "xrdcp(1): --streams, XRD_CPPARALLELCHUNKS"

    def environment(self, site):
        return {"XRD_CPPARALLELCHUNKS": "16"}
