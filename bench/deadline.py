"""Jobs with `--finish-by` on a link of the lab: how soon they are done where nobody else wants the link, and
whether they are in time beside a job that wants all of it, on the link and under a cap; how much of their time
those use that are smooth; and how soon a job that cannot make it says so. `./x bench deadline`; one PASS or MISS
line a row.

Always true: the same run measures the time that the link needs, by the same job without a deadline; times are
those in the service's records.
"""

import argparse
import datetime
import statistics
import sys
import time

from ground import Results
from link import LabLink, Profile

from harness import product
from harness.hosts import install_signal_handlers
from harness.service import Service

PORT, FAR_PORT = 33701, 33702
LATE, TIMES = 0.8, (1.2, 2, 10)
#: How many seconds a job that cannot be finished in time may take to say so.
SAID_WITHIN = 10
USED = (0.85, 1.0)
#: How much longer a job with a deadline may take than one without, where nobody else wants the link: it yields, so
#: that it begins more carefully.
SOON = 1.5
#: The deadline of a job beside another one that wants everything, in times of what the link needs.
BESIDE = 3


class Lab:
    def __init__(self, link, size):
        self.far = product.Daemon(link.pair, link.b, [], port=FAR_PORT)
        self.service = Service(link, link.a, port=PORT, far=self.far)
        self.size = size

    def submit(self, *arguments):
        return self.service.submit(f"zero:{self.size}", *self.service.to_far("null:"), *arguments)

    def seconds(self, id):
        """How long the job has run."""
        self.service.run("wait", id, timeout=600)
        job = self.service.job(id)
        ended, began = (datetime.datetime.fromisoformat(job[when]) for when in ("ended", "began"))
        return (ended - began).total_seconds()

    def by(self, seconds):
        moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        return "--finish-by", moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def measure(results, chosen):
    link = LabLink(chosen.dir)
    try:
        link.set(Profile("campus", rtt_ms=chosen.rtt, rate_bps=chosen.mbps * 1_000_000, loss=chosen.loss / 100))
        lab = Lab(link, chosen.gib << 30)
        needs = statistics.median(lab.seconds(lab.submit()) for _ in range(3))
        results.note(f"{chosen.gib} GiB at {chosen.mbps} Mbit/s and {chosen.rtt:g} ms need {needs:.1f} s")
        for times in TIMES:
            given = needs * times
            took = lab.seconds(lab.submit(*lab.by(given)))
            results.row(f"alone, a deadline of {times:g} times what the link needs: time of the job without one", took <= needs * SOON,
                        f"{took / needs:.2f}", f"at most {SOON}")
            used = lab.seconds(lab.submit(*lab.by(given), "--smooth")) / given
            low, high = USED
            results.row(f"smooth, a deadline of {times:g} times: time used", low <= used <= high, f"{used:.3f}", f"{low} to {high}")
        for where, cap in (("on the link", None), ("under a cap", f"{chosen.mbps * 4 // 5}M")):
            if cap is not None:
                lab.service.run("cap", "set", "host", "--rate", cap)
            given = needs * BESIDE
            other = lab.service.submit("zero:", *lab.service.to_far("null:"), "--priority", "9", "--policy", "high")
            used = lab.seconds(lab.submit(*lab.by(given), "--priority", "0")) / given
            results.row(f"beside a job that wants all, {where}, a deadline of {BESIDE:g} times: time used", used <= 1, f"{used:.3f}", "at most 1")
            lab.service.run("cancel", other)
        lab.service.run("cap", "remove", "host")
        begin = time.monotonic()
        id = lab.submit(*lab.by(needs * LATE), "--anyway")
        said = None
        while said is None and time.monotonic() < begin + 2 * needs:
            if lab.service.job(id)["promise"]["state"] == "late":
                said = time.monotonic() - begin
            time.sleep(0.1)
        results.row(f"a deadline of {LATE} times: said within", said is not None and said <= SAID_WITHIN,
                    "never" if said is None else f"{said:.1f} s", f"{SAID_WITHIN} s")
    finally:
        link.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--dir", default="/var/tmp", help="where the lab's files lie (default /var/tmp)")
    parser.add_argument("--gib", type=int, default=1, help="GiB of each job (default 1)")
    parser.add_argument("--mbps", type=int, default=600, help="the link's rate in Mbit/s (default 600)")
    parser.add_argument("--rtt", type=float, default=40, help="round trip in ms (default 40)")
    parser.add_argument("--loss", type=float, default=0, help="loss in per cent each way (default 0)")
    chosen = parser.parse_args()
    install_signal_handlers()
    results = Results("deadline")
    with results.saved(all_rows=True):
        measure(results, chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
