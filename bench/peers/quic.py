"""A copy over QUIC, with quinn: bench/quic-copy, a crate beside the product."""

import os
import pathlib
import shutil
import subprocess

from harness.hosts import HarnessError, call

from .peer import Peer

CRATE = pathlib.Path(__file__).parents[1] / "quic-copy"
TARGET = CRATE.parents[1] / "target/bench/quic-copy"
PROGRAM = TARGET / "release/quic-copy"


class Quinn(Peer):
    programs = ("openssl",)
    packages = ("openssl",)
    moves = frozenset({"file"})
    over_tcp = False
    reference = ("docs.rs/quinn, TransportConfig: stream_receive_window, receive_window, send_window, "
                 "congestion_controller_factory")

    def __init__(self, control, port):
        self.control = control
        self.port = port
        self.name = f"quic (quinn, {control})"
        self.options = (f"{control}, windows for the bandwidth-delay product (256 MiB), socket buffers of 16 MiB asked "
                        "for; 16 streams, as one may have 1024 gaps at most; segments batched by the kernel (its default)")

    def missing(self):
        return super().missing() if PROGRAM.exists() or shutil.which("cargo") else "needs cargo"

    def build(self):
        sources = [CRATE / "Cargo.toml", CRATE / "Cargo.lock", *CRATE.glob("src/*.rs")]
        if PROGRAM.exists() and PROGRAM.stat().st_mtime > max(path.stat().st_mtime for path in sources):
            return
        done = subprocess.run(["cargo", "build", "--release", "--locked", "--manifest-path", CRATE / "Cargo.toml"],
                              env={**os.environ, "CARGO_TARGET_DIR": str(TARGET)},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode:
            raise HarnessError(f"cannot build {CRATE.name}: {done.stderr.decode()[-800:]}")

    def start(self, site):
        folder = site.scratch("quic")
        self.certificate, key = folder / "certificate.pem", folder / "key.pem"
        call("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", "/CN=beta", "-addext", "subjectAltName=DNS:beta", "-addext", "basicConstraints=critical,CA:FALSE",
             "-keyout", str(key), "-out", str(self.certificate))
        site.serve([PROGRAM, "serve", f"{site.address}:{self.port}", self.certificate, key, self.control],
                   self.port, udp=True)

    def command(self, site, job):
        return [PROGRAM, "send", f"{site.address}:{self.port}", self.certificate, job.source, job.target, self.control]
