"""The page in a browser: services on hosts of their own, and Chromium on the host of the service that it
shows.

`./x web test` installs what it needs. Pictures of all views are left in target/page.
"""

import datetime
import json
import re
import time

import pytest

pytest.importorskip("playwright", reason="the page is tested by ./x web test")

from harness import guide
from harness.browser import Browser
from harness.hosts import wait_until
from harness.product import EXIT_SOME_FAILED, Daemon
from harness.service import Service
from harness.town import Town
from harness.trees import make_file
from playwright.sync_api import expect

API_PORT = 33080
BASE = f"http://127.0.0.1:{API_PORT}"
ALL = "read,submit,control,admin"
VIEWS = ("now", "queue", "submit", "history", "caps", "host", "account")
SECONDS = 20_000
TOKEN = re.compile(r"fhp_\S+")


@pytest.fixture(scope="module")
def place():
    """A service on alpha with its page, a daemon on beta, a browser on alpha."""
    from conftest import make_net

    net = make_net()
    far = Daemon(net.pair, net.beta, [], port=33500)
    # A far end must be in known_hosts to be trusted: this command puts it there for the service.
    service = Service(net, net.alpha, arguments=["--api-listen", f"127.0.0.1:{API_PORT}"], far=far)
    net.alpha.run(["farhaul", "ls", "--accept-new", "-i", service.daemon.identity, far.url("")], check=True)
    with Browser(net.alpha, net.pair.folder("browser")) as browser:
        yield Place(net, service, far, browser)
    net.pair.close()


class Place:
    def __init__(self, net, service, far, browser):
        self.net, self.service, self.far, self.browser = net, service, far, browser

    def token(self, scopes=ALL, *arguments):
        return TOKEN.search(self.service.run("token", "create", "--scope", scopes, *(arguments or ["--everything"]))).group(0)

    def submit(self, *arguments):
        return self.service.submit(*arguments)

    def state(self, id):
        return self.service.job(id)["state"]

    def cancel_all(self):
        """Cancels all jobs that have not ended, and waits until they have."""
        left = lambda: self.service.json("jobs", "--state", "running,queued,waiting,paused,retrying")  # noqa: E731
        while ids := [job["id"] for job in left() if not job["is_stopping"]]:
            self.service.run("cancel", *ids[:80], expect=range(256))
            # The service limits how often a caller may ask.
            time.sleep(1)
        wait_until(lambda: not left(), 20, what="the jobs are over")


@pytest.fixture
def visitors(place):
    """A function that makes visitors. At the end none of their pages may have had an error."""
    begun = []

    def visit(scopes=ALL, **options):
        visitor = place.browser.visit(BASE, **options)
        begun.append(visitor)
        if scopes:
            visitor.sign_in(place.token(scopes))
        return visitor

    yield visit
    faults = [fault for visitor in begun for fault in visitor.faults]
    for visitor in begun:
        visitor.context.close()
    place.cancel_all()
    assert faults == []


@pytest.fixture
def visitor(visitors):
    return visitors()


def row(page, text):
    return page.get_by_role("listitem").filter(has_text=text)


# ---- who gets in ---------------------------------------------------------------------------------------------------


def test_a_link_signs_in_once(place, visitors):
    link = place.service.run("open", "--print").strip()
    assert link.startswith(f"{BASE}/#code="), link
    first, second = visitors(None), visitors(None)
    first.page.goto(link)
    first.page.get_by_role("heading", name="Now", exact=True).wait_for()
    assert "code=" not in first.page.url
    cookie = first.context.cookies()[0]
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict", cookie
    first.page.reload()
    first.page.get_by_role("heading", name="Now", exact=True).wait_for()
    second.page.goto(link)
    expect(second.page.get_by_role("alert")).to_be_visible()
    expect(second.page.get_by_label("Token")).to_be_visible()


