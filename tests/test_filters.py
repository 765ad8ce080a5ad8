"""Compares what filter rules choose with the real rsync on the same tree with the same arguments: the paths
must be equal."""

import os
import pathlib
import re
import subprocess

import pytest

from harness.product import binary

FILES = """a a.o a.c ab abc b.txt foo bar .hidden [x] star*y back\\slash sp\x20ace -minus #hash +plus !bang
src/a.c src/a.o src/foo src/b.txt src/foo.c src/lib/a.c src/lib/foo src/lib/deep/foo src/lib/deep/x.o src/lib/deep/y.txt
foo.d/foo foo.d/bar foo.d/src/foo foo.d/src/lib/foo foo.d/.hidden
x/y/z/w x/y/z/foo x/foo/y x/a/b/c x/b/c x/abc/def x/ab/cd x/y.c/y.c x/file1 x/file2 x/file10 x/fileA
build/out build/src/foo keep/build/out tmp/~backup tmp/a~ tmp/cache/1 tmp/cache/2 tmp/Cache/3
UPPER/File.TXT dots/..a dots/...b deep/deep/deep/deep/end é/ü.txt""".replace("\n", " ").split(" ")
EMPTY = ["empty", "x/empty", "src/lib/deep/nothing"]

# One case a line: arguments as a shell would take them. A name in capitals with a dollar sign is a file made below.
CASES = r"""
--exclude=foo
--exclude=/foo
--exclude=foo/
--exclude=/foo/
--exclude=src
--exclude=/src/
--exclude=src/foo
--exclude=/src/foo
--exclude=lib/foo
--exclude=lib/deep/
--exclude=*.o
--exclude=/*.o
--exclude=src/*.o
--exclude=/src/*
--exclude=src/*
--exclude=*/foo
--exclude=/*/foo
--exclude=/*/*/foo
--exclude=x/*/c
--exclude=**/foo
--exclude=/**/foo
--exclude=**foo
--exclude=foo**
--exclude=src/**
--exclude=/src/**
--exclude=src/**/foo
--exclude=/src/**/foo
--exclude=x/**/c
--exclude=x**c
--exclude=a**c
--exclude=src/***
--exclude=/src/***
--exclude=lib/***
--exclude=***
--exclude=**
--exclude=*
--exclude=*/
--exclude=/*/
--exclude=**/
--exclude=file?
--exclude=file[12]
--exclude=file[!12]
--exclude=file[^1]
--exclude=file[0-9]
--exclude=file[[:digit:]]
--exclude=file[[:alpha:]]*
--exclude=[[:upper:]]*
--exclude=[[:nonsense:]]
--exclude=[ab]
--exclude=[]a]
--exclude=[a-]*
--exclude=[a
--exclude=\[x]
--exclude=[[]x]
--exclude=star\*y
--exclude=star*y
--exclude=star[*]y
--exclude=back\slash
--exclude=back\\slash
--exclude=back\\sl*
--exclude=sp?ace
'--exclude=sp ace'
--exclude=.*
--exclude=.hid*
--exclude=?hidden
--exclude=dots/..*
--exclude=...b
--exclude=*~
--exclude=~*
--exclude=?
--exclude=??
--exclude=é
--exclude=é/ü*
--exclude=[é]
--exclude=file.txt
--exclude=/
--exclude=//
--exclude=foo//
--exclude=./foo
--exclude=x/../foo
--exclude=
--exclude=/x/y/z/
--exclude=y/z
--exclude=/y/z
--exclude=y/z/*
--exclude=x/y*/
--exclude=y.c
--exclude=y.c/
--exclude=y.c/y.c
--exclude=deep/deep
--exclude=/deep/deep
--exclude=deep/**/end
--exclude=deep/*/deep
--exclude=/deep/*/end
--include=*.c --exclude=*
--include=*/ --include=*.c --exclude=*
--include=*/ --include=foo --exclude=*
--include=/src/ --include=/src/*.c --exclude=*
--include=/src --exclude=/*
--include=/src/*** --exclude=*
--include=src/** --exclude=*
--include=/src/lib/*** --exclude=/src/* --exclude=/[a-r]*
--include=a.o --exclude=*.o
--exclude=*.o --include=a.o
--include=x/ --include=x/y/ --include=x/y/** --exclude=*
'--exclude=- foo'
'--exclude=+ foo' --exclude=*
'--include=- foo'
'--exclude=-foo' --exclude=-minus
'--exclude=- -minus'
--exclude=#hash
--exclude=!bang
--exclude=!
--exclude=foo --exclude=! --exclude=bar
'--exclude=+plus'
'--filter=- foo'
'--filter=+ foo' '--filter=- *'
'--filter=-_foo'
'--filter=- foo/' '--filter=exclude *.o'
'--filter=include */' '--filter=include_*.c' '--filter=exclude *'
'--filter=exclude,! */'
'--filter=-! */'
'--filter=-! src/***'
'--filter=-!,x foo'
'--filter=+! *.c' '--filter=- foo*'
'--filter=- foo' '--filter=!' '--filter=- bar'
'--filter=- foo' --filter=clear '--filter=- bar'
'--filter=hide foo'
'--filter=H *.o' '--filter=show foo'
'--filter=S foo' '--filter=H *'
'--filter=protect foo'
'--filter=P *' '--filter=- bar'
'--filter=risk foo' '--filter=- foo'
'--filter=-s foo'
'--filter=-r foo'
'--filter=-sr foo'
'--filter=+s foo' '--filter=- foo'
'--filter=+r foo' '--filter=- foo'
'--filter=-  foo'
'--filter=- foo '
--exclude-from=$PATTERNS
--include-from=$INCLUDES --exclude=*
--exclude=a --exclude-from=$CLEARS
'--filter=merge $RULES'
'--filter=. $RULES' --exclude=*.c
'--filter=.- $PLAIN'
'--filter=.+ $PLAIN' --exclude=*
'--filter=merge,- $PLAIN'
'--filter=. $NESTED'
--from0 --exclude-from=$NUL
--max-size=3
--min-size=4
--min-size=2 --max-size=3 --exclude=*.o
--max-size=0
""".strip().splitlines()

