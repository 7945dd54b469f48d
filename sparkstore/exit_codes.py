"""List the exit codes of commands: one table for people, cron and systemd.

A supervisor that starts a broker again wants to know whether that can help. After `IN_VAIN` it ends
alike until somebody has done something: `conf/systemd` names these codes, and a test compares them.
`docs/commands.md` shows the table.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Mapping
from enum import IntEnum

from sparkstore.errors import CorruptData, Fenced, InvalidRequest, Locked, NotNow, StoreError


class ExitCode(IntEnum):
    """Exit codes of commands; argparse and uncaught errors of Python use the same."""

    DONE = 0
    ERROR = 1
    WRONG_CALL = 2
    TAKEN_OVER = 3
    DAMAGED = 4
    WOULD_CHANGE = 10
    TRY_LATER = 75  # EX_TEMPFAIL of sysexits.h
    INTERRUPTED = 130  # as a shell has it of SIGINT


IN_VAIN = frozenset({ExitCode.WRONG_CALL, ExitCode.TAKEN_OVER, ExitCode.DAMAGED})
"""What another start with the same words would end with again."""

_OF_STORES: Mapping[type[StoreError], ExitCode] = {
    InvalidRequest: ExitCode.WRONG_CALL,
    Fenced: ExitCode.TAKEN_OVER,
    CorruptData: ExitCode.DAMAGED,
    Locked: ExitCode.TRY_LATER,
    NotNow: ExitCode.TRY_LATER,
}
_OF_THE_SYSTEM: Mapping[int | None, ExitCode] = {
    errno.ENOSPC: ExitCode.TRY_LATER,
    errno.EDQUOT: ExitCode.TRY_LATER,
    errno.EADDRINUSE: ExitCode.WRONG_CALL,
    errno.EADDRNOTAVAIL: ExitCode.WRONG_CALL,
}


def end_process(code: int) -> None:
    """End this process if a command of it has failed; return if it has not.

    Everything that was to be told or closed has been by now. Where a disk fails, threads of
    deltalake may panic at that moment; an interpreter that is taken apart around them dies of
    SIGSEGV, and a supervisor reads another code than that of the error.
    """
    if code:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):  # nobody reads on, or it was closed
                continue
        os._exit(code)


def exit_code_of(reason: Exception, *, is_member: bool = False) -> ExitCode:
    """Return the code of a command that an error has ended.

    A disk without room is to be tried later, as is what did not answer in time. A disk that failed
    (`Ended`) is an error: the next start finds out what there is. So it is with a fenced member of
    a store service, which reads anew at its start what the root has; a fenced store stays fenced.

    Args:
        reason: The error that ended the command.
        is_member: The command is a broker on the store of a service.
    """
    if is_member and isinstance(reason, Fenced):
        return ExitCode.ERROR
    if isinstance(reason, TimeoutError):
        return ExitCode.TRY_LATER
    if isinstance(reason, OSError):
        return _OF_THE_SYSTEM.get(reason.errno, ExitCode.ERROR)
    codes = (code for kind, code in _OF_STORES.items() if isinstance(reason, kind))
    return next(codes, ExitCode.ERROR)
