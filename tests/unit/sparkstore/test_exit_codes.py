"""The one table of exit codes: in the code, in the documents and in what systemd is told."""

from __future__ import annotations

import errno
import re

import pytest

from sparkstore.errors import (
    Closed,
    CorruptData,
    Ended,
    Fenced,
    InvalidRequest,
    Locked,
    StoreError,
    Unavailable,
)
from sparkstore.exit_codes import IN_VAIN, ExitCode, exit_code_of
from tests.support.checkout import CHECKOUT

UNIT = CHECKOUT / "conf" / "systemd" / "sparkstore@.service"


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (InvalidRequest("no such queue"), 2),
        (Fenced("a newer writer"), 3),
        (CorruptData("a gap"), 4),
        (Locked("by another"), 75),
        (Unavailable("no answer"), 75),
        (Ended("the disk failed"), 1),
        (Closed("closed"), 1),
        (StoreError("anything else"), 1),
        (TimeoutError("no answer"), 75),
        (OSError(errno.ENOSPC, "no room"), 75),
        (OSError(errno.EDQUOT, "no room for you"), 75),
        (OSError(errno.EADDRINUSE, "in use"), 2),
        (OSError(errno.EADDRNOTAVAIL, "not here"), 2),
        (OSError(errno.EIO, "the disk failed"), 1),
        (PermissionError(errno.EACCES, "not yours"), 1),
        (OSError("without a number"), 1),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else None,
)
def test_an_error_has_a_code(reason: Exception, code: int) -> None:
    assert exit_code_of(reason) == code


def test_a_fenced_member_reads_the_root_anew_at_its_next_start() -> None:
    assert exit_code_of(Fenced("put back"), is_member=True) not in IN_VAIN
    assert exit_code_of(InvalidRequest("no name"), is_member=True) == ExitCode.WRONG_CALL


def test_the_documents_have_the_table() -> None:
    text = (CHECKOUT / "docs" / "commands.md").read_text()
    table = text.split("Exit codes, of every command:")[1].split("\n\n")[1]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines()]
    shown = {int(code): (name, again) for code, name, _, again in rows[2:]}
    assert {code: name for code, (name, _) in shown.items()} == {
        each.value: each.name.lower().replace("_", " ") for each in ExitCode
    }
    assert {code for code, (_, again) in shown.items() if again == "in vain"} == {*IN_VAIN}


def test_systemd_does_not_start_again_what_would_end_alike() -> None:
    (told,) = re.findall(r"^RestartPreventExitStatus=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert [int(code) for code in told.split()] == sorted(IN_VAIN)
