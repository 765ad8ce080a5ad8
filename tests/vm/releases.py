"""Which systems there are."""

import dataclasses
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
#: Images, kernels and what runs now.
FOLDER = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "vm"


@dataclasses.dataclass(frozen=True)
class Release:
    """A version of Debian."""

    version: str
    name: str
    #: How the version of its kernel begins.
    kernel: str

    @property
    def folder(self) -> pathlib.Path:
        return FOLDER / self.version

    @property
    def image(self) -> pathlib.Path:
        return self.folder / "root.img"

    @property
    def vmlinuz(self) -> pathlib.Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> pathlib.Path:
        return self.folder / "initrd"


RELEASES = {
    release.version: release
    for release in (Release("11", "bullseye", "5.10."), Release("12", "bookworm", "6.1."), Release("13", "trixie", "6.12."))
}
