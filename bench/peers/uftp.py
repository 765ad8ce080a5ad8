"""UFTP: multicast file transfer, here to one receiver. It has to be told the rate."""

import ipaddress

from .peer import Peer, end

PORT = 1044


class Uftp(Peer):
    name = "uftp"
    packages = ("uftp",)
    programs = ("uftp", "uftpd")
    over_tcp = False
    sealed = False
    concurrent = False
    options = "-R 90 % of the bottleneck (it has no use for less than what is known), -B 100 MB asked for, -b: the MTU less 60, at most 8800"
    reference = "uftp(1): -R, -B, -b, -C"
    extra = ()

    def before(self, site, job):
        # The receiver's folder is an option of the daemon, so each run has a daemon of its own.
        job.notes["daemon"] = site.serve(["uftpd", "-d", "-t", "-D", job.into, "-I", site.b.interface, "-p", str(PORT),
                                          "-B", "104857600"], PORT, udp=True)

    def command(self, site, job):
        rate = site.profile.rate_bps
        receiver = "0x" + ipaddress.IPv4Address(site.address).packed.hex()  # named, so that the sender waits for no other one
        block = str(min(8800, site.profile.mtu - 60))  # a packet's payload; 8800 is the limit of uftp
        kbits = "-1" if rate is None else str(int(rate * 0.9 / 1000))
        return ["uftp", "-q", "-R", kbits, "-B", "104857600", "-b", block, "-p", str(PORT), "-I", site.a.interface,
                *self.extra, "-M", site.address, "-H", receiver, job.source]

    def after(self, site, job):
        end(job.notes["daemon"])


class Sealed(Uftp):
    name = "uftp aes128-gcm"
    sealed = True
    extra = ("-Y", "aes128-gcm", "-h", "sha256")
    options = "-Y aes128-gcm -h sha256, else as uftp"