def test_a_log_in_ends_with_its_token_and_by_signing_out(place, visitors):
    visitor = visitors()
    tokens = place.service.json("token", "list")
    newest = max(tokens, key=lambda token: token["created"])
    place.service.run("token", "revoke", newest["id"])
    visitor.go("history")
    expect(visitor.page.get_by_label("Token")).to_be_visible()
    other = visitors()
    other.go("account")
    other.page.get_by_role("button", name="Sign out").click()
    expect(other.page.get_by_label("Token")).to_be_visible()
    other.page.reload()
    expect(other.page.get_by_label("Token")).to_be_visible()
    assert not other.context.cookies()


def test_who_may_only_look_finds_nothing_to_steer_by(place, visitors):
    id = place.submit("zero:10G", "null:", "--rate", "20M")
    visitor = visitors("read")
    page = visitor.page
    row(page, "zero:10G").wait_for()
    assert page.get_by_role("link", name="Submit", exact=True).count() == 0
    assert page.get_by_role("button", name=re.compile("Pause|Cancel")).count() == 0
    visitor.go(f"job/{id}")
    page.get_by_role("heading", name="zero:10G").wait_for()
    assert page.get_by_role("slider").count() == 0
    # Requests that the page does not offer are refused to its cookie as well.
    answer = page.evaluate("(id) => fetch(`/api/v1/jobs/${id}/cancel`, {method: 'POST'}).then((answer) => answer.status)", id)
    assert answer == 403
    assert place.state(id) == "running"


def test_who_may_only_submit_has_only_the_form(place, visitors):
    visitor = visitors(None)
    page = visitor.page
    page.goto(BASE)
    page.get_by_label("Token").fill(place.token("submit"))
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("heading", name="Submit", exact=True).wait_for()
    links = page.get_by_role("navigation", name="Views").get_by_role("link")
    assert [text.strip() for text in links.all_inner_texts()] == ["Submit"]
    choose_location(page, "From", "zero:7")
    choose_location(page, "To", "null:")
    page.get_by_role("button", name="Submit", exact=True).click()
    id = re.search(r"job (\w+)", page.get_by_text(re.compile("Submitted: job")).first.inner_text()).group(1)
    place.service.wait(id)
    visitor.go("history")
    expect(page.get_by_role("heading", name="Submit", exact=True)).to_be_visible()


def test_who_opens_the_page_by_the_guide_s_first_commands_does_everything_on_it():
    serve, opened = (command.text for command in guide.commands("guide/browser.md")[:2])
    with Town() as town:
        town.here.folder("/srv/data", "alice")
        town.here.put("/home/alice/run7/sample.bam", b"x" * (50 << 20), "alice")
        town.terminal().leave_running(serve, "serving")
        terminal = town.terminal()
        link = re.search(r"http://127\.0\.0\.1:33080/#code=\S+", terminal.type(opened).text).group(0)
        with Browser(town.pair.alpha, town.pair.folder("browser")) as browser:
            visitor = browser.visit(BASE)
            does_everything(visitor, link)
            assert visitor.faults == []
        assert "uplink" in terminal.type("farhaul cap list").text
        assert town.here.at("/srv/data/sample.bam").stat().st_size == 50 << 20


def does_everything(visitor, link):
    """Submits, pauses, resumes, changes, cancels and tries again, puts another job off and begins it, sets a cap."""
    page = visitor.page
    page.goto(link)
    page.get_by_role("link", name="Submit", exact=True).click()
    choose_location(page, "From", "/home/alice/run7")
    page.get_by_label("Take sample.bam").check()
    choose_location(page, "To", "/srv/data")
    page.get_by_text("Network", exact=True).click()
    page.get_by_label("Highest rate").fill("2M")
    page.get_by_label("Highest rate").blur()
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_role("heading", name="sample.bam").wait_for()
    state = lambda word: expect(page.get_by_role("main").get_by_text(word, exact=True).first).to_be_visible(timeout=SECONDS)  # noqa: E731
    button = lambda name: page.get_by_role("button", name=name)  # noqa: E731
    button("Pause").click()
    state("paused")
    button("Resume").click()
    state("running")
    page.get_by_label("Priority").select_option("8")
    expect(page.get_by_text("The priority is 8 now")).to_be_visible()
    button("Cancel").click()
    state("cancelled")
    button("Try again").click()
    state("running")
    page.get_by_role("slider").press("End")
    state("done")
    # The same once more, at a time far off.
    visitor.go("submit")
    choose_location(page, "From", "/home/alice/run7")
    choose_location(page, "To", "/srv/data")
    page.get_by_label("Not before").fill("2199-01-01 00:00")
    page.get_by_label("Not before").blur()
    button("Submit").click()
    page.get_by_role("heading", name="run7").wait_for()
    state("waiting")
    visitor.go("queue")
    page.get_by_label(re.compile("Priority of run7")).select_option("9")
    button(re.compile("Begin now")).click()
    expect(page.get_by_text("No job waits for its turn")).to_be_visible(timeout=SECONDS)
    visitor.go("caps")
    button("New cap").click()
    page.get_by_label("Name").fill("uplink")
    page.get_by_label("Rate in bits a second").fill("50M")
    button("Save").click()
    expect(page.get_by_role("article", name="Cap uplink")).to_contain_text("of 50.0 Mbit/s")
    visitor.go("account")
    expect(page.get_by_role("main")).to_contain_text("look, submit jobs, steer jobs, watch folders, take over jobs whose owner is gone, set caps")


