"""Memory to memory: what the hosts and the link give when no file is touched and nothing is sealed or verified."""

from .peer import Peer


class Yardstick(Peer):
    yardstick = True
    sealed = False
    concurrent = False
    moves = frozenset({"file"})

    def arrived(self, job, out):
        return None


class Iperf3(Yardstick):
    packages = ("iperf3",)
    programs = ("iperf3",)
    reference = "iperf3(1): -n, -P"

    def __init__(self, streams=1):
        self.streams = streams
        self.name = "iperf3" if streams == 1 else f"iperf3 -P {streams}"
        self.options = "one stream" if streams == 1 else f"-P {streams}: streams at once"

    def start(self, site):
        site.shared("iperf3", lambda: site.serve(["iperf3", "-s"], 5201))

    def command(self, site, job):
        return ["iperf3", "-c", site.address, "-n", str(job.size), "-P", str(self.streams), "-J"]


class Nuttcp(Yardstick):
    name = "nuttcp"
    packages = ("nuttcp",)
    programs = ("nuttcp",)
    options = "-l 1m: large writes"
    reference = "nuttcp(8): -l, -n"

    def start(self, site):
        site.serve(["nuttcp", "-S", "--nofork"], 5000)

    def command(self, site, job):
        return ["nuttcp", "-t", "-l1m", f"-n{job.size >> 20}", site.address]
