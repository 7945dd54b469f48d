"""The project's tracked files and what is in them, for the tests beside this file."""

from __future__ import annotations

import ast
import io
import subprocess
import tokenize
from functools import cache
from pathlib import Path

TOP = Path(__file__).parents[2]
GENERATED = ("broker_shim/amqp_0_10/", "broker_shim/amqp_1_0/")


@cache
def tracked_files() -> list[Path]:
    """Files that git tracks and that are there, relative to the top."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=TOP, capture_output=True, text=True, check=True
    )
    names = [name for name in listed.stdout.split("\0") if name]
    return [Path(name) for name in names if (TOP / name).is_file()]


@cache
def modules() -> list[Path]:
    """Python files that people write, of the packages, jobs and tests."""
    return [
        path
        for path in tracked_files()
        if path.suffix == ".py" and not path.as_posix().startswith(GENERATED)
    ]


def is_product(path: Path) -> bool:
    """Tell a file that users run from one that only tests or measures it."""
    return path.parts[0] != "tests" and path.parts[:2] != ("jobs", "benchmarks")


@cache
def tree(path: Path) -> ast.Module:
    """A module's syntax tree."""
    return ast.parse((TOP / path).read_text(), str(path))


def line_count_without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, less those of the docstring."""
    assert node.end_lineno is not None
    lines = node.end_lineno - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        docstring = node.body[0]
        assert docstring.end_lineno is not None
        lines -= docstring.end_lineno - docstring.lineno + 1
    return lines


_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_line_count(text: str) -> int:
    """Lines of a module that hold code: docstrings, comments and blank lines do not count."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and ast.get_docstring(node, clean=False):
            docstring = node.body[0]
            assert docstring.end_lineno is not None
            lines -= set(range(docstring.lineno, docstring.end_lineno + 1))
    return len(lines)
