"""Far files through fsspec: `fh://` and `fh+ssh://`, for pandas, xarray and whatever else asks fsspec for files."""

import json
import os
import re
import subprocess
import sys

import pytest

from conftest import FAILING_PORTS
from harness import extension
from harness.product import ROOT, Daemon

SUITE = ROOT / "tests/harness/fsspec_suite.py"


@pytest.fixture(autouse=True)
def package():
    extension.needed()
    pytest.importorskip("fsspec", reason="fsspec is not installed: ./x bindings")


def place(net, way, name):
    """The address of a folder, which fsspec takes, with the options that it needs."""
    folder = net.daemon.root / name
    folder.mkdir(exist_ok=True)
    if way == "daemon":
        return folder, net.daemon.url(name), {"fingerprint": net.daemon.fingerprint}
    return folder, f"fh+ssh://beta{folder}", {}


#: The tests of patterns at the edge are three quarters of the suites.
QUICK = "not edge_cases"


@pytest.mark.parametrize(("way", "chosen"), [
    ("daemon", QUICK), pytest.param("daemon", "edge_cases", marks=pytest.mark.slow), pytest.param("ssh", QUICK, marks=pytest.mark.slow)])
def test_the_suites_of_fsspec_pass(net, way, chosen):
    folder, url, options = place(net, way, f"suite-{way}")
    said = {"FSSPEC_PLACE": json.dumps({"url": url, "options": options})}
    # Not the hosts of these tests: the suites run on alpha, and so do their local files.
    argv = [sys.executable, "-m", "pytest", "-q", "--tb=short", "--noconftest", "-p", "no:cacheprovider", "--rootdir", SUITE.parent, SUITE, "-k", chosen]
    done = net.alpha.run([*map(str, argv)], env=extension.environment(**said), timeout=900)
    assert done.returncode == 0, done.stdout.decode()[-6000:] + done.stderr.decode()[-2000:]
    passed = re.search(rb"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) >= {QUICK: 35, "edge_cases": 90}[chosen], done.stdout
    # Some of the tests leave what they have made. Temporary names begin with a dot.
    assert [path for path in folder.rglob(".*")] == [], "something was left behind"


FILES = """
import asyncio, json, os, pickle, sys, threading
import fsspec
import farhaul.fsspec

url, options, folder = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
fs, path = fsspec.url_to_fs(url, **options)

def raises(kind, call, *arguments, **named):
    try:
        got = call(*arguments, **named)
    except kind as error:
        return error
    raise SystemExit(f"{kind.__name__} did not come, but {got!r}")
"""


def run(net, script, *arguments, **options):
    return extension.run(net.alpha, FILES + script, *arguments, **options)


@pytest.mark.parametrize("way", ["daemon", pytest.param("ssh", marks=pytest.mark.slow)])
def test_names_and_attributes_are_those_of_the_far_host(net, way):
    folder, url, options = place(net, way, f"names-{way}")
    (folder / "sub/deep").mkdir(parents=True)
    (folder / "sub/deep/leaf").write_bytes(b"leaf")
    (folder / "odd [x]* \udcff".encode(errors="surrogateescape").decode(errors="surrogateescape")).write_bytes(b"odd")
    (folder / "plain").write_bytes(b"0123456789")
    (folder / "to-file").symlink_to("plain")
    (folder / "to-folder").symlink_to("sub")
    (folder / "to-nothing").symlink_to("nothing")
    run(net, """
names = {info["name"].rsplit("/", 1)[1]: info for info in fs.ls(path)}
odd = "odd [x]* \\udcff"
assert set(names) == {"sub", odd, "plain", "to-file", "to-folder", "to-nothing"}, names
assert [names[name]["type"] for name in ("sub", "plain", "to-file", "to-folder", "to-nothing")] == ["directory", "file", "file", "directory", "other"]
assert names["to-file"]["size"] == 10 and names["to-file"]["destination"] == "plain" and names["plain"]["islink"] is False
there = os.stat(folder + "/plain")
assert names["plain"]["mtime_ns"] == there.st_mtime_ns and names["plain"]["ino"] == there.st_ino
assert abs(fs.modified(path + "/plain").timestamp() - there.st_mtime) < 0.001
assert fs.info(path + "/to-file") == names["to-file"] and fs.ls(path + "/plain") == [names["plain"]]
assert [name.rsplit("/", 1)[1] for name in fs.ls(path + "/to-folder", detail=False)] == ["deep"]
assert fs.find(path + "/sub") == [path + "/sub/deep/leaf"]
assert fs.find(path, maxdepth=1, withdirs=True) == sorted([path, *(f"{path}/{name}" for name in names)])
assert fs.find(path + "/plain") == [path + "/plain"] and fs.find(path + "/none") == []
assert fs.glob(path + "/sub/**/leaf") == [path + "/sub/deep/leaf"] and fs.glob(path + "/p*n") == [path + "/plain"]
assert sum(fs.du(path + "/sub", total=False).values()) == 4
assert [(here.removeprefix(path), sorted(dirs), sorted(files)) for here, dirs, files in fs.walk(path + "/sub")] == [
    ("/sub", ["deep"], []), ("/sub/deep", [], ["leaf"])]
assert fs.isdir(path) and fs.isfile(path + "/plain") and fs.exists(path + "/to-file") and not fs.exists(path + "/none")
assert fs.cat_file(path + "/" + odd) == b"odd" and fs.cat(path + "/p*") == {path + "/plain": b"0123456789"}
raises(FileNotFoundError, fs.info, path + "/none")
raises(FileNotFoundError, fs.ls, path + "/none")
raises(NotADirectoryError, fs.info, path + "/plain/below") if sys.argv[4] == "ssh" else raises(OSError, fs.info, path + "/plain/below")
assert fs.unstrip_protocol(path + "/plain").startswith(url) and fs._strip_protocol(url + "/plain/") == path + "/plain"
assert pickle.loads(pickle.dumps(fs)) is fs
with fsspec.open(url + "/plain", **options) as file:
    assert file.read() == b"0123456789"
""", url, json.dumps(options), folder, way)


def test_parts_are_read_as_programs_ask_for_them(net):
    folder, url, options = place(net, "daemon", "parts")
    content = os.urandom(5 << 20)
    (folder / "file").write_bytes(content)
    (folder / "empty").write_bytes(b"")
    for number in range(50):
        (folder / f"chunk{number}").write_bytes(b"%d" % number * 1000)
    run(net, """
content = open(folder + "/file", "rb").read()
file = path + "/file"
bounds = [None, 0, 1, 100, -1, -100, len(content) - 1, len(content), len(content) + 5, -len(content) - 5]
wanted = [(start, end) for start in bounds for end in bounds]
for start, end in wanted:
    assert fs.cat_file(file, start, end) == content[start:end], (start, end)
starts, ends = zip(*wanted)
assert fs.cat_ranges([file] * len(wanted), list(starts), list(ends)) == [content[start:end] for start, end in wanted]
assert fs.cat_ranges([file] * 3, 5, 9) == [content[5:9]] * 3
small = [(number * 3000, number * 3000 + 1000) for number in range(1000)]
for gap in (None, 0, 2000, 10_000):
    assert fs.cat_ranges([file] * 1000, [start for start, _ in small], [end for _, end in small], max_gap=gap) == [content[a:b] for a, b in small]
assert fs.cat_file(path + "/empty") == b"" and fs.cat_ranges([path + "/empty"] * 2, [0, -5], [None, 7]) == [b"", b""]

several = fs.cat_ranges([path + "/none", file, path, path + "/none"], [0, 1, 0, 5], [1, 3, 1, None], on_error="return")
assert isinstance(several[0], FileNotFoundError) and several[1] == content[1:3] and isinstance(several[2], Exception) and isinstance(several[3], FileNotFoundError)
raises(FileNotFoundError, fs.cat_ranges, [file, path + "/none"], [0, 0], [1, 1], on_error="raise")
raises(FileNotFoundError, fs.cat_file, path + "/none", 3, 5)
chunks = fs.cat([f"{path}/chunk{number}" for number in range(50)])
assert chunks == {f"{path}/chunk{number}": b"%d" % number * 1000 for number in range(50)}

# Whatever cache a program asks for, and whatever it does with the file object.
for options_of_open in ({}, {"cache_type": "none"}, {"block_size": 1000}, {"cache_type": "blockcache"}, {"cache_type": "readahead"}):
    with fs.open(file, **options_of_open) as there:
        assert there.read(10) == content[:10] and there.seek(-7, 2) and there.read() == content[-7:]
        assert there.seek(1 << 20) and there.read(3 << 20) == content[1 << 20:4 << 20]
        buffer = bytearray(70_000)
        there.seek(0)
        got = b""
        while count := there.readinto(buffer):
            got += buffer[:count]
        assert got == content, options_of_open
        for number in range(200):
            at = number * 104_729 % len(content)
            there.seek(at)
            assert there.read(777) == content[at:at + 777]
with fs.open(file, "r", encoding="latin1", newline="") as text:
    assert text.read(1000) == content[:1000].decode("latin1")

# One session for all threads and event loops.
assert fs._remote is fsspec.filesystem(fs.protocol, host=fs.host, port=fs.port, skip_instance_cache=True, **options)._remote
def reader(number, wrong):
    for part in range(20):
        at = (number * 20 + part) * 1000
        if fs.cat_file(file, at, at + 1000) != content[at:at + 1000]:
            wrong.append(at)
wrong = []
threads = [threading.Thread(target=reader, args=(number, wrong)) for number in range(20)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not wrong

async def main():
    there = fsspec.filesystem(fs.protocol, host=fs.host, port=fs.port, asynchronous=True, **options)
    assert there._remote is fs._remote
    parts = await asyncio.gather(*(there._cat_file(f"{path}/chunk{number}") for number in range(50)))
    assert parts == [b"%d" % number * 1000 for number in range(50)]
    assert await there._cat_ranges([file] * 2, [-5, 0], [None, 5], on_error="return") == [content[-5:], content[:5]]
    opened = await there.open_async(file)
    assert await opened.read(5) == content[:5] and opened.seek(100) == 100 and await opened.read(5) == content[100:105]
    await opened.close()
asyncio.run(main())
asyncio.run(main())
# A file system for coroutines has files for everybody else.
there = fsspec.filesystem(fs.protocol, host=fs.host, port=fs.port, asynchronous=True, **options)
with there.open(path + "/by-another", "wb") as written:
    written.write(b"written")
with there.open(path + "/by-another") as opened:
    assert opened.read() == b"written"
""", url, json.dumps(options), folder)


def test_what_is_written_gets_its_name_when_all_of_it_is_there(net):
    folder, url, options = place(net, "daemon", "written")
    run(net, """
there = fs.open(path + "/a/b/new", "wb")
there.write(bytes(3 << 20))
assert os.listdir(folder) == []
there.write(b"end")
there.close()
assert open(folder + "/a/b/new", "rb").read() == bytes(3 << 20) + b"end"
try:
    with fs.open(path + "/half", "wb") as half:
        half.write(b"half of it")
        raise KeyError
except KeyError:
    pass
with fs.open(path + "/a/b/new", "rb") as old:
    old.read(10)
    fs.pipe(path + "/a/b/new", b"newer")
assert fs.cat_file(path + "/a/b/new") == b"newer" and fs.cat_file(path + "/a/b/new", 1, 3) == b"ew"
fs.pipe(path + "/a/b/new", b"third")
assert fs.cat_file(path + "/a/b/new", 1, 3) == b"hi"
raises(FileExistsError, fs.pipe_file, path + "/a/b/new", b"x", mode="create")
raises(FileExistsError, fs.open, path + "/a/b/new", "xb")
raises(IsADirectoryError, fs.open, path + "/a", "wb")
raises(IsADirectoryError, fs.pipe_file, path + "/a", b"x")
raises(NotImplementedError, fs.open, path + "/a/b/new", "ab")
with fs.transaction:
    with fs.open(path + "/t1", "wb") as t1:
        t1.write(b"t")
    assert not fs.exists(path + "/t1")
assert fs.cat_file(path + "/t1") == b"t"

open("a b[c]*", "wb").write(b"local")
fs.put_file("a b[c]*", path + "/put")
fs.put(["a b[c]*"], [path + "/put2/a b[c]*"])
fs.get_file(path + "/put", "back/put")
assert open("back/put", "rb").read() == b"local"
fs.cp_file(path + "/put", path + "/copied")
fs.mv(path + "/copied", path + "/moved/to")
assert fs.cat_file(path + "/moved/to") == b"local" and not fs.exists(path + "/copied")
fs.mv(path + "/moved", path + "/moved2")
fs.mv(path + "/put", path + "/a/b")
assert fs.cat_file(path + "/a/b/put") == b"local"
fs.mkdir(path + "/m/n")
raises(FileExistsError, fs.mkdir, path + "/m/n")
raises(FileExistsError, fs.makedirs, path + "/m/n")
fs.makedirs(path + "/m/n", exist_ok=True)
raises(Exception, fs.rmdir, path + "/m")
raises(Exception, fs.rm, path + "/m")
fs.rmdir(path + "/m/n")
fs.rm(path + "/a", recursive=True)
fs.rm([path + "/t1", path + "/m"], recursive=True)
raises(FileNotFoundError, fs.rm, path + "/none")
# A file that is larger than what is read as a whole.
large, odd = os.urandom(33 << 20), path + "/large [x]?*\\\\"
fs.pipe_file(odd, large)
fs.get_file(odd, "large")
assert open("large", "rb").read() == large and fs.cat_file(odd) == large
fs.rm_file(odd)
assert sorted(fs.find(path)) == [path + "/moved2/to", path + "/put2/a b[c]*"], fs.find(path)
""", url, json.dumps(options), folder, timeout=240)
    assert [path.name for path in folder.rglob(".*")] == []


def test_a_file_that_changes_is_old_or_an_error_and_never_both(net):
    folder, url, options = place(net, "daemon", "changing")
    (folder / "open").write_bytes(b"a" * (4 << 20))
    (folder / "parts").write_bytes(b"a" * (4 << 20))
    run(net, """
for name in ("open", "parts"):
    here = f"{folder}/{name}"
    opened = fs.open(path + "/" + name, block_size=1 << 16)
    read = (lambda at: (opened.seek(at), opened.read(100))[1]) if name == "open" else (lambda at: fs.cat_file(f"{path}/parts", at, at + 100))
    assert read(0) == b"a" * 100
    # In place, of the same length.
    with open(here, "r+b") as file:
        file.write(b"b" * (4 << 20))
    error = raises(OSError, read, 3 << 20)
    assert error.__cause__.code == "FH-SOURCE-CHANGED", error
    if name == "parts":
        assert read(3 << 20) == b"b" * 100, "the next call reads the new version"
    # Another file in its place.
    opened.close()
    opened = fs.open(path + "/" + name, block_size=1 << 16)
    assert read(0) == b"b" * 100
    with open(here + ".new", "wb") as file:
        file.write(b"c" * (4 << 20))
    os.rename(here + ".new", here)
    if name == "parts":
        assert fs.info(path + "/parts")["size"] == 4 << 20 and read(0) == b"c" * 100, "whoever has seen the new one reads it"
    else:
        raises(OSError, read, 2 << 20)
    assert fs.cat_file(path + "/" + name) == b"c" * (4 << 20)
    opened.close()
""", url, json.dumps(options), folder)


def test_a_session_that_is_lost_is_begun_again(net):
    daemon = Daemon(net.pair, net.beta, [net.key], port=next(FAILING_PORTS), root=net.folder("served"))
    folder = daemon.root / "lost"
    folder.mkdir()
    (folder / "file").write_bytes(b"0123456789" * 1000)
    process = extension.start(net.alpha, FILES + """
opened = fs.open(path + "/file", cache_type="none")
assert opened.read(10) == b"0123456789" and fs.cat_file(path + "/file", 0, 5) == b"01234"
fs.mkdir(path + "/before")
for number in range(2):
    print("ready", flush=True)
    sys.stdin.readline()
    calls = [
        lambda: opened.read(10) == b"0123456789", lambda: fs.cat_file(path + "/file", 3, 5) == b"34",
        lambda: fs.cat_file(path + "/file")[-1:] == b"9", lambda: len(fs.ls(path)) == 2 + number, lambda: fs.mkdir(f"{path}/d{number}") is None,
    ]
    assert all(call() for call in calls[number:] + calls[:number])
# A child that is forked has sessions of its own.
pid = os.fork()
if pid == 0:
    try:
        child = fsspec.filesystem(fs.protocol, host=fs.host, port=fs.port, asynchronous=True, **options)
        os._exit(0 if asyncio.run(child._cat_file(path + "/file", 0, 3)) == b"012" else 3)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(4)
assert os.waitpid(pid, 0)[1] == 0
assert opened.read(10) == b"0123456789"
""", daemon.url("lost"), json.dumps({"fingerprint": daemon.fingerprint}), folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        for _ in range(2):
            assert process.stdout.readline() == b"ready\n", process.communicate()[1].decode()
            daemon.kill()
            daemon.start()
            process.stdin.write(b"\n")
            process.stdin.flush()
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, (out, err)
    finally:
        process.kill()
        daemon.kill()


def test_the_package_works_without_fsspec(net):
    extension.run(net.alpha, """
        import sys
        sys.modules["fsspec"] = None
        import farhaul
        assert farhaul.stat("/").kind == "directory"
        try:
            import farhaul.fsspec
        except ImportError:
            pass
        else:
            raise SystemExit("there is no fsspec")
    """)


LIBRARIES = ROOT / "target/files/bin/python"


@pytest.mark.slow
@pytest.mark.skipif(not LIBRARIES.exists(), reason="there are no libraries: ./x test --full installs them")
def test_real_libraries_read_and_write_what_is_there(net):
    folder, url, options = place(net, "daemon", "libraries")
    subprocess.run([LIBRARIES, ROOT / "bench/far_libraries.py", "make", folder, "0.003"], check=True, timeout=120)
    script = """
import asyncio, json, os, sys
import fsspec, h5py, numpy, pandas, pyarrow.parquet, uproot, xarray, zarr

url, options, folder = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
here, far = f"{folder}/table.parquet", f"{url}/table.parquet"
local = pandas.read_parquet(here)
assert pandas.read_parquet(far, storage_options=options).equals(local)
assert pandas.read_parquet(far, columns=["c1", "c7"], storage_options=options).equals(local[["c1", "c7"]])
local.to_parquet(url + "/written/by pandas.parquet", storage_options=options)
assert pandas.read_parquet(folder + "/written/by pandas.parquet").equals(local)
frame = pandas.DataFrame({"a": [1, 2]})
frame.to_csv(url + "/written/table.csv", index=False, storage_options=options)
assert pandas.read_csv(url + "/written/table.csv", storage_options=options).equals(frame)
fs, path = fsspec.url_to_fs(url, **options)
assert pyarrow.parquet.read_table(path + "/table.parquet", filesystem=fs).num_rows == len(local)

values = zarr.open_array(folder + "/array.zarr", mode="r")[:]
store = zarr.storage.FsspecStore.from_url(url + "/array.zarr", storage_options=options, read_only=True)
assert (zarr.open_array(store, mode="r")[:] == values).all()
dataset = xarray.Dataset({"t": (("time", "x"), values[:50])}, coords={"time": numpy.arange(50)})
dataset.to_zarr(url + "/written/t.zarr", storage_options=options)
assert xarray.open_zarr(url + "/written/t.zarr", storage_options=options, chunks=None).load().equals(dataset)
dataset.to_netcdf(folder + "/t.nc")
with fs.open(path + "/t.nc") as file:
    assert xarray.open_dataset(file).load().equals(dataset)

with h5py.File(folder + "/rows.h5") as there, fs.open(path + "/rows.h5") as opened, h5py.File(opened, "r") as file:
    for row in range(0, len(there["rows"]), 7):
        assert (file["rows"][row, ::5] == there["rows"][row, ::5]).all()

branches = ["b3", "b50", "b99"]
wanted = uproot.open(folder + "/events.root")["events"].arrays(branches, library="np")
with uproot.open(url + "/events.root", handler=uproot.source.fsspec.FSSpecSource, **options) as file:
    got = file["events"].arrays(branches, library="np")
assert all((got[name] == wanted[name]).all() for name in branches)
"""
    argv = [LIBRARIES, "-X", "faulthandler", "-c", script, url, json.dumps(options), folder]
    done = net.alpha.run([*map(str, argv)], env=extension.environment(), timeout=240)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
