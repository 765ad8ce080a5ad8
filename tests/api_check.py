#!/usr/bin/env python3
"""Checks the API against its own description: starts a service in a folder of its own, and schemathesis sends
it requests that the description allows, and many that it does not. No answer may be a 500, undocumented, or
unlike its schema.

usage: tests/api_check.py FOLDER-OF-SCHEMATHESIS [--long] [--seed N]
"""

import argparse
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
#: This route is left out: its answers have no end.
ENDLESS = "/api/v1/events"
#: This route is left out: it would get many wrong tokens, after which the service shuts their sender out.
LOGS_IN = "/api/v1/login"
#: This route is left out: it would write to any path on this host that a request names.
WRITES = "/api/v1/store/backup"
#: These checks are left out: the description cannot state every rule for a valid request.
NOT_SAID = "positive_data_acceptance,negative_data_rejection"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--seed", default="1")
    given = parser.parse_args()
    given.tools = given.tools.resolve()
    binary = pathlib.Path(os.environ.get("FARHAUL_BIN", ROOT / "target/release/farhaul"))
    subprocess.run([given.tools / "openapi-spec-validator", ROOT / "docs/reference/openapi.json"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        home, port = pathlib.Path(folder), free_port()
        environment = {"HOME": folder, "PATH": os.environ["PATH"], "FARHAUL_ALLOW_ROOT": "1", "FARHAUL_SERVE_DRAIN": "0s"}
        log = home / "log"
        serve = [binary, "serve", "--listen", f"127.0.0.1:{free_port()}", "--api-listen", f"127.0.0.1:{port}", "--state", home / "state"]
        with open(log, "wb") as out:
            service = subprocess.Popen(serve, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            make = [binary, "token", "create", "--scope", "admin", "--everything", "-q", "--api", home / "state/api.sock"]
            for _ in range(200):
                made = subprocess.run(make, env=environment, capture_output=True, text=True)
                if made.returncode == 0:
                    break
                time.sleep(0.05)
            token = made.stdout.strip()
            if not token:
                sys.exit(f"the service does not answer: {made.stderr}{log.read_text()}")
            examples = "400" if given.long else "30"
            run = [given.tools / "st", "run", f"http://127.0.0.1:{port}/api/v1/openapi.json", "-H", f"Authorization: Bearer {token}",
                   "--exclude-path", ENDLESS, "--exclude-path", WRITES, "--exclude-path", LOGS_IN, "--phases", "examples,coverage,fuzzing,stateful",
                   "--max-examples", examples, "--seed", given.seed, "--exclude-checks", NOT_SAID, "--no-color"]
            code = subprocess.run(run, cwd=folder, stdin=subprocess.DEVNULL).returncode
            if service.poll() is not None:
                sys.exit(f"the service has ended: {log.read_text()}")
            if "fault of farhaul itself" in log.read_text():
                sys.exit(log.read_text())
            return code
        finally:
            service.terminate()
            service.wait(timeout=60)


if __name__ == "__main__":
    sys.exit(main())