# ---- from the form to the history ----------------------------------------------------------------------------------


def choose_location(page, end, location):
    field = page.get_by_label(f"{end}: location")
    field.fill(location)
    field.press("Enter")


def test_a_job_is_submitted_by_the_form_and_steered(place, visitor):
    page = visitor.page
    folder = place.net.folder("form")
    make_file(folder / "sample.bam", 200 << 20)
    visitor.go("submit")
    choose_location(page, "From", str(folder))
    page.get_by_label("Take sample.bam").check()
    choose_location(page, "To", place.far.url(""))
    # The far end is browsed through the service.
    expect(page.get_by_text("This directory is empty.")).to_be_visible()
    page.get_by_label("Labels").fill("run=7 kind=form")
    page.get_by_text("Network", exact=True).click()
    page.get_by_label("Highest rate").fill("8M")
    page.get_by_label("Highest rate").blur()
    command = page.get_by_label("The job as a command").inner_text()
    page.get_by_role("button", name="JSON").click()
    document = json.loads(page.get_by_label("The job as JSON").inner_text())
    # The command and the document say the same as the job that is submitted.
    printed = json.loads(place.net.alpha.run(["sh", "-c", f"{command} --print"], check=True).stdout)
    for key, value in document.items():
        assert printed[key] == value or isinstance(value, dict), (key, printed, document)
    assert printed["options"]["network"]["rate_bps"] == 8_000_000
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_role("heading", name="sample.bam").wait_for()
    id = page.url.rpartition("/")[2]
    assert place.service.job(id)["labels"] == {"run": "7", "kind": "form"}

    # The page shows the job's rate, and a new one within two seconds after the service has it.
    figures = page.get_by_label("How far it is")
    expect(figures).to_contain_text("Mbit/s")
    field = page.get_by_role("textbox", name=re.compile("Highest rate in bits"))
    field.fill("40M")
    field.press("Enter")
    expect(page.get_by_text("The limit is 40.0 Mbit/s now")).to_be_visible()
    wait_until(lambda: place.service.job(id)["progress"]["goodput_bps"] > 25e6, 15, what="the job goes faster")
    shown = lambda: float(re.search(r"Rate\s*([\d.]+) Mbit/s", figures.inner_text()).group(1))  # noqa: E731
    wait_until(lambda: shown() > 22, 4, what="the page shows it")

    page.get_by_role("button", name="Pause").click()
    wait_until(lambda: place.state(id) == "paused", 60, what="the job is held")
    expect(page.get_by_text("paused").first).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    wait_until(lambda: place.state(id) == "running", what="the job goes on")

    page.get_by_label("Priority").select_option("8")
    wait_until(lambda: place.service.job(id)["priority"] == 8, what="the priority has changed")
    page.get_by_label("Policy").select_option("high")
    wait_until(lambda: place.service.job(id)["policy"] == "high", what="the policy has changed")
    page.get_by_role("slider").press("End")
    wait_until(lambda: place.service.job(id)["rate_bps"] is None, what="there is no limit")
    wait_until(lambda: place.state(id) == "done", 60, what="the job is done")
    page.get_by_role("link", name="Its record").click()
    expect(page.get_by_text("Mean rate")).to_be_visible()
    assert (place.far.root / "sample.bam").stat().st_size == 200 << 20


