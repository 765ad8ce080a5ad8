"""Real libraries on real files, for bench/files_far.py: `make` writes the files, `read` reads one of them by an address.

`make FOLDER SIZE` (SIZE is a share of the full size); `read WHAT ADDRESS OPTIONS` prints seconds and a digest of what was
read, as JSON. OPTIONS are those of the storage, as JSON.
"""

import hashlib
import json
import pathlib
import sys
import time

import numpy

COLUMNS, PARQUET_ROWS = 20, 6_700_000
CHUNKS, CHUNK_VALUES = 1000, 25_000
ROWS, ROW_VALUES, SLICES = 200_000, 1024, 200
BRANCHES, ENTRIES = 100, 1_000_000


def make(folder, size):
    import h5py
    import pyarrow
    import pyarrow.parquet
    import uproot
    import zarr

    chance = numpy.random.default_rng(7)
    rows = int(PARQUET_ROWS * size)
    table = pyarrow.table({f"c{number}": chance.random(rows) for number in range(COLUMNS)})
    pyarrow.parquet.write_table(table, folder / "table.parquet", compression="none", row_group_size=max(1, rows // 8), use_dictionary=False)
    values = chance.random((CHUNKS, max(100, int(CHUNK_VALUES * size))), dtype="f4")
    store = zarr.storage.LocalStore(folder / "array.zarr")
    zarr.create_array(store, shape=values.shape, chunks=(1, values.shape[1]), dtype="f4", compressors=None)[:] = values
    with h5py.File(folder / "rows.h5", "w") as file:
        rows = max(SLICES, int(ROWS * size))
        data = file.create_dataset("rows", shape=(rows, ROW_VALUES), dtype="f4", chunks=(16, ROW_VALUES))
        for begin in range(0, rows, 10_000):
            data[begin:begin + 10_000] = chance.random((min(10_000, rows - begin), ROW_VALUES), dtype="f4")
    entries = max(1000, int(ENTRIES * size))
    with uproot.recreate(folder / "events.root", compression=None) as file:
        tree = file.mktree("events", {f"b{number}": "f4" for number in range(BRANCHES)})
        for begin in range(0, entries, 100_000):
            count = min(100_000, entries - begin)
            tree.extend({f"b{number}": chance.random(count, dtype="f4") for number in range(BRANCHES)})


def parquet(address, options):
    import pandas

    frame = pandas.read_parquet(address, columns=["c1", "c7", "c15"], storage_options=options or None)
    return [frame[name].to_numpy() for name in frame]


def chunks(address, options):
    import zarr

    # By default zarr waits for ten chunks at a time, and a long path with it.
    zarr.config.set({"async.concurrency": 256})
    store = zarr.storage.FsspecStore.from_url(address, storage_options=options, read_only=True)
    return [zarr.open_array(store, mode="r")[:]]


def slices(address, options):
    import fsspec
    import h5py

    with fsspec.open(address, "rb", **options) as opened, h5py.File(opened, "r") as file:
        data = file["rows"]
        return [data[number * (len(data) // SLICES), ::3] for number in range(SLICES)]


def branches(address, options):
    import uproot

    source = uproot.source.fsspec.FSSpecSource
    with uproot.open(address, handler=source, **options) as file:
        arrays = file["events"].arrays([f"b{number * 9}" for number in range(10)], library="np")
    return [arrays[name] for name in sorted(arrays)]


READERS = {"table.parquet": parquet, "array.zarr": chunks, "rows.h5": slices, "events.root": branches}


def main():
    if sys.argv[1] == "make":
        return make(pathlib.Path(sys.argv[2]), float(sys.argv[3]))
    _, _, what, address, options = sys.argv
    begin = time.monotonic()
    arrays = READERS[what](address, json.loads(options))
    seconds = time.monotonic() - begin
    digest = hashlib.sha256(b"".join(numpy.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()
    print(json.dumps({"seconds": seconds, "digest": digest, "bytes": sum(array.nbytes for array in arrays)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
