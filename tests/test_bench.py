"""How the measurements evaluate their runs; `./x bench` makes the runs themselves."""

import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

import ground  # noqa: E402
import link  # noqa: E402
import matrix  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402
import scenarios  # noqa: E402
import summary  # noqa: E402


def a_run(tool="scp", rate=1e9, status="ok", limited=None, **more):
    return {"scenario": "distance", "case": "LAN, 512 MiB", "profile": "LAN", "tool": tool, "congestion": "cubic",
            "status": status, "rate_bps": rate, "limited": limited, "bytes": 1 << 29,
            "cpu_per_gib": [1.0, 2.0], "peak_bytes": [1, 2],
            "link": {"kind": "veth"}, "clients": 1, "file_size": None, **more}


def test_the_median_leaves_out_failures_and_what_the_emulator_spoiled():
    runs = [a_run(rate=rate) for rate in (1e9, 3e9, 2e9)]
    runs += [a_run(rate=9e9, limited="late"), a_run(rate=None, status="failed")]
    [row] = summary.summarise(runs)
    assert (row["rate"], row["low"], row["high"]) == (2e9, 1e9, 3e9)
    assert summary.cell(row) == "2 Gbit/s ±50%, 1/5 failed, 1/5 emulator full"


def test_a_run_out_of_time_counts_with_what_had_arrived_and_says_so():
    [row] = summary.summarise([a_run(rate=3e6, status="timeout")])
    assert summary.cell(row) == "3 Mbit/s, 1/1 not done in time"


def test_a_figure_that_was_only_ever_spoiled_stands_in_parentheses():
    [row] = summary.summarise([a_run(rate=8e8, limited="late"), a_run(rate=None, status="failed", limited="late")])
    assert row["rate"] is None
    assert summary.cell(row) == "(800 Mbit/s), 1/2 failed, 1/2 emulator full"


def test_the_fastest_stands_first():
    rows = summary.summarise([a_run("scp", 1e9), a_run("udt4", 2e9), a_run("broken", None, "failed")])
    assert [row["first"]["tool"] for row in rows] == ["udt4", "scp", "broken"]


def test_the_size_below_which_a_tool_no_longer_fills_the_link():
    sizes = {1 << 28: 9.5e8, 1 << 20: 9.1e8, 1 << 16: 5e8, 1 << 13: 9.9e8}
    runs = [a_run(rate=rate, file_size=size, case=str(size)) for size, rate in sizes.items()]
    assert summary.threshold(summary.summarise(runs), 1e9) == "1 MiB"
    assert summary.threshold(summary.summarise(runs[2:3]), 1e9) == "never"


def test_seconds_of_the_emulator_become_one_record():
    def second(packets, cpu, late, reasons):
        one = {"passed_packets": packets, "late_packets": 0, "cpu_share": cpu, "dropped": {"loss": 1}, "overloaded": []}
        return {"links": [{"link": 1, "forward": {**one, "late_packets": late, "overloaded": reasons}, "backward": one}]}
    folded = link.fold([second(1000, 0.5, 0, []), second(2000, 0.2, 0, ["a queue ran over"])])
    assert folded["limited"] == "forward: a queue ran over"
    assert folded["backward"] == {"passed_packets": 3000, "late_packets": 0, "cpu_share": 0.5, "dropped.loss": 2}
    few_late = [second(10, 0.1, 5, ["more than 1 % of the packets were over 1 ms late"]), second(10000, 0.1, 0, [])]
    assert link.fold(few_late)["limited"] is None
    assert link.fold(few_late[:1])["limited"] == "forward: 50.0% of the packets were over 1 ms late"


def test_every_tool_of_a_list_is_one_that_there_is():
    names = [peer.name for peer in peers.PEERS]
    assert len(names) == len(set(names))
    assert set(scenarios.STANDARD + scenarios.CURVES) <= set(names)
    for peer in peers.PEERS:
        assert peer.options and peer.reference, peer.name