def test_a_dry_run_changes_nothing(place, visitor):
    page = visitor.page
    folder = place.net.folder("dry")
    make_file(folder / "one", 1000)
    visitor.go("submit")
    choose_location(page, "From", str(folder))
    choose_location(page, "To", place.far.url(""))
    page.get_by_role("button", name="Dry run first").click()
    page.get_by_role("heading", name="dry").wait_for()
    id = page.url.rpartition("/")[2]
    wait_until(lambda: place.state(id) == "done", what="the dry run is done")
    assert not (place.far.root / folder.name).exists()


def test_a_cancellation_can_be_taken_back_for_a_while(place, visitor):
    page = visitor.page
    id = place.submit("zero:10G", "null:", "--rate", "20M")
    visitor.go(f"job/{id}")
    page.get_by_role("button", name="Cancel").click()
    wait_until(lambda: place.state(id) == "paused", 60, what="the job is held")
    page.get_by_role("button", name="Undo").click()
    wait_until(lambda: place.state(id) == "running", what="the job goes on")
    page.get_by_role("button", name="Cancel").click()
    wait_until(lambda: place.state(id) == "cancelled", 15, what="the job is cancelled")
    expect(page.get_by_text("cancelled").first).to_be_visible()


@pytest.mark.parametrize("is_answered", [True, False])
def test_who_leaves_the_page_has_not_taken_it_back(place, visitor, is_answered):
    id = place.submit("zero:10G", "null:", "--rate", "20M")
    visitor.go(f"job/{id}")
    if not is_answered:
        # The job is held, but the page does not hear of it any more.
        visitor.page.route("**/api/v1/jobs/*/pause", lambda _route: place.service.run("pause", id))
    visitor.page.get_by_role("button", name="Cancel").click()
    wait_until(lambda: place.state(id) == "paused", 60, what="the job is held")
    visitor.page.goto("about:blank")
    wait_until(lambda: place.state(id) == "cancelled", 15, what="the job is cancelled")


def test_a_file_that_fails_is_shown_and_tried_again(place, visitor):
    page = visitor.page
    folder = place.net.folder("failing")
    for name in ("good", "bad"):
        make_file(folder / name, 1000)
    # A directory is in the place of the file.
    blocked = place.far.root / folder.name / "bad"
    blocked.mkdir(parents=True)
    (blocked / "full").write_text("x")
    id = place.submit(folder, *place.service.to_far(""))
    place.service.wait(id, expect=EXIT_SOME_FAILED)
    visitor.go(f"job/{id}")
    expect(page.get_by_text("partly failed").first).to_be_visible()
    page.get_by_role("button", name="failed", exact=True).click()
    expect(page.get_by_role("table")).to_contain_text("bad")
    expect(page.get_by_role("table")).not_to_contain_text("good")
    (blocked / "full").unlink()
    blocked.rmdir()
    page.get_by_role("button", name="Retry what failed").click()
    wait_until(lambda: place.state(id) == "done", what="the second run has succeeded")
    expect(page.get_by_text("done").first).to_be_visible()
    assert blocked.stat().st_size == 1000


