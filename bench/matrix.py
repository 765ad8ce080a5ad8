"""Compares many tools on the same link, with the same data, in the same run. `./x bench`.

Tools take turns, and each round starts with another tool. Every run is verified after its clock has stopped;
time-outs and failures are results, too. Writes bench/results/DATE.json, an HTML report beside it and the
table in docs/design/benchmarks.md.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import platform
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
sys.dont_write_bytecode = True

import ground  # noqa: E402
import link as links  # noqa: E402
import peers as catalogue  # noqa: E402
import plots  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import scenarios  # noqa: E402
import summary  # noqa: E402
from harness.hosts import HarnessError, install_signal_handlers  # noqa: E402
from harness.ssh import SshServer  # noqa: E402
from peers.peer import Site  # noqa: E402

SCHEMA = 1


def main():
    chosen = arguments()
    if chosen.missing_packages:
        print(*missing_packages())
        return
    if chosen.services is not None:
        print(*(unit for package in chosen.services for unit in catalogue.SERVICES.get(package, [])))
        return
    if chosen.list:
        list_all(chosen)
        return
    install_signal_handlers()
    pathlib.Path(chosen.dir).mkdir(parents=True, exist_ok=True)
    matrix = Matrix(chosen)
    try:
        matrix.all()
    except KeyboardInterrupt:
        say("interrupted: what was measured is kept")
    matrix.save()


def arguments():
    parser = argparse.ArgumentParser(prog="./x bench", description=__doc__)
    parser.add_argument("--full", action="store_true", help="every tool, link and scenario (hours)")
    parser.add_argument("--only", metavar="TEXT,...", help="only tools whose name has one of these in it")
    links_known = ", ".join(scenarios.PROFILES).replace("%", "%%")
    parser.add_argument("--profiles", metavar="NAME,...", help=f"only these links: {links_known}")
    parser.add_argument("--scenarios", metavar="NAME,...", help="only these: distance, file sizes, clients, all to all")
    parser.add_argument("--congestion", metavar="NAME,...", default="cubic,bbr",
                        help="congestion controls of TCP (default cubic,bbr)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, help="seconds a run may take (default 20, with --full 60)")
    parser.add_argument("--tries", type=int, default=2, help="runs until the emulator was not the bottleneck (default 2)")
    parser.add_argument("--size", type=int, metavar="MIB", help="how much each run moves")
    parser.add_argument("--dir", default="/var/tmp", help="where the hosts' files lie (default /var/tmp)")
    parser.add_argument("--veth", action="store_true", help="use a plain veth pair, not the emulator: only tries the tools")
    parser.add_argument("--no-save", action="store_true", help="save no result and no report")
    parser.add_argument("--json", action="store_true", help="each run as a line of JSON on stdout")
    parser.add_argument("--list", action="store_true", help="show tools, their options and what would be run")
    parser.add_argument("--missing-packages", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--services", nargs="*", help=argparse.SUPPRESS)
    return parser.parse_args()


def missing_packages():
    wanted = {package for peer in catalogue.PEERS for package in peer.packages if peer.missing()}
    if plots.plot is None:
        wanted.update(catalogue.REPORT_PACKAGES)
    return sorted(wanted)


def cases(chosen):
    found = scenarios.full() if chosen.full or chosen.scenarios else scenarios.standard()
    if chosen.scenarios:
        found = [case for case in found if case.scenario in chosen.scenarios.split(",")]
    if chosen.veth:
        peers = () if chosen.only or chosen.full else tuple(scenarios.STANDARD)
        found = [scenarios.Case("distance", scenarios.PLAIN, peers=peers)]
    elif chosen.profiles:
        names = chosen.profiles.split(",")
        unknown = set(names) - set(scenarios.PROFILES)
        if unknown:
            raise SystemExit(f"error: no such link: {', '.join(unknown)}; there are {', '.join(scenarios.PROFILES)}")
        first = found[0]
        matching = [case for case in found if case.profile.name in names]
        absent = [name for name in names if name not in {case.profile.name for case in matching}]
        added = [scenarios.Case(first.scenario, scenarios.PROFILES[name], peers=first.peers) for name in absent]
        found = matching + added
    if chosen.size:
        found = [dataclasses.replace(case, size=chosen.size * scenarios.MIB) for case in found]
        found = [case for case in found if case.file_size is None or case.file_size <= case.size]
    return found


def entries(case, chosen, available):
    """The tools of one case: (peer, congestion control or None)."""
    wanted = [text.strip().lower() for text in chosen.only.split(",")] if chosen.only else None
    found = []
    for peer in catalogue.PEERS:
        if wanted is None and case.peers and peer.name not in case.peers:
            continue
        if wanted is not None and not any(text in peer.name.lower() for text in wanted):
            continue
        if (case.file_size is not None and "tree" not in peer.moves) or (case.clients > 1 and not peer.concurrent):
            continue
        controls = [name for name in chosen.congestion.split(",") if name in available] if peer.over_tcp else [None]
        found += [(peer, control) for control in controls]
    return found


def list_all(chosen):
    for peer in catalogue.PEERS:
        print(f"{peer.name:<32} {peer.missing() or 'installed'}\n    {peer.options}\n    see {peer.reference}")
    print()
    for case in cases(chosen):
        print(f"{case.scenario}: {case.name}; {len(entries(case, chosen, chosen.congestion.split(',')))} tools")


class Matrix:
    def __init__(self, chosen):
        self.chosen = chosen
        self.limit = chosen.limit or (60 if chosen.full else 20)
        self.runs = []
        self.skipped = {}
        self.path = ground.RESULTS / f"{time.strftime('%Y-%m-%d-%H%M')}.json"
        self.host = machine()

    def all(self):
        todo = cases(self.chosen)
        while todo:
            # Cases with the same MTU share a link and its hosts, as a link cannot change its MTU.
            mtu = todo[0].profile.mtu
            group, todo = ([case for case in todo if (case.profile.mtu == mtu) is same] for same in (True, False))
            with contextlib.closing(self.open_link(mtu)) as link:
                SshServer(link.pair, (link.ssh_port,))
                for host in (link.a, link.b):
                    links.tune(host)
                memory = link.pair.mount_memory(link.pair.folder("memory"), 6144)
                disk = link.pair.folder("disk")
                disk.chmod(0o755)
                self.available = set.intersection(*(set(links.congestion_controls(host)) for host in (link.a, link.b)))
                for case in group:
                    reason = link.can(case.profile)
                    if reason:
                        say(f"{case.name}: left out: {reason}")
                        self.skipped[case.name] = reason
                        continue
                    link.set(case.profile)
                    self.case(case, link, memory if case.storage == "memory" else disk)

    def open_link(self, mtu):
        if self.chosen.veth:
            return links.VethLink(self.chosen.dir, mtu)
        return links.LabLink(self.chosen.dir, mtu)

    def case(self, case, link, root):
        say(f"\n{case.scenario}: {case.name} ({case.profile})")
        data = run.make_data(root, case.command_size, case.file_size)
        site = Site(link, root, case.profile)
        try:
            wanted = entries(case, self.chosen, self.available)
            started = {peer for peer in dict.fromkeys(peer for peer, _ in wanted) if self.ready(peer, site)}
            ready = [(peer, control) for peer, control in wanted if peer in started]
            for number in range(self.chosen.rounds):
                turn = number % max(1, len(ready))
                for peer, control in ready[turn:] + ready[:turn]:
                    for _ in range(self.chosen.tries):
                        if not self.one(case, link, site, peer, control, data, number)["limited"]:
                            break
            self.show_medians(case, ready)
        finally:
            site.close()
            shutil.rmtree(root / "data", ignore_errors=True)

    def ready(self, peer, site):
        """Starts the servers of a peer; returns whether it can take part."""
        reason = peer.missing()
        if reason is None:
            try:
                peer.build()
                peer.start(site)
                return True
            except (HarnessError, OSError, AssertionError, subprocess.SubprocessError) as error:
                reason = f"could not be started: {error}"
        if peer.name not in self.skipped:
            say(f"      {peer.name}: {reason}")
        self.skipped[peer.name] = reason
        return False

    def one(self, case, link, site, peer, control, data, number):
        if control:
            links.set_congestion((link.a, link.b), control)
        record = {
            "scenario": case.scenario, "case": case.name, "profile": case.profile.name, "file_size": case.file_size,
            "clients": case.clients, "storage": case.storage, "tool": peer.name, "congestion": control, "round": number,
            **run.execute(site, peer, data, self.limit, case.commands)}
        record["link"] = link.state()
        record["limited"] = record["link"]["limited"]
        self.runs.append(record)
        if self.chosen.json:
            print(json.dumps(record), flush=True)
        if not self.chosen.no_save:
            with open(self.path.with_suffix(".jsonl.tmp"), "a") as lines:
                lines.write(json.dumps(record) + "\n")
        say(f"      {number + 1}  {summary.label(record):<40} {summary.figure(record)}")
        return record

    def show_medians(self, case, ready):
        say(f"      medians of {self.chosen.rounds}:")
        mine = [record for record in self.runs if record["case"] == case.name and record["scenario"] == case.scenario]
        for row in summary.summarise(mine):
            say(f"         {row['label']:<40} {summary.cell(row)}")

    def save(self):
        if self.chosen.no_save or not self.runs:
            return
        document = {
            "schema": SCHEMA, "host": self.host, "arguments": sys.argv[1:],
            "rounds": self.chosen.rounds, "limit_seconds": self.limit, "buffers": links.BUFFERS, "skipped": self.skipped,
            "tools": {peer.name: {"options": peer.options, "reference": peer.reference, "sealed": peer.sealed,
                                  "yardstick": peer.yardstick, "pulls": peer.pulls, "over_tcp": peer.over_tcp,
                                  "version": package_versions(peer)} for peer in catalogue.PEERS},
            "profiles": {profile.name: str(profile) for profile in scenarios.PROFILES.values()},
            "rate_bps": {profile.name: profile.rate_bps for profile in scenarios.PROFILES.values()},
            "runs": self.runs}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(document, indent=1) + "\n")
        self.path.with_suffix(".jsonl.tmp").unlink(missing_ok=True)
        say(f"\nsaved {self.path.relative_to(ROOT)}")
        chosen = self.chosen
        is_part = chosen.veth or chosen.size or any((chosen.only, chosen.profiles, chosen.scenarios))
        report.write(document, self.path, in_document=not is_part)


def package_versions(peer):
    if not peer.packages or peer.missing():
        return ""
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\\n", *peer.packages],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return ", ".join(done.stdout.split("\n")[:-1])


def machine():
    release = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    return {**ground.machine(), "release": release, "version": platform.version()}


def say(text):
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