def test_the_help_can_be_shown(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["matrix.py", "--help"])
    with pytest.raises(SystemExit):
        matrix.arguments()
    assert "50ms-0.1%" in capsys.readouterr().out


def test_the_standard_matrix_is_five_tools_on_three_links(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["matrix.py"])
    chosen = matrix.arguments()
    cases = matrix.cases(chosen)
    assert [case.profile.name for case in cases] == ["LAN", "50ms-0.1%", "100ms-1%"]
    for case in cases:
        found = matrix.entries(case, chosen, ["cubic", "bbr"])
        assert len({peer.name for peer, _ in found}) == 5
        assert len(found) == 9  # Farhaul once, and four tools over TCP with two congestion controls each


def test_a_tree_is_for_tools_that_know_trees(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["matrix.py"])
    case = scenarios.Case("file sizes", scenarios.LAN, file_size=8192)
    found = matrix.entries(case, matrix.arguments(), ["cubic"])
    assert "udt4" not in {peer.name for peer, _ in found}


def test_the_report_needs_nothing_but_itself(tmp_path, monkeypatch):
    runs = [a_run("scp", 1e9), a_run("udt4", 2e9), a_run("scp", 5e8, scenario="file sizes", case="x", file_size=8192),
            a_run("scp", 5e8, scenario="clients", case="y", clients=4)]
    for one in runs:
        one.update(round=0, limit_seconds=20, seconds=1.0, verified=True)
    facts = {"options": "<o>", "reference": "r", "sealed": True, "yardstick": False, "over_tcp": True, "version": "1"}
    host = {"date": "2026-01-01T00:00:00Z", "commit": "c", "cores": 2, "cpu": "x", "memory_bytes": 1 << 34,
            "kernel": "6"}
    document = {"host": host, "rounds": 3, "limit_seconds": 20, "buffers": {"a": "b"}, "skipped": {"uftp": "not installed: uftp"},
                "tools": {"scp": facts, "udt4": facts}, "profiles": {"LAN": "1 Gbit/s"}, "rate_bps": {"LAN": 1e9},
                "runs": runs}
    text = report.page(document, "x.json")
    assert "&lt;o&gt;" in text and "src=" not in text and "not installed: uftp" in text
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    assert report.put_between_marks(page, summary.markdown(document, "x.json"))
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text


def test_a_tree_for_a_size_has_that_size(tmp_path):
    data = run.make_data(tmp_path, 1 << 20, 1 << 16)
    assert data.files == 16 and len(data.list.read_text().splitlines()) == 16
    assert sum(path.stat().st_size for path in data.path.rglob("f*")) == 1 << 20


def test_what_arrived_is_compared_with_what_was_sent(tmp_path):
    data = run.make_data(tmp_path, 1 << 16)
    job = run.Job(data.path, tmp_path / "in" / data.path.name, data.size)
    assert run.difference(data, job) == "nothing has arrived under that name"
    job.into.mkdir()
    job.target.write_bytes(data.path.read_bytes())
    assert run.difference(data, job) is None
    job.target.write_bytes(data.path.read_bytes()[:-1] + b"x")
    assert run.difference(data, job) == "the content differs"


def test_a_row_measured_again_keeps_its_place(tmp_path, monkeypatch):
    monkeypatch.setattr(ground, "RESULTS", tmp_path)
    monkeypatch.setattr(ground, "ROOT", tmp_path)
    monkeypatch.setattr(ground, "commit", lambda: "1234567")
    monkeypatch.setattr(ground, "machine", dict)

    def measured(**rows):
        results = ground.Results("some")
        for case, figure in rows.items():
            results.row(case, True, figure, "none")
        results.save(keep_others=True)

    measured(one="1", two="2", three="3")
    measured(four="4", two="22")
    saved = json.loads((tmp_path / "some.json").read_text())["rows"]
    assert [(row["case"], row["figure"]) for row in saved] == [("one", "1"), ("two", "22"), ("three", "3"), ("four", "4")]