def test_a_transfer_is_found_in_the_history_with_its_receipt(place, visitor):
    page = visitor.page
    folder = place.net.folder("found")
    make_file(folder / "reads.fastq", 3000)
    id = place.submit(f"{folder}/", *place.service.to_far("found-there"), "--with-receipt", "--label", "sample=found")
    place.service.wait(id)
    place.service.wait(place.submit("zero:1000", "null:"))
    visitor.go("history")
    lines = page.get_by_role("list", name="Transfers").get_by_role("listitem")
    lines.nth(1).wait_for()
    page.get_by_label("Label").fill("sample=found")
    expect(lines).to_have_count(1)
    page.get_by_label("Label").fill("")
    page.get_by_label("Name").fill("found-there")
    expect(lines).to_have_count(1)
    # The address has the search.
    page.wait_for_url(re.compile("text=found-there"))
    page.reload()
    expect(page.get_by_label("Name")).to_have_value("found-there")
    expect(lines).to_have_count(1)
    lines.get_by_role("link").first.click()
    expect(page.get_by_text("Root of the digest tree")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Receipt").click()
    receipt = place.net.folder("receipt") / "r.json"
    download.value.save_as(receipt)
    keys = [f"--key={key}" for key in (place.service.daemon.identity.with_suffix(".pub"), place.far.identity.with_suffix(".pub"))]
    place.service.run("receipt", "verify", receipt, *keys)
    with page.expect_download() as download:
        page.get_by_role("link", name="Manifest").click()
    manifest = receipt.with_name("m.jsonl")
    download.value.save_as(manifest)
    place.net.alpha.run(["farhaul", "verify", manifest, place.far.root / "found-there"], check=True)


# ---- more than one eye ---------------------------------------------------------------------------------------------


def test_two_browsers_see_the_same(place, visitors):
    first, second = visitors(), visitors("read")
    id = place.submit("zero:10G", "null:", "--rate", "20M")
    for one in (first, second):
        row(one.page, "zero:10G").wait_for()
    row(first.page, "zero:10G").get_by_role("button", name="Pause").click()
    for one in (first, second):
        expect(row(one.page, "zero:10G")).to_contain_text("paused")
    place.service.run("resume", id)
    for one in (first, second):
        expect(row(one.page, "zero:10G")).to_contain_text("running")


def test_a_lost_connection_is_shown_and_heals(place, visitor):
    page = visitor.page
    place.submit("zero:10G", "null:", "--rate", "20M")
    row(page, "zero:10G").wait_for()
    place.service.daemon.stop()
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    place.service.daemon.start()
    expect(page.get_by_role("alert")).to_have_count(0, timeout=SECONDS)
    expect(row(page, "zero:10G")).to_contain_text("running", timeout=SECONDS)
    # The page gets events again.
    place.submit("zero:7G", "null:", "--rate", "20M")
    row(page, "zero:7G").wait_for()


# ---- the queue and the caps ----------------------------------------------------------------------------------------


def test_the_queue_is_put_in_another_order(place, visitor):
    page = visitor.page
    # As many jobs as may run at a time to one peer, then four that wait.
    for number in range(4):
        place.submit(f"zero:{number + 1}T", *place.service.to_far("null:"), "--rate", "1M")
    waiting = [place.submit(f"zero:{number}00T", *place.service.to_far("null:")) for number in range(1, 5)]
    visitor.go("queue")
    lines = page.get_by_role("list", name="Jobs in their order").get_by_role("listitem")
    order = lambda: [re.search(r"zero:(\d)00T", text).group(1) for text in lines.all_inner_texts()]  # noqa: E731
    expect(lines).to_have_count(4)
    assert order() == ["1", "2", "3", "4"]
    lines.nth(3).get_by_role("button", name=re.compile("Move")).press("Alt+ArrowUp")
    wait_until(lambda: order() == ["1", "2", "4", "3"], what="the last one goes before the third")
    lines.nth(0).get_by_role("button", name="Later").click()
    wait_until(lambda: order() == ["2", "1", "4", "3"], what="the first job goes behind the second")
    lines.nth(3).get_by_role("button", name=re.compile("Move")).drag_to(lines.nth(0))
    wait_until(lambda: order() == ["3", "2", "1", "4"], what="the last one goes to the beginning")
    lines.nth(3).get_by_label(re.compile("Priority of")).select_option("9")
    wait_until(lambda: order() == ["4", "3", "2", "1"], what="a higher priority goes first")
    # The service has the same order, and will start the jobs in it.
    jobs = [place.service.job(id) for id in waiting]
    jobs.sort(key=lambda job: (-job["priority"], job["position"]))
    assert [job["sources"][0] for job in jobs] == ["zero:400T", "zero:300T", "zero:200T", "zero:100T"]


def test_caps_are_made_changed_and_removed(place, visitor):
    page = visitor.page
    visitor.go("caps")
    page.get_by_role("button", name="New cap").click()
    page.get_by_label("Name").fill("uplink")
    page.get_by_label("Rate in bits a second").fill("50M")
    page.get_by_label(re.compile("Other rates")).fill("mon-sun 09:00-18:00 wrong")
    expect(page.get_by_text("is not a time window")).to_be_visible()
    page.get_by_label(re.compile("Other rates")).fill("daily 00:00-24:00 40M")
    page.get_by_role("button", name="Save").click()
    cap = page.get_by_role("article", name="Cap uplink")
    expect(cap).to_contain_text("of 40.0 Mbit/s")
    assert place.service.json("cap", "list")[-1]["schedule"] == ["daily 00:00-24:00 40M"]
    page.get_by_role("button", name="Change uplink").click()
    page.get_by_label(re.compile("Other rates")).fill("")
    page.get_by_role("button", name="Save").click()
    expect(cap).to_contain_text("of 50.0 Mbit/s")
    # The cap of the host itself can be changed, too.
    page.get_by_role("button", name="Change host").click()
    page.get_by_label("Rate in bits a second").fill("90M")
    page.get_by_role("button", name="Save").click()
    host = page.get_by_role("article", name="Cap host")
    expect(host).to_contain_text("of 90.0 Mbit/s")
    place.submit("zero:10G", *place.service.to_far("null:"), "--rate", "20M")
    expect(host).to_contain_text(re.compile(r"1\d\.\d Mbit/s|2\d\.\d Mbit/s"), timeout=SECONDS)
    page.get_by_role("button", name="Remove uplink").click()
    expect(cap).to_have_count(0)
    # The host's cap stays, without its rate.
    page.get_by_role("button", name="Remove host").click()
    expect(host).to_contain_text("no limit of its own")
    expect(page.get_by_role("button", name="Remove host")).to_have_count(0)


# ---- how it looks --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def full(place):
    """A service with jobs in all states, a history and caps, for the pictures."""
    folder = place.net.folder("pictures")
    make_file(folder / "sample-with-a-rather-long-name.bam", 120 << 20)
    (folder / "reads").mkdir()
    for number in range(30):
        make_file(folder / f"reads/r{number:02}.fastq", 30_000)
    service = place.service
    service.run("cap", "set", "campus-uplink", "--rate", "8G", "--schedule", "mon-fri 09:00-18:00 2G")
    service.run("cap", "set", "hpc", "--parent", "campus-uplink", "--rate", "500M", "--peer", "hpc")
    done = service.submit(f"{folder}/reads", *service.to_far("pictures"), "--with-receipt", "--label", "run=7")
    failed = service.submit("/nothing/of/this/name", *service.to_far("in/"))
    service.run("wait", done, failed, expect=range(256))
    slow = service.submit(folder / "sample-with-a-rather-long-name.bam", *service.to_far("in/"), "--rate", "8M")
    # An hour and a half of work; a time of the clock would be too near for it each evening.
    tomorrow = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=12)).isoformat()
    running = service.submit("zero:40G", *service.to_far("null:"), "--rate", "60M", "--finish-by", tomorrow, "--priority", "7")
    for number in range(1, 7):
        service.submit(f"zero:{number}T", *service.to_far("null:"), "--rate", "2M", "--label", f"q={number}")
    service.submit("zero:1G", "null:", "--not-before", "2099-01-01T00:00:00Z")
    held = service.submit("zero:9G", "null:", "--rate", "5M")
    service.submit("zero:1G", "fh://beta:1/null:")
    service.run("pause", held)
    time.sleep(8)
    yield {"running": running, "slow": slow, "done": done, "failed": failed}
    place.cancel_all()
    service.run("cap", "remove", "hpc")
    service.run("cap", "remove", "campus-uplink")


