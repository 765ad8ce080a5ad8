"""Which files of a crate import which, and where they import one another in a circle.

A file uses another one if a path in it leads there: in a `use` line or in the code, from `crate`, `super`, `self` or a
module that the file declares. A name that a module only passes on (`pub use`) leads to the file that has it. Tests
do not count, nor do comments and strings.
"""

import pathlib
import re

#: A path in the code that begins in the crate: `crate::`, `super::`, `self::`.
PATH = re.compile(r"\b((?:crate|self|super)(?:::\w+)+)")
USE = re.compile(r"^\s*(?P<public>pub(?:\([^)]*\))?\s+)?use\s+(?P<tree>[^;]+);", re.M)
CHILD = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", re.M)
#: What is cut out before a file is read: comments, strings, and the module of tests at the end.
NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"", re.S)
TESTS = re.compile(r"^#\[cfg\(test\)\]\n(?:pub(?:\([^)]*\))?\s+)?mod \w+ \{.*?^\}", re.M | re.S)


def leaves(tree: str) -> list[str]:
    """The paths of a `use` tree: `a::{b, c::d}` has `a::b` and `a::c::d`."""
    tree = tree.strip()
    head, brace, rest = tree.partition("{")
    if not brace:
        return [re.sub(r"\s+as\s+\w+$", "", tree).replace(" ", "")] if tree else []
    parts, depth, begin = [], 0, 0
    inner = rest[: rest.rindex("}")]
    for at, letter in enumerate(inner):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            parts.append(inner[begin:at])
            begin = at + 1
    parts.append(inner[begin:])
    found = [head.strip() + leaf for part in parts for leaf in leaves(part)]
    return [path.removesuffix("::self") for path in found]


class Crate:
    """The modules of a crate, by their paths: `("flow_thread", "send")`; the crate's own is `()`."""

    def __init__(self, source: pathlib.Path):
        self.files = {}
        for path in sorted(source.rglob("*.rs")):
            parts = path.relative_to(source).with_suffix("").parts
            if "tests" in parts:
                continue
            self.files[() if parts == ("lib",) else parts[:-1] if parts[-1] == "mod" else parts] = path
        self.code = {module: TESTS.sub("", NO_CODE.sub("", path.read_text())) for module, path in self.files.items()}
        self.children = {module: set(CHILD.findall(code)) for module, code in self.code.items()}
        self.passed_on = {module: dict(self.names_passed_on(module)) for module in self.files}

    def absolute(self, module: tuple, path: str) -> tuple | None:
        """The path from the crate's root, or `None` if it leads to another crate."""
        parts = path.split("::")
        if parts[0] == "crate":
            return tuple(parts[1:])
        if parts[0] in ("self", "super"):
            base = module
            while parts and parts[0] in ("self", "super"):
                base = base[:-1] if parts.pop(0) == "super" else base
            return base + tuple(parts)
        return module + tuple(parts) if parts[0] in self.children[module] else None

    def names_passed_on(self, module: tuple):
        for use in USE.finditer(self.code[module]):
            if use["public"]:
                for leaf in leaves(use["tree"]):
                    target = self.absolute(module, leaf)
                    if target:
                        yield target[-1], target

    def file_of(self, path: tuple) -> tuple:
        """The module in which what the path names is written."""
        for _ in range(8):
            module = next(path[:end] for end in range(len(path), -1, -1) if path[:end] in self.files)
            name = path[len(module) : len(module) + 1]
            onward = self.passed_on[module].get(name[0]) if name else None
            if onward is None or onward == path:
                return module
            path = onward + path[len(module) + 1 :]
        return module

    def uses(self, module: tuple) -> set[tuple]:
        code = self.code[module]
        # A module that passes names on does not use them.
        trees = [use["tree"] for use in USE.finditer(code) if not use["public"]]
        paths = [leaf for tree in trees for leaf in leaves(tree)] + PATH.findall(USE.sub("", code))
        found = (self.absolute(module, path) for path in paths)
        return {self.file_of(path) for path in found if path is not None} - {module}

    def arrows(self) -> dict[tuple, set[tuple]]:
        return {module: self.uses(module) for module in self.files}

    def name(self, module: tuple) -> str:
        return "::".join(module) or "lib"


def circles(arrows: dict) -> list[list]:
    """The sets of nodes that reach one another, each of more than one (Tarjan's)."""
    order, low, on, stack, found = {}, {}, set(), [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        on.add(node)
        for other in sorted(arrows.get(node, ())):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            circle = []
            while not circle or circle[-1] != node:
                circle.append(stack.pop())
                on.discard(circle[-1])
            if len(circle) > 1:
                found.append(sorted(circle))

    for node in sorted(arrows):
        if node not in order:
            visit(node)
    return found
