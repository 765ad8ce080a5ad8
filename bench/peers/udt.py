"""UDT4, through a small program of our own over its library (udt_copy.cpp)."""

import pathlib
import shutil

from harness.hosts import HarnessError, call

from .peer import Peer

PORT = 9700
SOURCE = pathlib.Path(__file__).with_name("udt_copy.cpp")
PROGRAM = SOURCE.parents[2] / "target/bench/udt-copy"


class Udt(Peer):
    name = "udt4"
    packages = ("libudt-dev", "g++")
    programs = ("g++",)
    moves = frozenset({"file"})
    over_tcp = False
    sealed = False
    options = ("UDT_MSS: the MTU; UDT_SNDBUF, UDT_RCVBUF and UDT_FC for the bandwidth-delay product (256 MB); UDP_SNDBUF, UDP_RCVBUF 16 MB; "
               "UDT::sendfile")
    reference = "UDT4 manual: 'Configure UDT options' and 'Transfer a file with sendfile/recvfile'"

    def missing(self):
        if not pathlib.Path("/usr/include/udt/udt.h").exists():
            return "not installed: libudt-dev"
        return super().missing()

    def build(self):
        if PROGRAM.exists() and PROGRAM.stat().st_mtime > SOURCE.stat().st_mtime:
            return
        PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        compiler = shutil.which("g++")
        if compiler is None:
            raise HarnessError("no C++ compiler")
        call(compiler, "-O2", "-o", str(PROGRAM), str(SOURCE), "-I/usr/include/udt", "-ludt", "-lpthread")

    def start(self, site):
        site.serve([PROGRAM, "serve", str(PORT), str(site.profile.mtu)], PORT, udp=True)

    def command(self, site, job):
        return [PROGRAM, "send", site.address, str(PORT), job.source, job.target, str(site.profile.mtu)]
