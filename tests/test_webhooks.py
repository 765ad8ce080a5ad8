"""Webhooks: who takes a message for genuine, and which addresses hear one."""

import email
import email.policy
import json
import os
import pathlib
import re
import subprocess
import time

import pytest

from harness.hosts import call, wait_until
from harness.product import EXIT_USAGE
from harness.receiver import Receiver
from harness.service import Service
from harness.trees import make_file
from test_metrics import Metrics

PAGE = (pathlib.Path(__file__).resolve().parents[1] / "docs/guide/hooks.md").read_text()
SECRET, OF_LIMS = b"the secret of the service", b"the secret of lims"
#: A public address, which no host of the tests has but those that a test gives it.
PUBLIC, PUBLIC6 = "8.8.4.4", "2a00:1450::7"


#: Takes connections on an address and a port, and never answers.
SILENT = """
import socket, sys
listening = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=100)
open(sys.argv[3], "w").close()
taken = []
while True:
    taken.append(listening.accept())
"""


@pytest.fixture
def page():
    """The functions of the page's Python examples."""
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S):
        exec(block, names)
    return names


def secret_file(folder, name, text):
    path = folder / name
    path.write_bytes(text + b"\n")
    path.chmod(0o600)
    return path


def service_with(net, settings, **options):
    file = net.folder("settings") / "farhaul.toml"
    file.write_text(settings)
    file.chmod(0o600)
    return Service(net, net.alpha, arguments=("--config", file), **options)


def submit(service, url):
    source = service.net.folder("source") / "a"
    make_file(source, 1000)
    return service.submit(source, source.with_name("b"), "--webhook", url)


def is_given_up(service, id):
    """Waits until the service has given up the message; returns the reason."""
    lines = lambda: [line for line in service.run("logs", id).splitlines() if "is given up" in line]
    return wait_until(lines, 60, 0.1, "the webhook is given up")[0]


def test_a_message_is_genuine_for_the_url_that_it_was_sent_to_and_for_no_other(own_net, page):
    is_genuine, secret_of = page["is_genuine"], page["secret_of"]
    receiver = Receiver(own_net, own_net.beta, own_net.beta.v4, 8080)
    proxy = Receiver(own_net, own_net.beta, own_net.beta.v4, 8081)
    secrets = own_net.folder("secrets")
    service = service_with(own_net, f"""
[webhooks]
allow_networks = ["{own_net.beta.v4}"]
secret_file = "{secret_file(secrets, "webhooks", SECRET)}"
[webhook_receivers.lims]
url = "{receiver.url("/lims")}"
secret_file = "{secret_file(secrets, "lims", OF_LIMS)}"
""", env={"http_proxy": proxy.url(""), "HTTP_PROXY": proxy.url(""), "ALL_PROXY": proxy.url("")})
    service.wait(submit(service, receiver.url("/mine")))
    mine, lims = receiver.next("/mine"), receiver.next("/lims")
    now, here = int(time.time()), receiver.url("/mine")
    assert is_genuine(mine.signature, mine.body, here, secret_of(here, SECRET), now)
    assert is_genuine(lims.signature, lims.body, receiver.url("/lims"), OF_LIMS, now)

    # The submitter shows a message that was sent to a URL of the submitter's own to other receivers.
    other = receiver.url("/other")
    for url, secret in [(other, secret_of(other, SECRET)), (receiver.url("/lims"), OF_LIMS),
                        (here, SECRET), (other, secret_of(here, SECRET)), (other, SECRET)]:
        assert not is_genuine(mine.signature, mine.body, url, secret, now), (url, secret)
    # Late, early, changed, and without a sense.
    key = secret_of(here, SECRET)
    assert not is_genuine(mine.signature, mine.body, here, key, now + 301 + 60)
    assert not is_genuine(mine.signature, mine.body, here, key, now - 301 - 60)
    assert not is_genuine(mine.signature, mine.body + b" ", here, key, now)
    for header in ["", "t=", "t=x,v1=y", "v1=ü", "t=²,v1=", mine.signature.replace("v1=", "v2=")]:
        assert not is_genuine(header, mine.body, here, key, now), header

    # A job that names the URL of a receiver is signed as the receiver expects, and told once.
    id = submit(service, receiver.url("/lims"))
    service.wait(id)
    told = wait_until(lambda: [one for one in receiver.messages("/lims") if id.encode() in one.body], 60,
                      what="the receiver hears of the second job")
    assert len(told) == 1 and is_genuine(told[0].signature, told[0].body, receiver.url("/lims"), OF_LIMS, now)
    assert proxy.messages() == []


