"""Modules and functions stay small: docstrings and comments may grow, code may not."""

from __future__ import annotations

import ast

from tests.architecture.source import (
    TOP,
    code_line_count,
    is_product,
    line_count_without_docstring,
    modules,
    tracked_files,
    tree,
)

MAX_MODULE_LINES = 300
MAX_FUNCTION_LINES = 40
LONGER = {
    # One object under one lock: its ways to an end cannot be argued in two halves.
    "broker_shim/store/remote/service_connection.py": 345,
    # One connection: its phases, its frames and its end stand in one order.
    "broker_shim/listener_0_10/sessions/connection.py": 380,
    "broker_shim/listener_1_0/connections/connection.py": 320,
    # The steps of a start are in one order, which is what makes each of them safe.
    "sparkstore/log/start.py": 310,
    # What every record of a member means is one table of decisions.
    "broker_shim/service/decisions/decisions.py": 320,
}


def test_a_module_has_at_most_300_lines_of_code() -> None:
    # Not those of tests: one interface has one contract file, however long.
    written = (path for path in modules() if is_product(path))
    lengths = {str(path): code_line_count((TOP / path).read_text()) for path in written}
    too_long = {p: n for p, n in lengths.items() if n > LONGER.get(p, MAX_MODULE_LINES)}
    assert too_long == {}


def test_docstrings_comments_and_blank_lines_are_no_lines_of_code() -> None:
    lines = ['"""One.', "", 'Two."""', "# Why.", 'x = """a', 'b"""', "", "def f():"]
    lines += ['    """Three."""', "    return 1  # because"]
    assert code_line_count("\n".join(lines)) == 4


def test_a_file_of_another_language_has_at_most_300_lines() -> None:
    others = {".java", ".js", ".go"}
    written = [path for path in tracked_files() if path.suffix in others]
    assert {path.suffix for path in written} == others
    lengths = {str(path): len((TOP / path).read_text().splitlines()) for path in written}
    assert {path: n for path, n in lengths.items() if n > MAX_MODULE_LINES} == {}


def test_a_function_has_at_most_40_lines_without_its_docstring() -> None:
    lengths = {
        f"{path}:{node.name}": line_count_without_docstring(node)
        for path in modules()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: n for name, n in lengths.items() if n > MAX_FUNCTION_LINES} == {}


def test_a_docstring_does_not_count_as_lines_of_its_function() -> None:
    function = ast.parse('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n').body[0]
    assert isinstance(function, ast.FunctionDef)
    assert line_count_without_docstring(function) == 2