RULE_FILES = {
    "PATTERNS": b"# a comment\n; another\n\n*.o\n/foo\n- src/lib/\n+ a.c\n*.c\n #not a comment\ntmp/\r\nbar",
    "INCLUDES": b"*/\n*.c\n- foo\nb*\n",
    "CLEARS": b"foo\n!\n*.o\n",
    "RULES": b"+ /src/foo\n- foo\n# comment\n\nexclude /x/y\nhide *.o",
    "PLAIN": b"+ foo\n*.o\n- bar\n!\nsrc/\nfoo\n*/\n",
    "NESTED": b"- bar\n. $RULES\n- *.txt\n",
    "NUL": b"sp ace\0foo\n\0#hash\0- *.o\0",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("filters")
    source = root / "source"
    for number, name in enumerate(FILES):
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (number % 6))
    for name in EMPTY:
        (source / name).mkdir(parents=True)
    (source / "link").symlink_to("foo")
    (source / "x/foo.lnk").symlink_to("/nowhere")
    for name, text in RULE_FILES.items():
        (root / name).write_bytes(text.replace(b"$RULES", os.fsencode(root / "RULES")))
    return root


def arguments_of(case, root):
    words = re.findall(r"'[^']*'|\S+", case)
    words = [word[1:-1] if word.startswith("'") else word for word in words]
    return [re.sub(r"\$([A-Z]+)", lambda match: str(root / match.group(1)), word) for word in words]


def chosen_by_rsync(source, arguments, scratch):
    """The paths that rsync would send, or None if it refuses the arguments."""
    argv = ["rsync", "-a", "-n", "--no-motd", "--out-format=%n", *arguments, f"{source}", f"{scratch}/"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "LC_ALL": "C.UTF-8"})
    if done.returncode == 1:
        return None
    assert done.returncode == 0, done.stderr
    # rsync shows bytes that are not printable as \#ooo, and a backslash in the same way where it could be
    # mistaken for one.
    unescape = re.compile(rb"\\#([0-7]{3})")
    lines = [unescape.sub(lambda match: bytes([int(match.group(1), 8)]), line) for line in done.stdout.splitlines()]
    return {line.split(b" -> ")[0].rstrip(b"/") for line in lines} - {b".", b""}


def chosen_by_farhaul(source, arguments, target):
    """The paths that a copy makes, or None if the arguments are refused."""
    argv = [binary(), "cp", "-q", *arguments, f"{source}", f"{target}/"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode == 2:
        assert done.stderr.count(b"\n") == 1 and done.stderr.startswith(b"error: "), done.stderr
        return None
    assert done.returncode == 0, done.stderr
    base = os.fsencode(target)
    found = set()
    for folder, folders, names in os.walk(base):
        found |= {os.path.relpath(os.path.join(folder, name), base) for name in folders + names}
    return found


@pytest.mark.parametrize("content", [True, False], ids=["content", "directory"])
@pytest.mark.parametrize("case", CASES)
def test_the_same_paths_as_rsync(tree, tmp_path, case, content):
    arguments = arguments_of(case, tree)
    source = f"{tree}/source{'/' if content else ''}"
    expected = chosen_by_rsync(source, arguments, tmp_path)
    assert chosen_by_farhaul(source, arguments, tmp_path / "copy") == expected


def test_there_are_enough_cases_and_they_differ(tree, tmp_path):
    outcomes = {frozenset(chosen_by_rsync(f"{tree}/source/", arguments_of(case, tree), tmp_path) or ()) for case in CASES}
    assert len(CASES) >= 60 and len(outcomes) >= 60, (len(CASES), len(outcomes))


@pytest.mark.parametrize("rule", ["foo", "- ", "-a foo", "!x", "-", "merge", ". /nonexistent", "dir-merge .rules",
                                  ": .rules", "-/ foo", "-x foo", ".w x"])
def test_a_rule_that_makes_no_sense_is_one_line_and_wrong_usage(tree, tmp_path, rule):
    assert chosen_by_farhaul(tree / "source", [f"--filter={rule}"], tmp_path / "copy") is None
    assert not pathlib.Path(tmp_path / "copy").exists()
