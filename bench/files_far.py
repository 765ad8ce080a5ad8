"""Far files as files, in the lab (1 Gbit/s, 100 ms): real libraries over fsspec beside HTTP and XRootD, and a mount beside
`farhaul cp`, sshfs and rclone: one PASS or MISS line a row.

Always true: peers read the same file over the same link in the same run, in turns with us; every result is compared.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

from far_lab import Lab
from ground import GIB, MIB, ROOT, Results, parts

LIBRARIES = {"parquet": "table.parquet", "zarr": "array.zarr", "h5py": "rows.h5", "uproot": "events.root"}
PARTS = (*LIBRARIES, "cat", "trees")
LINK = ("--rtt", "100ms", "--rate", "1g")
PYTHON = ROOT / "target/files/bin/python"
#: A size of 1 is that of the issue's table: 1 GB, 1,000 chunks, 4 GiB, 10,000 files.
NAMES = {"parquet": "three columns of twenty of a parquet", "zarr": "1,000 chunks of a zarr", "h5py": "200 rows of an HDF5 file",
         "uproot": "ten branches of a hundred of a ROOT file"}
#: Many small ranges: these have to be twice as fast.
SMALL = {"zarr"}


def spread(figures):
    return f"{min(figures):.2f} to {max(figures):.2f}"


def storage_options(place):
    """Options of `farhaul cp` as those of the storage."""
    words = place.options
    given = dict(zip(words[::2], words[1::2], strict=True))
    return {"identity": given["-i"], "known_hosts": given["--known-hosts"], "fingerprint": given["--fingerprint"]}


def library(place, what, address, options):
    script = str(ROOT / "bench/far_libraries.py")
    before = place.received()
    done = place.up.execute("a", "env", f"PYTHONPATH={chosen_package()}", str(PYTHON), script, "read", what, address, json.dumps(options),
                            check=False, timeout=900)
    if done.returncode != 0:
        return {"error": (done.stderr.decode(errors="replace").strip().splitlines() or ["?"])[-1]}
    return {**json.loads(done.stdout.splitlines()[-1]), "received": place.received() - before}


def chosen_package():
    return os.environ.get("FARHAUL_PYTHON", ROOT / "target/python")


def libraries(results, chosen):
    with Lab(*LINK) as place:
        subprocess.run([PYTHON, ROOT / "bench/far_libraries.py", "make", place.folder, str(chosen.size)], check=True)
        roads = {"farhaul": (place.url, storage_options(place)), "http": (place.nginx(), {})}
        if shutil.which("xrootd") and subprocess.run([PYTHON, "-c", "import fsspec_xrootd"], capture_output=True).returncode == 0:
            roads["xrootd"] = (place.xrootd(), {})
        else:
            results.note("no XRootD beside it: xrootd-server and fsspec-xrootd are needed")
        for part in filter(LIBRARIES.get, chosen.only):
            what = LIBRARIES[part]
            runs = {road: [] for road in roads}
            for _ in range(chosen.runs):
                for road, (address, options) in roads.items():
                    runs[road].append(library(place, what, address + what, options))
            compare(results, part, runs)


def compare(results, part, runs):
    failed = {road: next((run["error"] for run in tries if "error" in run), None) for road, tries in runs.items()}
    if failed["farhaul"]:
        return results.row(NAMES[part], False, failed["farhaul"][:60], "a result", runs=runs)
    for road, why in failed.items():
        if why:
            results.note(f"{road} cannot do it: {why[:100]}")
    done = {road: tries for road, tries in runs.items() if not failed[road]}
    middle = {road: statistics.median(run["seconds"] for run in tries) for road, tries in done.items()}
    digests = {run["digest"] for tries in done.values() for run in tries}
    peers = {road: seconds for road, seconds in middle.items() if road != "farhaul"}
    best = min(peers.values(), default=float("inf"))
    ratio, goal = middle["farhaul"] / best, 0.5 if part in SMALL else 1.05
    for road, tries in done.items():
        results.note(f"{road}: {middle[road]:.2f} s, {tries[-1]['received'] / 1e6:.1f} MB over the link for {tries[-1]['bytes'] / 1e6:.1f} MB")
    passed = ratio <= goal and len(digests) == 1
    same = "" if len(digests) == 1 else ", and the results differ"
    results.row(NAMES[part], passed, f"{ratio:.2f} of the best peer's time{same}", f"{goal}", spread([run["seconds"] for run in done["farhaul"]]), runs=runs)


def mounted(place, target, *words):
    """Mounts in the lab's first host, in the foreground; returns the process once something is seen there."""
    process = place.start("a", *words, stdout=subprocess.DEVNULL)
    for _ in range(300):
        if place.up.execute("a", "mountpoint", "-q", str(target), check=False).returncode == 0:
            return process
        if process.poll() is not None:
            raise SystemExit(f"{words[0]}: {process.stderr.read().decode()}")
        time.sleep(0.1)
    raise SystemExit(f"{words[0]} has not mounted")


def unmount(place, process, target):
    place.up.execute("a", "umount", "-l", str(target), check=False)
    process.terminate()
    process.wait(30)


