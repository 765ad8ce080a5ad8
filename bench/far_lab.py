"""A lab with files in memory at its far end, and the servers that others read such files from: nginx and XRootD."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

# It also puts the harness of the tests into the path.
import ground  # noqa: F401

from harness import lab, trees

HTTP_PORT, XROOTD_PORT = 8080, 1094


class Lab(contextlib.AbstractContextManager):
    """A lab whose folder is in memory, and the processes in it."""

    def __init__(self, *link):
        self.home = tempfile.TemporaryDirectory(prefix="farhaul-read-", dir="/dev/shm")
        self.folder = pathlib.Path(self.home.name)
        os.chmod(self.folder, 0o755)
        self.up = lab.Up("--home", str(self.folder), *link)
        self.options = self.up.environment["FARHAUL_LAB_CP_OPTIONS"].split()
        self.url = self.up.environment["FARHAUL_LAB_URL"]
        self.beta = self.up.environment["FARHAUL_LAB_B"]
        self.running = []

    def __exit__(self, *_):
        for process in self.running:
            process.terminate()
            process.wait()
        self.up.__exit__()
        self.home.cleanup()

    def start(self, host, *program, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        return subprocess.Popen(lab.command("exec", "--lab", self.up.name, host, "--", *program), **options)

    def run(self, *program, timeout=300, check=True):
        begin = time.monotonic()
        done = self.up.execute("a", *program, timeout=timeout, check=check)
        return done.stdout, time.monotonic() - begin

    def bench(self, path, *words):
        out, _ = self.run("farhaul", "bench", "read", "--json", "-q", *self.options, *words, self.url + path)
        return json.loads(out)["rows"][0]

    def file(self, name, size):
        trees.make_file(self.folder / name, size, seed=name)

    def received(self):
        """Bytes that have come over the link from host B, headers and all."""
        return self.up.stats()["links"][0]["backward"]["passed_bytes"]

    def serve(self, *program, port):
        self.running.append(self.start("b", *program, stdout=subprocess.DEVNULL))
        for _ in range(200):
            listening = self.up.execute("b", "ss", "-Hltn", f"sport = :{port}").stdout
            if listening:
                return
            if self.running[-1].poll() is not None:
                raise SystemExit(f"{program[0]}: {self.running[-1].stderr.read().decode()}")
            time.sleep(0.05)
        raise SystemExit(f"{program[0]} does not listen")

    def nginx(self):
        """Serves the folder by HTTP; returns its address."""
        conf = self.folder / "nginx.conf"
        conf.write_text(f"daemon off; user root; pid {self.folder}/pid; error_log /dev/null;\nevents {{}}\n"
                        f"http {{ access_log off; sendfile on; keepalive_requests 1000000;\n"
                        f"server {{ listen {HTTP_PORT}; root {self.folder}; }} }}\n")
        self.serve("nginx", "-c", str(conf), port=HTTP_PORT)
        return f"http://{self.beta}:{HTTP_PORT}/"

    def xrootd(self):
        """Serves the folder by XRootD; returns its address. Everything in it must be there, as it then belongs to nobody."""
        own = self.folder / "xrootd"
        own.mkdir()
        (own / "config").write_text(f"all.export {self.folder}\nall.adminpath {own}/admin\nall.pidpath {own}/pid\n"
                                    f"xrd.port {XROOTD_PORT}\nxrd.allow host *\n")
        for path in (own, *own.iterdir(), self.folder, *self.folder.rglob("*")):
            os.chmod(path, 0o777)
            shutil.chown(path, "nobody", "nogroup")
        self.serve("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "xrootd", "-c", str(own / "config"), "-l",
                   str(own / "log"), "-n", "bench", port=XROOTD_PORT)
        return f"root://{self.beta}:{XROOTD_PORT}/{self.folder}/"
