"""A browser on a host, on the page of a service there. Needs Playwright's Python package and Debian's Chromium."""

import atexit
import contextlib
import functools
import os
import pathlib
import shlex
import subprocess

from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[2]
AXE = ROOT / "web/node_modules/axe-core/axe.min.js"
#: The folder for the pictures of the views.
PICTURES = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "page"
CHROMIUM = "/usr/bin/chromium"
#: Messages of the browser about requests that were refused or cut. Tests provoke these.
EXPECTED = ("Failed to load resource", "net::ERR_")


@functools.cache
def driver():
    """The driver of browsers, of which a process has one."""
    started = sync_playwright().start()
    atexit.register(started.stop)
    return started


class Browser(contextlib.AbstractContextManager):
    """Chromium that runs on `host`: in its network namespace, with its names and homes."""

    def __init__(self, host, directory):
        self.program = pathlib.Path(directory) / "chromium-there"
        inside = ["env", f"HOME={host.home}", CHROMIUM]
        line = " ".join(shlex.quote(word) for word in host.command(inside))
        self.program.write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        self.program.chmod(0o755)
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        self.browser = driver().chromium.launch(executable_path=str(self.program), args=arguments)
        self.contexts = []

    def visit(self, base, **options):
        """A visitor with cookies of its own and no page open yet."""
        visitor = Visitor(self.browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}), base)
        self.contexts.append(visitor)
        return visitor

    def __exit__(self, *_):
        self.browser.close()


class Visitor:
    """One page, and the errors that occurred in it."""

    def __init__(self, context, base):
        self.context, self.base = context, base
        context.set_default_timeout(15_000)
        self.page = context.new_page()
        self.faults = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))

    def _heard(self, message):
        if message.type in ("error", "warning") and not any(text in message.text for text in EXPECTED):
            self.faults.append(f"{message.type}: {message.text}")

    def go(self, view):
        self.page.goto(f"{self.base}/#/{view}")

    def sign_in(self, token):
        self.page.goto(self.base)
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("heading", name="Now", exact=True).wait_for()

    def axe(self):
        """The accessibility faults of the page, one line each."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes']][:4]}" for one in found["violations"]]

    def overflow(self):
        """The elements that are wider than the window, or whose text is cut off without dots."""
        return self.page.evaluate("""() => {
            const width = document.documentElement.clientWidth;
            const wide = [...document.querySelectorAll('main *')].filter((element) => {
                const box = element.getBoundingClientRect();
                const scrolls = element.closest('pre, .log, .entries, .scroll, .unseen, .cut');
                return box.width > 0 && box.right > width + 1 && !scrolls;
            });
            const cut = [...document.querySelectorAll('button, h1, h2, th, dd, strong, .number')].filter((element) =>
                element.scrollWidth > element.clientWidth + 2 && element.clientWidth > 0 && !element.closest('.cut, .unseen')
                && getComputedStyle(element).display !== 'inline');
            const name = (element) => `${element.tagName}.${element.className}: ${element.textContent.trim().slice(0, 40)}`;
            return [...wide.map((one) => `wide ${name(one)}`), ...cut.map((one) => `cut ${name(one)}`)];
        }""")

    def picture(self, name):
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png")


def version():
    """The version of the browser, for reports."""
    return subprocess.run([CHROMIUM, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
