"""What the page costs: how soon it appears, how it scrolls through 10,000 records, and how much an open page
costs a transfer. `./x bench page`; one PASS or MISS line a row.

Always true: the browser is Debian's Chromium on this host, over loopback; figures of the main thread are the
browser's own measurements.
"""

import argparse
import contextlib
import json
import os
import re
import statistics
import sys
import time

from ground import ROOT, Results, parts
from playwright.sync_api import sync_playwright
from service import LIMITS, Service, many_jobs

PARTS = ("paint", "scroll", "idle", "steer", "watching")
PORT = 33080
BASE = f"http://127.0.0.1:{PORT}"
API = f'listen = ["127.0.0.1:{PORT}"]\n'
#: From this length on a task is a long task, by the browsers' definition.
LONG_MS = 50


class Visitor:
    """A browser that is signed in."""

    def __init__(self, playwright, service):
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        self.browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        self.page = self.browser.new_page(viewport={"width": 1280, "height": 900})
        self.meter = None
        token = re.search(r"fhp_\S+", service.run("token", "create", "--scope", "read,control", "--everything")).group(0)
        self.page.goto(BASE)
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("heading", name="Now", exact=True).wait_for()

    def busy_seconds(self):
        """How long the main thread has worked since the first call. The browser counts as long as the same
        session asks."""
        if not self.meter:
            self.meter = self.page.context.new_cdp_session(self.page)
            self.meter.send("Performance.enable")
        metrics = {metric["name"]: metric["value"] for metric in self.meter.send("Performance.getMetrics")["metrics"]}
        return metrics["TaskDuration"]

    @contextlib.contextmanager
    def main_thread(self):
        """A list that has, at the end, of each task of the main thread the milliseconds that it took and those in which it had
        the processor, which the whole experiment shares."""
        tasks = []
        self.browser.start_tracing(page=self.page, categories=["toplevel", "__metadata"])
        yield tasks
        events = json.loads(self.browser.stop_tracing())["traceEvents"]
        main = {(one["pid"], one["tid"]) for one in events
                if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"}
        tasks += [(one["dur"] / 1e3, one["tdur"] / 1e3) for one in events
                  if (one["pid"], one["tid"]) in main and one["ph"] == "X" and "tdur" in one]
        assert tasks, "the browser has not traced its tasks"


def paint(results, chosen, playwright):
    with Service(config=API) as service:
        visitor = Visitor(playwright, service)
        times = []
        for _ in range(5):
            visitor.page.reload()
            visitor.page.get_by_role("heading", name="Now", exact=True).wait_for()
            # The browser paints a little later than the document has the content.
            painted = visitor.page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
            times.append(painted.json_value())
        visitor.browser.close()
    middle = statistics.median(times)
    results.row("first contentful paint, median of 5", middle < 600, f"{middle:.0f} ms", "600 ms", f"{min(times):.0f} to {max(times):.0f}")


def scroll(results, chosen, playwright):
    with Service(many_jobs, API + LIMITS) as service:
        visitor = Visitor(playwright, service)
        page = visitor.page
        for view in ("now", "history"):
            page.goto(f"{BASE}/#/{view}")
            page.get_by_role("listitem").first.wait_for()
            page.wait_for_timeout(3000)
            most = 0
            with visitor.main_thread() as tasks:
                for _ in range(60):
                    page.mouse.wheel(0, 1500)
                    page.wait_for_timeout(50)
                    most = max(most, page.evaluate("document.querySelectorAll('[role=listitem]').length"))
            what = "10,000 records, 200 running"
            for row, longest in zip(("longest task", "most processor time of a task"), map(max, zip(*tasks))):
                results.row(f"{view}: {row} while scrolling, {what}", longest <= LONG_MS, f"{longest:.0f} ms", f"{LONG_MS} ms")
            results.row(f"{view}: rows in the page", most < 200, str(most), "200")
        visitor.browser.close()


def idle(results, chosen, playwright):
    with Service(config=API) as service:
        visitor = Visitor(playwright, service)
        visitor.page.wait_for_timeout(3000)
        before, begin = visitor.busy_seconds(), time.monotonic()
        visitor.page.wait_for_timeout(1000 * chosen.seconds)
        share = (visitor.busy_seconds() - before) / (time.monotonic() - begin)
        begin = visitor.busy_seconds()
        visitor.page.evaluate("(() => { const end = performance.now() + 500; while (performance.now() < end); })()")
        assert visitor.busy_seconds() - begin > 0.4, "the browser does not count what its main thread does"
        visitor.browser.close()
    results.row(f"the page when nothing happens, {chosen.seconds} s: main thread", share < 0.05, f"{share:.2%}", "5 %")


def steer(results, chosen, playwright):
    """Changes a job's rate on its page: how soon the page confirms it, and how soon it shows the new rate."""
    told, followed = [], []
    with Service(config=API) as service:
        visitor = Visitor(playwright, service)
        page = visitor.page
        id = service.run("submit", "zero:", "null:", "--rate", "80M", "-q").strip()
        page.goto(f"{BASE}/#/job/{id}")
        field = page.get_by_role("textbox", name=re.compile("Highest rate in bits"))
        for number in range(10):
            mbps = (80, 400)[number % 2 == 0]
            page.wait_for_timeout(5000)
            field.fill(f"{mbps}M")
            begin = time.monotonic()
            field.press("Enter")
            page.get_by_text(f"The limit is {mbps}").first.wait_for()
            told.append(time.monotonic() - begin)
            page.wait_for_function(
                """mbps => {
                    const said = document.querySelector('[aria-label="How far it is"]').innerText.match(/Rate\\s*([\\d.]+) Mbit/);
                    return said && Math.abs(said[1] / mbps - 1) < 0.15;
                }""", arg=mbps)
            followed.append(time.monotonic() - begin)
        visitor.browser.close()
    for what, times, goal in (("the page says that the rate is changed", told, 1), ("the rate shown is the new one", followed, 2)):
        results.row(f"steered, {what}: median of 10", statistics.median(times) <= goal, f"{statistics.median(times):.2f} s", f"{goal} s",
                    f"{min(times):.2f} to {max(times):.2f}")


def watching(results, chosen, playwright):
    """The same job with an open page and without one, in turns: processor seconds of the service."""
    ratios = []
    with Service(config=API) as service:
        visitor = Visitor(playwright, service)

        def cost(is_open):
            visitor.page.goto(f"{BASE}/#/now" if is_open else "about:blank")
            time.sleep(1)
            before = service.cpu_seconds()
            service.run("submit", f"zero:{chosen.gib}G", "null:", "--wait", "-q")
            return service.cpu_seconds() - before

        for number in range(chosen.pairs):
            order = (True, False) if number % 2 else (False, True)
            costs = {is_open: cost(is_open) for is_open in order}
            ratios.append(costs[True] / costs[False])
        visitor.browser.close()
    ratio = statistics.median(ratios)
    results.row(f"a job with the page open against one without, {chosen.pairs} pairs of {chosen.gib} GiB: processor seconds", ratio < 1.03,
                f"{ratio:.3f}", "1.03", f"{min(ratios):.3f} to {max(ratios):.3f}", ratios=ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=int, default=60, help="seconds of the measurement of an idle page (default 60)")
    parser.add_argument("--pairs", type=int, default=15, help="pairs of jobs (default 15)")
    parser.add_argument("--gib", type=int, default=8, help="GiB of each job (default 8)")
    parser.add_argument("--only", type=parts(PARTS), default=PARTS, help=f"only these, of {', '.join(PARTS)}")
    chosen = parser.parse_args()
    os.environ["PATH"] = f"{ROOT / 'target/release'}:{os.environ['PATH']}"
    results = Results("page")
    measures = {"paint": paint, "scroll": scroll, "idle": idle, "steer": steer, "watching": watching}
    with sync_playwright() as playwright, results.saved(chosen.only == PARTS):
        for part in chosen.only:
            measures[part](results, chosen, playwright)


if __name__ == "__main__":
    sys.exit(main())