def shown_views(place, full):
    records = place.service.json("history")
    record = next(one["id"] for one in records if one["job"] == full["done"])
    failed = next(one["id"] for one in records if one["job"] == full["failed"])
    return {**{view: view for view in VIEWS}, "job": f"job/{full['running']}", "job-failed": f"job/{full['failed']}",
            "record": f"history/{record}", "record-failed": f"history/{failed}"}


@pytest.mark.parametrize("width, theme", [
    (380, "light"),
    (1280, "dark"),
    pytest.param(380, "dark", marks=pytest.mark.slow),
    pytest.param(1280, "light", marks=pytest.mark.slow),
    pytest.param(2560, "light", marks=pytest.mark.slow),
    pytest.param(2560, "dark", marks=pytest.mark.slow),
])
def test_every_view_is_accessible_and_fits(place, full, width, theme):
    """No text is cut, nothing is wider than the window, axe finds no fault. Pictures for people lie in
    target/page."""
    height = 900 if width > 400 else 800
    visitor = place.browser.visit(BASE, viewport={"width": width, "height": height}, color_scheme=theme)
    visitor.page.goto(BASE)
    visitor.page.get_by_label("Token").wait_for()
    wrong = [f"sign-in: {fault}" for fault in visitor.axe() + visitor.overflow()]
    visitor.picture(f"sign-in-{width}-{theme}")
    visitor.sign_in(place.token())
    for name, view in shown_views(place, full).items():
        visitor.go(view)
        visitor.page.get_by_role("heading", level=1).wait_for()
        # Curves and figures come within a second or two.
        visitor.page.wait_for_timeout(2600 if name in ("caps", "host", "job", "now") else 900)
        wrong += [f"{name}: {fault}" for fault in visitor.axe() + visitor.overflow()]
        visitor.picture(f"{name}-{width}-{theme}")
    wrong += visitor.faults
    visitor.context.close()
    assert wrong == []


