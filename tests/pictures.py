"""Makes the pictures in docs/guide/browser anew. `./x web pictures`.

A service on alpha sends to a daemon on beta, which alpha knows by the names that the pictures show. The data lie
in /data, which must not be there before and is removed at the end.
"""

import pathlib
import shutil
import sys
import time

from harness.browser import ROOT, Browser
from harness.hosts import NETNS_ETC, Pair, wait_until
from harness.product import Daemon, binary
from harness.service import Service
from harness.trees import make_file

API_PORT = 33080
BASE = f"http://127.0.0.1:{API_PORT}"
DATA = pathlib.Path("/data")
PICTURES = ROOT / "docs/guide/browser"
PEERS = ("hpc.example.org", "archive.example.org")
#: The rates of the large job, one after the other: the curve of its picture shows that they are heeded.
RATES = ("120M", "200M", "90M", "180M")


class Place:
    """What `Service` wants of a network."""

    def __init__(self, pair):
        self.pair = pair


def fill():
    """The sources: three runs of an instrument."""
    for run, files, size in (("run5", 120, 400_000), ("run6", 120, 900_000), ("run7", 30, 100_000_000)):
        (DATA / "instrument" / run).mkdir(parents=True)
        for number in range(files):
            make_file(DATA / "instrument" / run / f"r{number:03}.h5", size)


def submit_all(service, far):
    """Submits jobs in all states; returns the large one that runs."""
    pin = ("--fingerprint", far.fingerprint)
    send = lambda run, to, *options: service.submit(f"{DATA}/instrument/{run}", to, *options)  # noqa: E731
    over = [
        send("run5", "fh://hpc.example.org/incoming", *pin),
        send("run6", "fh://archive.example.org/genomes", *pin, "--rate", "300M"),
        send("run4", "fh://archive.example.org/genomes", *pin),
    ]
    service.run("wait", *over, expect=range(256))
    held = service.submit("zero:8G", "null:", "--rate", "100M")
    large = service.submit("zero:60G", "fh://hpc.example.org/null:", *pin, "--rate", RATES[-1], "--priority", "7")
    send("run7", "fh://hpc.example.org/incoming", *pin, "--rate", "220M")
    service.submit("zero:20G", "fh://archive.example.org/null:", *pin, "--rate", "80M")
    service.submit(f"{DATA}/instrument/run6", "fh://hpc.example.org:4000/x", *pin)
    wait_until(lambda: service.job(held)["state"] == "running", 20, what="the small job runs")
    time.sleep(2)
    service.run("pause", held)
    return large


def main():
    if DATA.exists():
        sys.exit(f"{DATA} is there already; the pictures need this name for their own data")
    pair = Pair(binary())
    try:
        fill()
        names = NETNS_ETC / pair.alpha.netns / "hosts"
        names.write_text(names.read_text() + f"{pair.beta.v4} {' '.join(PEERS)}\n")
        far = Daemon(pair, pair.beta, [])
        service = Service(Place(pair), pair.alpha, arguments=["--api-listen", f"127.0.0.1:{API_PORT}"], far=far)
        large = submit_all(service, far)
        for rate in RATES:
            service.run("set", large, "--rate", rate)
            time.sleep(15)
        token = service.run("token", "create", "--scope", "read,submit,control,admin", "--everything", "--name", "anna").split()[-1]
        with Browser(pair.alpha, pair.folder("browser")) as browser:
            visitor = browser.visit(BASE, viewport={"width": 1280, "height": 760}, color_scheme="light")
            visitor.sign_in(token)
            for name, view in (("now", "now"), ("job", f"job/{large}"), ("history", "history")):
                visitor.go(view)
                visitor.page.get_by_role("heading", level=1).wait_for()
                visitor.page.wait_for_timeout(3000)
                visitor.page.screenshot(path=PICTURES / f"{name}.png")
    finally:
        pair.close()
        shutil.rmtree(DATA, ignore_errors=True)


if __name__ == "__main__":
    main()
