"""The product on older kernels and in containers: other tests run again below filters that refuse what these lack.

`pytest tests --kernel KIND` does the same with tests of one's choice; `harness/old_kernel.py` has the kinds.
"""

import os
import subprocess
import sys

import pytest

from harness import old_kernel, product

#: One test of each part that uses a call which came after Linux 4.18.
SHORT = (
    "test_borders.py::test_a_copy_uses_kept_links_too",
    "test_borders.py::test_a_daemon_follows_a_link_only_beneath_its_root",
    "test_leftovers.py::test_clean_removes_what_is_old_and_nobody_has",
    "test_verify_hooks.py::test_several_files_go_to_one_run_of_a_program_that_answers_in_lines",
    "test_watch.py::test_a_folder_is_watched_and_shown",
)
#: The files with tests of such parts.
LONG = (
    "test_borders.py", "test_confined_service.py", "test_copy.py", "test_leftovers.py", "test_metadata.py",
    "test_names.py", "test_own_files.py", "test_resume.py", "test_service.py", "test_streams.py", "test_sync.py",
    "test_udp_blocked.py", "test_verify_hooks.py", "test_watch.py",
)


#: The lab makes namespaces, which the filter of a container refuses.
LAB = {"4.18": ("test_lab.py",), "4.18-eperm": ("test_lab.py",), "container": ()}


def run(kind, tests, seconds):
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--kernel", kind, *tests]
    inner = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(argv, env=inner, cwd=product.ROOT / "tests", stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("kind", old_kernel.KINDS)
def test_what_uses_later_calls_works_without_them(kind):
    run(kind, SHORT, 300)


@pytest.mark.slow
@pytest.mark.parametrize("kind", old_kernel.KINDS)
def test_everything_works_without_later_calls(kind):
    run(kind, (*LONG, *LAB[kind]), 3600)


def test_the_filters_refuse():
    """A filter that refuses nothing would make the others assert nothing."""
    look = "import ctypes, errno; c = ctypes.CDLL(None, use_errno=True); c.syscall(437, -1, 0, 0, 0); " \
           "print(errno.errorcode[ctypes.get_errno()])"
    for kind, wanted in (("4.18", "ENOSYS"), ("4.18-eperm", "EPERM")):
        done = subprocess.run([*old_kernel.prefix(kind), sys.executable, "-c", look], capture_output=True, text=True)
        assert done.stdout.strip() == wanted, (kind, done)
    done = subprocess.run([*old_kernel.prefix("container"), "unshare", "--mount", "true"], capture_output=True, text=True)
    assert "Operation not permitted" in done.stderr, done