def test_an_empty_node_says_what_to_do_first(place, visitors):
    net = place.net
    service = Service(net, net.alpha, port=34900, arguments=["--api-listen", "127.0.0.1:33081"])
    token = TOKEN.search(service.run("token", "create", "--scope", ALL, "--everything")).group(0)
    visitor = visitors(None)
    visitor.base = "http://127.0.0.1:33081"
    visitor.sign_in(token)
    for view, words in (("now", "Nothing is running"), ("queue", "No job waits"), ("history", "There is no history yet"),
                        ("caps", "Nothing is capped"), ("submit", "Begin here")):
        visitor.go(view)
        expect(visitor.page.get_by_text(words).first).to_be_visible()
        assert visitor.axe() == []
    service.daemon.stop()


def test_the_keyboard_reaches_everything_on_a_job(place, visitor):
    page = visitor.page
    place.submit("zero:10G", "null:", "--rate", "20M")
    row(page, "zero:10G").wait_for()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    reached = []
    # Jobs of other tests may stand above it.
    while len(reached) < 40 and "Cancel zero:10G" not in reached:
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim() || document.activeElement.ariaLabel || ''"))
    assert any(text.startswith("zero:10G") for text in reached), reached
    assert {"Pause zero:10G", "Cancel zero:10G"} <= set(reached), reached


def test_long_lists_are_few_rows(place, visitor):
    page = visitor.page
    for number in range(260):
        place.submit(f"zero:{number + 1}", "null:", "--not-before", "2099-01-01T00:00:00Z", "-q")
    visitor.go("queue")
    page.get_by_role("list", name="Later").get_by_role("listitem").first.wait_for()
    count = page.evaluate("document.querySelectorAll('[role=listitem]').length")
    assert 5 < count < 200, count
    page.mouse.wheel(0, 9000)
    expect(page.get_by_role("listitem").filter(has_text="zero:150 ")).to_be_visible()
    assert page.evaluate("document.querySelectorAll('[role=listitem]').length") < 200


def test_nothing_comes_from_elsewhere_and_little_comes_at_all(place, visitors):
    visitor = visitors(None)
    asked, packed = [], []
    visitor.page.on("request", lambda request: asked.append(request.url))
    visitor.page.on("response", lambda response: packed.append(response.headers.get("content-encoding")))
    visitor.sign_in(place.token())
    assert all(url.startswith((BASE, "data:")) for url in asked), asked
    sizes = [entry["size"] for entry in json.loads(visitor.page.evaluate(
        "JSON.stringify(performance.getEntriesByType('resource').map((entry) => ({size: entry.encodedBodySize})))"))]
    assert "br" in packed or "gzip" in packed
    assert 10_000 < sum(sizes) < 250_000, sizes
