"""A token with prefixes sees only what is below them, whatever links are swapped in while it looks."""

import json
import os

from harness.service import Service

#: Runs on the host: asks for the entries of FOLDER/a again and again, while a thread makes FOLDER/a lead to the folder
#: inside and to the one outside in turn. Prints the names that it has seen and how often each status came.
ASK = """
import collections, http.client, itertools, json, os, sys, threading, urllib.parse
folder, outside, token, port, path, count = *sys.argv[1:4], int(sys.argv[4]), sys.argv[5], int(sys.argv[6])
over = threading.Event()
def swap():
    for target in itertools.cycle(["inside", outside]):
        os.symlink(target, folder + "/new")
        os.replace(folder + "/new", folder + "/a")
        if over.is_set():
            return
thread = threading.Thread(target=swap)
thread.start()
names, statuses = collections.Counter(), collections.Counter()
asked = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
for _ in range(count):
    query = urllib.parse.urlencode({"location": folder + path})
    asked.request("GET", "/api/v1/files?" + query, headers={"authorization": "Bearer " + token})
    answer = asked.getresponse()
    body = json.loads(answer.read())
    statuses[answer.status] += 1
    names.update({entry["name"] for entry in body.get("files", [])})
over.set()
thread.join()
print(json.dumps({"names": names, "statuses": statuses}))
"""


def ask(service, folder, outside, path, count):
    token = service.run("token", "create", "--scope", "read", "--root", folder, "-q").strip()
    argv = ["/usr/bin/python3", "-c", ASK, folder, outside, token, "33080", path, str(count)]
    done = service.host.run(argv, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_a_link_that_is_swapped_meanwhile_shows_no_name_outside(own_net):
    plenty = {"FARHAUL_API_REQUESTS_PER_SECOND": "100000", "FARHAUL_API_REQUESTS_BURST": "100000"}
    service = Service(own_net, own_net.alpha, arguments=["--api-listen", "127.0.0.1:33080"], env=plenty)
    folder, outside = own_net.folder("project").resolve(), own_net.folder("outside").resolve()
    for place, name in [(folder / "inside", "mine"), (folder / "inside/deep", "mine-too"), (outside, "secret"),
                        (outside / "deep", "secret-too")]:
        place.mkdir(exist_ok=True)
        (place / name).write_text("x")
    # The link is the directory itself, and lies on the way to it.
    for path in ("/a", "/a/deep"):
        seen = ask(service, os.fspath(folder), os.fspath(outside), path, 300)
        assert "secret" not in seen["names"] and "secret-too" not in seen["names"], seen
        # Both targets were met. Where links move all the time, the kernel may give up resolving a path (422).
        assert seen["statuses"].get("200") and seen["statuses"].get("403"), seen
        assert set(seen["statuses"]) <= {"200", "403", "422"}, seen
