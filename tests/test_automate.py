"""Runs the commands of docs/guide/automate.md as they stand there, one after the other."""

import json
import os
import pathlib
import re

from harness.service import FINAL, Service
from harness.trees import make_file, sha256

PAGE = (pathlib.Path(__file__).resolve().parents[1] / "docs/guide/automate.md").read_text()


def test_the_page_does_what_it_says(own_net):
    service = Service(own_net, own_net.alpha, far=own_net.daemon, arguments=["--api-listen", "127.0.0.1:33080"])
    far, home = service.far, service.host.home
    data = service.net.folder("run7").resolve()
    for name in ("a", "b", "c.tmp"):
        make_file(data / name, 100_000)
    (far.root / "incoming").mkdir()
    host, port = re.fullmatch(r"fh://([^/:]+)(?::(\d+))?/", far.url("")).groups()
    (home / ".config/farhaul").mkdir(parents=True, exist_ok=True)
    (home / ".config/farhaul/known_hosts").write_text(f"{host}:{port or 33001} {far.fingerprint}\n")
    peer = f"{host}:{port or 33001}"
    runtime = service.net.folder("runtime")
    (runtime / "farhaul").mkdir()
    (runtime / "farhaul/api.sock").symlink_to(service.socket)

    blocks = re.findall(r"^```(?:sh|cron)\n(.*?)^```", PAGE, re.M | re.S)
    own = re.findall(r"`(curl --unix-socket [^`]*)`", PAGE)
    assert len(blocks) > 8 and len(own) == 1
    cron = re.compile(r"^\*/15 \* \* \* \*  (.*)$", re.M)
    script = cron.sub(lambda line: line[1].replace(r"\%", "%"), "\n".join([*blocks, *own]))
    for of_page, here in [("/data/run7", os.fspath(data)), ("fh://hpc/", f"fh://{peer}/"), ("--peer hpc:", f"--peer {peer}:"),
                          ("peers/hpc", f"peers/{peer}"), ("https://dtn1.example.org", "http://127.0.0.1")]:
        assert of_page in script, of_page
        script = script.replace(of_page, here)
    work = service.net.folder("work")
    env = {"FARHAUL_API": os.fspath(service.socket), "XDG_RUNTIME_DIR": os.fspath(runtime)}
    done = service.host.run(["bash", "-euo", "pipefail", "-c", f"cd {work}\n{script}"], env=env)
    assert done.returncode == 0, done.stderr.decode()

    said = done.stdout.decode()
    assert "all there" in said and '"name": "fh://' in said, said
    open_jobs = [job["id"] for job in service.json("jobs") if job["state"] not in FINAL]
    if open_jobs:
        service.wait(*open_jobs)
    for name in ("a", "b"):
        for place in ("incoming/run7", "incoming/ci", "mirror"):
            assert sha256(far.root / place / name) == sha256(data / name)
    jobs = service.json("jobs")
    repeated = [job for job in jobs if job["destination"].endswith("/mirror")]
    assert len(repeated) == 3, jobs
    states = {job["id"]: job["state"] for job in service.json("jobs")}
    assert set(states.values()) <= {"done", "cancelled"}, states
    # One idempotency key makes one job: the commands of the page make nine jobs.
    assert len(states) == 9, jobs
    events, later = ((work / name).read_text() for name in ("events", "later"))
    last = re.findall(r"^id: (\d+)$", events, re.M)[-1]
    # The later stream begins with the last event that the reader has; all that follow are new.
    begin, *news = re.findall(r"^id: (\d+)$", later, re.M)
    assert begin == last and all(int(id) > int(last) for id in news), (events, later)
    assert "event: job" in events
    by_curl = json.loads(re.findall(r"^data: (.*)$", events, re.M)[-1])
    assert by_curl.get("id", by_curl.get("job")) in states, by_curl
    assert (work / "history.csv").read_text().startswith("id,job,run,")