def test_no_webhook_reaches_a_service_of_this_host_by_any_of_its_addresses(own_net):
    alpha = own_net.alpha
    for address in (f"{PUBLIC}/32", f"{PUBLIC6}/128"):
        call("ip", "-n", alpha.netns, "addr", "add", address, "dev", "lo")
    # The site allows its networks, in which this host lies, too.
    service = service_with(own_net, '[webhooks]\nallow_networks = ["0.0.0.0/0", "::/0", "::ffff:0:0/96"]\n')
    other = Receiver(own_net, own_net.beta, own_net.beta.v4, 8080)
    for address in [PUBLIC, PUBLIC6, alpha.v4, alpha.v6, "127.0.0.1", "::1"]:
        receiver = Receiver(own_net, alpha, address, 8080)
        urls = [receiver.url()]
        if ":" not in address:
            urls.append(f"http://[::ffff:{address}]:8080/mapped")
        for url in urls:
            id = submit(service, url)
            service.wait(id)
            assert "an address of this host" in is_given_up(service, id)
        assert receiver.messages() == [], address
    service.wait(submit(service, other.url()))
    other.next("/in")
    metrics = lambda: Metrics(service)
    wait_until(lambda: metrics().sum("farhaul_webhooks_delivered_total") == 1, 30, 0.2, "it counts as delivered")
    dropped = lambda **labels: metrics().sum("farhaul_webhooks_dropped_total", **labels)
    assert dropped(reason="refused") == dropped() > 6 and dropped(reason="queue_full") == 0


def test_an_address_of_this_host_that_is_named_hears_and_a_denied_one_does_not(own_net):
    call("ip", "-n", own_net.alpha.netns, "addr", "add", f"{PUBLIC}/32", "dev", "lo")
    service = service_with(own_net, f"""
[webhooks]
allow_networks = ["{PUBLIC}", "{own_net.beta.v4}"]
deny_networks = ["{own_net.beta.v4}"]
""")
    named = Receiver(own_net, own_net.alpha, PUBLIC, 8080)
    denied = Receiver(own_net, own_net.beta, own_net.beta.v4, 8080)
    service.wait(submit(service, named.url()))
    named.next("/in")
    id = submit(service, denied.url())
    assert "deny_networks" in is_given_up(service, id)
    assert denied.messages() == []


def test_a_dry_run_calls_the_webhook_of_a_job_that_asks_for_it(own_net):
    receiver = Receiver(own_net, own_net.beta, own_net.beta.v4, 8080)
    service = service_with(own_net, f'[webhooks]\nallow_networks = ["{own_net.beta.v4}"]\n')
    source = own_net.folder("source") / "a"
    make_file(source, 1000)
    ask = lambda path, *options: service.submit(source, source.with_name("b"), "--webhook", receiver.url(path), "--wait", *options)
    ask("/silent", "--dry-run")
    ask("/asked", "--dry-run", "--webhook-dry-run")
    assert json.loads(receiver.next("/asked").body)["job"]["dry_run"] is True
    ask("/real", "--webhook-dry-run")
    assert json.loads(receiver.next("/real").body)["job"].get("dry_run", False) is False
    assert not receiver.messages("/silent"), "nobody has asked for it"
    service.submit(source, source.with_name("b"), "--webhook-dry-run", expect=EXIT_USAGE)


def test_a_receiver_that_never_answers_delays_no_other(own_net):
    """As many messages wait for it as would take all places many times over."""
    listens = own_net.folder("silent") / "listens"
    silent = own_net.beta.start(["/usr/bin/python3", "-c", SILENT, own_net.beta.v4, "8081", os.fspath(listens)],
                               stdin=subprocess.DEVNULL)
    own_net.pair.on_close(silent.kill)
    wait_until(listens.exists, 30, what="the silent receiver listens")
    good = Receiver(own_net, own_net.beta, own_net.beta.v4, 8080)
    service = service_with(own_net, f'[webhooks]\nallow_networks = ["{own_net.beta.v4}"]\n')
    bad = [service.submit("zero:10", "null:", "--webhook", f"http://{own_net.beta.v4}:8081/{number}") for number in range(20)]
    service.wait(*bad)
    last = service.submit("zero:10", "null:", "--webhook", good.url("/good"))
    service.wait(last)
    good.next("/good")
    tried = [id for id in bad if "the webhook was not delivered" in service.run("logs", id)]
    assert len(tried) < 10, "the good receiver has waited until most of the others were given up"


def test_the_recipe_for_mail_sends_one(own_net):
    """The program of the page, with a mailer that keeps what it gets."""
    folder = own_net.folder("mail")
    kept, mailer, program = folder / "kept", folder / "sendmail", folder / "farhaul-mail"
    text, = [text for text in re.findall(r"^```text\n(#!/usr/bin/python3\n.*?)^```", PAGE, re.M | re.S) if "sendmail" in text]
    program.write_text(text.replace("/usr/sbin/sendmail", str(mailer)))
    mailer.write_text(f'#!/bin/sh\necho "$@" > {kept}.new; cat >> {kept}.new; mv {kept}.new {kept}\n')
    for path in (program, mailer):
        path.chmod(0o755)
    service = service_with(own_net, f"""
[hooks.mail]
on = ["post", "fail"]
program = "{program}"
args = ["one@example.org", "two@example.org"]
""")
    id = service.submit("/nowhere/at-all", folder / "copy")
    service.run("wait", id, expect=6)
    mail = wait_until(lambda: kept.exists() and kept.read_text(), 60, what="the mail")
    arguments, _, mail = mail.partition("\n")
    mail = email.message_from_string(mail, policy=email.policy.default)
    assert (arguments, mail["to"]) == ("-t -i", "one@example.org, two@example.org"), mail
    assert mail["subject"].strip() == f"farhaul: failed: {folder / 'copy'}", mail
    assert "FH-NOT-FOUND: " in mail.get_content() and f"farhaul logs {id}" in mail.get_content(), mail
