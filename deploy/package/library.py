"""Makes the packages of the C library, as programmers of each system expect them.

Debian: `libfarhaul0`, named after the soname, has what a finished program loads, and `libfarhaul-dev` what a compiler needs; a
later soname can stand beside this one. rpm: `farhaul-libs` and `farhaul-devel`. Elsewhere: one tarball that works wherever it is
unpacked.
"""

import pathlib

from . import forms
from .forms import Effort
from .layout import entries
from .product import NAME, version

SUMMARY = "Farhaul as a C library"
WHAT = """\
Farhaul moves big data between machines at the speed of the link. By this
library a program sends and receives blocks of its own memory, copies files
and trees, and reads files where they are."""
RUNS = f"{WHAT}\nPrograms that use it load what this package has."
COMPILES = f"{WHAT}\nThis package has what a compiler needs: the header, farhaul.pc and the archive."
#: The number in `libfarhaul.so.0`. Programs that were linked with it work as long as it stays.
SONAME = 0


def deb_library(made: pathlib.Path, out: pathlib.Path, effort: Effort) -> pathlib.Path:
    needed = forms.libraries_of_debian(made / f"library/lib/libfarhaul.so.{version()}")
    fields = {"Section": "libs", "Multi-Arch": "same", "Depends": needed, "Description": f"{SUMMARY} (what programs load)"}
    control_files = {
        # Packages that are linked with the library get their dependency on it from this line.
        "shlibs": f"libfarhaul {SONAME} libfarhaul{SONAME} (>= {version()})\n",
        "triggers": "activate-noawait ldconfig\n",
    }
    return forms.write_deb(f"libfarhaul{SONAME}", fields, RUNS, entries("deb-library", made), control_files, out, effort)


def deb_development(made: pathlib.Path, out: pathlib.Path, effort: Effort) -> pathlib.Path:
    fields = {
        "Section": "libdevel", "Multi-Arch": "same", "Depends": f"libfarhaul{SONAME} (= {version()})",
        "Suggests": "pkgconf | pkg-config", "Description": f"{SUMMARY} (header and archive)",
    }
    return forms.write_deb("libfarhaul-dev", fields, COMPILES, entries("deb-development", made), {}, out, effort)


def rpm_library(made: pathlib.Path, out: pathlib.Path, effort: Effort) -> pathlib.Path:
    """The cache of the linker is brought up to date by glibc's own package, on each system that is supported."""
    fields = {"Summary": f"{SUMMARY}: what programs load"}
    return forms.write_rpm(f"{NAME}-libs", fields, RUNS, entries("rpm-library", made), {}, out, effort)


def rpm_development(made: pathlib.Path, out: pathlib.Path, effort: Effort) -> pathlib.Path:
    fields = {
        "Summary": f"{SUMMARY}: header and archive", "Requires": f"{NAME}-libs = {version()}-1",
        # Where Fedora's rules look for an archive.
        "Provides": f"{NAME}-static = {version()}-1",
    }
    return forms.write_rpm(f"{NAME}-devel", fields, COMPILES, entries("rpm-development", made), {}, out, effort)


def tarball(made: pathlib.Path, out: pathlib.Path, effort: Effort) -> pathlib.Path:
    name = f"libfarhaul-{version()}-x86_64-linux"
    return forms.write_tar(entries("tar-library", made), out / f"{name}.tar.xz", name, effort)


MAKERS = {
    "deb-library": deb_library, "deb-development": deb_development, "rpm-library": rpm_library, "rpm-development": rpm_development,
    "tar-library": tarball,
}
