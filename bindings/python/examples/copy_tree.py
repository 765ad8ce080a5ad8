"""Copies a tree and prints what happens: copy_tree.py SOURCE DESTINATION"""

import asyncio
import sys

import farhaul


async def main(source: str, destination: str) -> None:
    job = await farhaul.aio.start_copy(source, destination, verify="readback", exclude=["*.tmp"])
    job.set_rate("10G")
    async for event in job.events("notice"):
        print(event["event"])
    report = await job.wait()
    print(f"{report.files} files, {report.bytes} bytes, {report['goodput_bps'] / 1e6:.0f} Mbit/s")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:3]))
    except farhaul.FarhaulError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