def ours(place, target, cache, *words):
    return mounted(place, target, "farhaul", "mount", "--foreground", *place.options, "--cache-dir", str(cache), *words, place.url, str(target))


def cat(results, chosen):
    size = max(64 * MIB, int(4 * GIB * chosen.size))
    with Lab(*LINK) as place:
        place.file("file", size)
        target = place.folder / "mount"
        target.mkdir()
        ratios, kept = [], []
        for number in range(chosen.runs):
            _, copy = place.run("sh", "-c", f"farhaul cp -q {' '.join(place.options)} '{place.url}file' {place.folder}/copy; rm {place.folder}/copy", timeout=1800)
            for figures, words in ((ratios, ("--cache-size", "0")), (kept, ())):
                process = ours(place, target, f"/dev/shm/{place.folder.name}-cache{number}", *words)
                try:
                    _, seconds = place.run("sh", "-c", f"cat {target}/file >/dev/null", timeout=1800)
                finally:
                    unmount(place, process, target)
                    shutil.rmtree(f"/dev/shm/{place.folder.name}-cache{number}", ignore_errors=True)
                figures.append(copy / seconds)
    for name, figures in (("nothing kept", ratios), ("kept in the cache", kept)):
        middle = statistics.median(figures)
        results.row(f"mount: cat of {size / GIB:.2f} GiB, {name}", middle >= 0.85, f"{middle:.2f} of cp", "0.85", spread(figures), ratios=figures)


def trees(results, chosen):
    count = max(200, int(10_000 * chosen.size))
    with Lab(*LINK) as place:
        there = place.folder / "tree"
        for number in range(count):
            folder = there / f"d{number % 100}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"f{number}").write_bytes(b"%d" % number * 500)
        sums = subprocess.run("find . -type f -exec md5sum {} +", shell=True, cwd=there, check=True, capture_output=True).stdout
        (place.folder / "sums").write_bytes(sums)
        targets = {name: place.folder / f"at-{name}" for name in ("farhaul", "sshfs", "rclone")}
        for target in targets.values():
            target.mkdir()
        ssh = place.up.environment["FARHAUL_LAB_SSH_CONFIG"]
        starts = {
            "farhaul": lambda: ours(place, targets["farhaul"], place.folder / "cache", "--metadata-time", "600"),
            "sshfs": lambda: mounted(place, targets["sshfs"], "sshfs", "-f", "-F", ssh, f"lab-b:{place.folder}", str(targets["sshfs"])),
            "rclone": lambda: mounted(place, targets["rclone"], "rclone", "mount", "--config", "/dev/null", "--read-only", "--vfs-cache-mode", "full",
                                      "--cache-dir", str(place.folder / "rclone"), "--sftp-ssh", f"ssh -F {ssh} lab-b", f":sftp:{place.folder}",
                                      str(targets["rclone"])),
        }
        local = min(place.run("sh", "-c", f"find {there} -type f -printf '%s %T@ %p\\n' >/dev/null")[1] for _ in range(3))
        for name, start in starts.items():
            if not shutil.which(name):
                results.note(f"{name} is not installed")
                continue
            try:
                process = start()
            except SystemExit as error:
                results.note(str(error)[:120])
                continue
            target = targets[name] / "tree"
            try:
                figures = {}
                for when in ("cold", "warm"):
                    out, figures[f"find {when}"] = place.run("sh", "-c", f"find {target} -type f -printf '%s %T@ %p\\n' | wc -l", timeout=1800)
                    assert int(out) == count, (name, out)
                for when in ("cold", "warm"):
                    _, figures[f"md5sum {when}"] = place.run("sh", "-c", f"cd {target} && md5sum --quiet -c {place.folder}/sums", timeout=1800)
            finally:
                unmount(place, process, targets[name])
            told = ", ".join(f"{what} {seconds:.2f} s" for what, seconds in figures.items())
            results.note(f"{name}, {count} files: {told}; local find {local:.3f} s")
            if name == "farhaul":
                ratio = figures["find warm"] / local
                results.row(f"mount: find in {count} files, warm", ratio <= 3, f"{ratio:.1f} times local", "3", figures=figures)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=3, help="runs of each case (default 3)")
    parser.add_argument("--size", type=float, default=1.0, help="share of the full size: 0.02 takes minutes (default 1)")
    parser.add_argument("--only", type=parts(PARTS), default=PARTS, help=f"only these, of {', '.join(PARTS)}")
    chosen = parser.parse_args()
    binary = pathlib.Path(os.environ.get("FARHAUL_BIN", ROOT / "target/release/farhaul"))
    os.environ["PATH"] = f"{binary.parent}:{os.environ['PATH']}"
    results = Results("files-far")
    results.notes = {"size": chosen.size}
    with results.saved(chosen.only == PARTS):
        if any(part in LIBRARIES for part in chosen.only):
            libraries(results, chosen)
        for part, measure in (("cat", cat), ("trees", trees)):
            if part in chosen.only:
                measure(results, chosen)


if __name__ == "__main__":
    sys.exit(main())
