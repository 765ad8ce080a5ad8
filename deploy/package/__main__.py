"""`./x package`: builds the programs, packs them in each form, writes digests and signs them.

How to read it: files.toml says which file goes where, layout.py reads it, forms.py makes each form. binaries.py builds and
measures, components.py lists what is linked, shell_help.py asks the program for man pages and completions, library.py makes
the packages of the C library, scripts.py has what packages do on a host, release.py digests, signatures and the repository. tests/test_package.py checks all of it.
"""

import argparse
import json
import pathlib
import shutil
import sys

from . import binaries, components, forms, layout, library, release, shell_help
from .product import ROOT, version


def main() -> int:
    options = arguments()
    work = options.work.resolve()
    made, out = work / "made", work / "out"
    for folder in (made, out):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    if options.key and not (options.test_key or release.is_known(options.key)):
        print(f"error: {release.SIGNERS} does not have the public half of {options.key}", file=sys.stderr)
        return 2
    if options.program:
        binaries.strip_for_check(options.program.resolve(), options.extension.resolve(), options.archive.resolve(), made)
    else:
        binaries.build(work, made)
    packages = pack(made, out, forms_of(options), forms.QUICK if options.program else forms.THOROUGH)
    if options.repository:
        folder = release.repository([path for path in packages if path.suffix == ".deb"], out, options.gpg_key)
        print(f"repository for apt: {folder}" + ("" if options.gpg_key else ", not signed: name a key of gpg with --gpg-key"))
    sums = release.write_sums(out)
    if options.key:
        release.sign(sums, options.key)
    for path in sorted(packages):
        print(f"{path.stat().st_size / 2**20:6.1f} MiB  {path}")
    print(f"digests: {sums}" + ("" if options.key else ", not signed: name a key with --key"))
    if not options.program:
        binaries.report(made)
    return 0


def pack(made: pathlib.Path, out: pathlib.Path, wanted: list[str], effort: forms.Effort) -> list[pathlib.Path]:
    """Makes what all forms hold, then each form."""
    shell_help.write(made / "farhaul", made)
    linked = components.linked()
    bill = json.dumps(components.bill(linked), indent=1) + "\n"
    (made / "farhaul.cdx.json").write_text(bill)
    (out / f"farhaul-{version()}.cdx.json").write_text(bill)
    (made / "linked-components.txt").write_text(components.licences_page(linked))
    (made / "copyright").write_text(components.copyright_page(linked))
    (made / "debian-changelog").write_text(forms.debian_changelog())
    makers = {"deb": forms.deb, "rpm": forms.rpm, "tar": forms.tarball, "wheel": forms.wheel, "debug": forms.debug_tarball}
    makers |= library.MAKERS
    packages = [makers[form](made, out, effort) for form in wanted]
    packages += [forms.conda_recipe(path, out) for path in packages if path.name.startswith("farhaul-") and path.name.endswith("linux.tar.xz")]
    return packages


def forms_of(options: argparse.Namespace) -> list[str]:
    wanted = ["deb", "tar"]
    # As below: an archive may be missing in tests.
    if not options.program or options.archive.exists():
        wanted += layout.LIBRARY_FORMS
    # Without an extension that was built for tests there is no wheel to look at.
    if not options.program or options.extension.exists():
        wanted.append("wheel")
    if shutil.which("rpmbuild"):
        wanted.append("rpm")
    else:
        wanted = [form for form in wanted if not form.startswith("rpm")]
    if "rpm" not in wanted and not options.program:
        raise SystemExit("error: there is no rpmbuild; ./x package installs it")
    return wanted if options.program else [*wanted, "debug"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./x package", description="Builds the programs and makes all packages.")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target/package", help="where to build; packages are in its out/")
    parser.add_argument("--key", type=pathlib.Path, help="private Ed25519 key of ssh that signs SHA256SUMS")
    parser.add_argument("--test-key", action="store_true", help="take a key that deploy/package/allowed_signers does not have")
    parser.add_argument("--repository", action="store_true", help="make a repository for apt, too")
    parser.add_argument("--gpg-key", help="key of gpg that signs the repository")
    parser.add_argument("--program", type=pathlib.Path, help="pack this program and build none, to look at the packages")
    parser.add_argument("--extension", type=pathlib.Path, default=ROOT / "target/python/farhaul/_native.abi3.so",
                        help="the Python extension that goes with --program")
    parser.add_argument("--archive", type=pathlib.Path, default=ROOT / "target/release/libfarhaul_c.a",
                        help="the archive of the C library that goes with --program")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
