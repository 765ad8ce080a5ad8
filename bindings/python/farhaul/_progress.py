"""Shows how a job gets on: by tqdm if it is there, otherwise by one line at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

#: What `progress` of a call may be.
Progress = bool | Callable[[dict[str, Any]], None]


class Display:
    """What a person sees of a job, or nobody."""

    def __init__(self, progress: Progress, what: str) -> None:
        self._call = progress if callable(progress) else None
        self._what, self._line_len = what, 0
        self._bar: Any = None
        self._is_line = False
        if progress is True:
            try:
                from tqdm.auto import tqdm  # type: ignore[import-untyped]
            except ImportError:
                self._is_line = sys.stderr.isatty()
            else:
                self._bar = tqdm(unit="B", unit_scale=True, unit_divisor=1024, desc=what, file=sys.stderr)

    @property
    def wants(self) -> bool:
        return self._call is not None or self._bar is not None or self._is_line

    def show(self, snapshot: dict[str, Any]) -> None:
        if self._call is not None:
            self._call(snapshot)
        elif self._bar is not None:
            self._bar.total = snapshot["bytes_total"] if snapshot["totals_known"] else None
            self._bar.n = snapshot["bytes_done"]
            self._bar.refresh()
        elif self._is_line:
            done, total = snapshot["bytes_done"] / 2**20, snapshot["bytes_total"] / 2**20
            rate = snapshot["goodput_bps"] / 1e6
            of = f" of {total:,.0f}" if snapshot["totals_known"] else ""
            line = f"{self._what}: {done:,.0f}{of} MiB, {snapshot['files_done']:,} files, {rate:,.0f} Mbit/s"
            sys.stderr.write("\r" + line.ljust(self._line_len))
            sys.stderr.flush()
            self._line_len = len(line)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._line_len:
            sys.stderr.write("\n")
