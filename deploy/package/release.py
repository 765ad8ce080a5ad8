"""What lets a user check a release: digests, their signature, and a repository for apt."""

import gzip
import hashlib
import pathlib
import shutil
import subprocess
import time

from .product import HERE, NAME, SUMMARY, source_time

#: The keys whose signatures count, as ssh-keygen reads them.
SIGNERS = HERE / "allowed_signers"
#: What a signature is for: one that was made for something else does not count.
NAMESPACE = "farhaul-release"
IDENTITY = "release@farhaul"
SUMS = "SHA256SUMS"


def write_sums(out: pathlib.Path) -> pathlib.Path:
    """Digests of all files in `out` and below it."""
    left_out = {SUMS, f"{SUMS}.sig"}
    files = sorted(path for path in out.rglob("*") if path.is_file() and path.name not in left_out)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out)}\n" for path in files]
    (out / SUMS).write_text("".join(lines))
    return out / SUMS


def sign(sums: pathlib.Path, key: pathlib.Path) -> pathlib.Path:
    """Signs the digests by a private Ed25519 key of ssh; Ed25519 signatures are the same each time."""
    signature = sums.with_name(f"{sums.name}.sig")
    signature.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", NAMESPACE, sums], check=True, capture_output=True)
    return signature


def check(sums: pathlib.Path, signers: pathlib.Path = SIGNERS) -> None:
    """What the guide tells users to type. Raises if anything is wrong."""
    command = ["ssh-keygen", "-Y", "verify", "-f", signers, "-I", IDENTITY, "-n", NAMESPACE, "-s", f"{sums}.sig"]
    subprocess.run(command, check=True, input=sums.read_bytes(), capture_output=True)
    subprocess.run(["sha256sum", "--check", "--quiet", "--strict", sums.name], check=True, cwd=sums.parent, capture_output=True)


def is_known(key: pathlib.Path) -> bool:
    """Whether the public half of a private key is among those whose signatures count."""
    public = subprocess.run(["ssh-keygen", "-y", "-f", key], check=True, capture_output=True, text=True).stdout.split()[1]
    lines = [line.split() for line in SIGNERS.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return any(public in words for words in lines)


def repository(packages: list[pathlib.Path], out: pathlib.Path, gpg_key: str | None) -> pathlib.Path:
    """A repository for apt as a directory, which any web server or file system can offer.

    With a key of gpg its lists are signed, as apt wants it.
    """
    folder = out / "apt"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for package in packages:
        shutil.copy(package, folder)
    scanned = subprocess.run(["dpkg-scanpackages", "--multiversion", "."], cwd=folder, check=True, capture_output=True)
    (folder / "Packages").write_bytes(scanned.stdout)
    (folder / "Packages.gz").write_bytes(gzip.compress(scanned.stdout, 9, mtime=0))
    lists = [folder / "Packages", folder / "Packages.gz"]
    date = time.strftime("%a, %d %b %Y %H:%M:%S UTC", time.gmtime(source_time()))
    digests = [f" {hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_size} {path.name}\n" for path in lists]
    (folder / "Release").write_text(
        f"Origin: {NAME}\nLabel: {NAME}\nSuite: stable\nArchitectures: amd64\nDate: {date}\nDescription: {SUMMARY}\nSHA256:\n"
        + "".join(digests)
    )
    if gpg_key:
        sign_lists(folder, gpg_key)
    return folder


def sign_lists(folder: pathlib.Path, key: str) -> None:
    gpg = ["gpg", "--batch", "--yes", "--local-user", key, "--digest-algo", "SHA512", "--faked-system-time", f"{source_time()}!"]
    # A key that is younger than the source cannot sign at the source's time: then the signature has the time of signing.
    for options in (gpg, gpg[:-2]):
        done = subprocess.run([*options, "--clearsign", "--output", folder / "InRelease", folder / "Release"], capture_output=True)
        if done.returncode == 0:
            break
    else:
        raise SystemExit(f"error: gpg does not sign: {done.stderr.decode()}")
    exported = subprocess.run(["gpg", "--batch", "--export", "--armor", key], check=True, capture_output=True).stdout
    (folder / f"{NAME}-archive-keyring.asc").write_bytes(exported)


def throw_away_key(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """A key for tests, and the file of allowed signers that knows it."""
    key = folder / "test_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", key], check=True)
    signers = folder / "test_signers"
    signers.write_text(f'{IDENTITY} namespaces="{NAMESPACE}" {key.with_suffix(".pub").read_text()}')
    return key, signers


def throw_away_gpg_key() -> str:
    """A key of gpg for tests, in the home that $GNUPGHOME names."""
    made = ["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key", "test@farhaul", "ed25519", "sign", "never"]
    subprocess.run(made, check=True, capture_output=True)
    return "test@farhaul"
