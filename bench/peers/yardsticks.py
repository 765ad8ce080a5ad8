"""Memory to memory: how fast the hosts and the link are if no file is touched and nothing is sealed or
verified.

A yardstick runs for a fixed time and reports the rate at its receiver.
"""

import json
import re

from .peer import Peer


class Yardstick(Peer):
    yardstick = True
    sealed = False
    concurrent = False
    moves = frozenset({"file"})

    def seconds(self, job):
        """Long enough for TCP to find its rate, short enough for the run's limit."""
        return max(1, min(10, int(job.limit / 2)))

    def arrived(self, job, out):
        return None


class Iperf3(Yardstick):
    packages = ("iperf3",)
    programs = ("iperf3",)
    reference = "iperf3(1): -t, -P"

    def __init__(self, streams=1):
        self.streams = streams
        self.name = "iperf3" if streams == 1 else f"iperf3 -P {streams}"
        self.options = "one stream, 10 s" if streams == 1 else f"-P {streams}: streams at once, 10 s"

    def start(self, site):
        site.shared("iperf3", lambda: site.serve(["iperf3", "-s"], 5201))

    def command(self, site, job):
        return ["iperf3", "-c", site.address, "-t", str(self.seconds(job)), "-P", str(self.streams), "-J"]

    def measured(self, out):
        received = json.loads(out)["end"]["sum_received"]
        return received["bytes"], received["seconds"]


class Nuttcp(Yardstick):
    name = "nuttcp"
    packages = ("nuttcp",)
    programs = ("nuttcp",)
    options = "-l 1m: large writes; 10 s"
    reference = "nuttcp(8): -l, -T"

    def start(self, site):
        site.serve(["nuttcp", "-S", "--nofork"], 5000)

    def command(self, site, job):
        return ["nuttcp", "-t", "-l1m", f"-T{self.seconds(job)}", "-fparse", site.address]

    def measured(self, out):
        found = dict(re.findall(r"(\w+)=(\S+)", out.decode(errors="replace")))
        return float(found["megabytes"]) * (1 << 20), float(found["real_seconds"])
