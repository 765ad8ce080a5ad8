"""Blocks from one program in C to another one, for `bench/bindings.py`."""

import pathlib
import subprocess
import tempfile

from ground import MIB

from harness.c_library import compile_program


class CBlocks:
    """Compiles the program once; each call is a run of two of them."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        source = pathlib.Path(__file__).with_name("blocks.c")
        self.program = compile_program(source, pathlib.Path(self.folder.name) / "blocks", "-O2")

    def __call__(self, hosts, size):
        """Bits of content a second."""
        key, count = hosts.alpha.home / ".config/farhaul/id_ed25519", size // MIB
        receiver = hosts.beta.start([self.program, "receive", "[::]:0", hosts.daemon.identity, hosts.daemon.keys],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        address, fingerprint = receiver.stdout.readline().decode().split()
        location = f"fh://beta:{address.rpartition(':')[2]}/blocks"
        sent = hosts.alpha.run([self.program, "send", location, key, fingerprint, str(count)], timeout=900, check=True)
        out, error = receiver.communicate(timeout=60)
        if not out or int(out.split()[-1]) != count * (count - 1) // 2:
            raise SystemExit(f"blocks are missing: {out.decode()}{error.decode()}")
        return float(sent.stdout.split()[0])
