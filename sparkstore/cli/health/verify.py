"""The command `verify`: every invariant of a root, by name."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from sparkstore.cli.notes import note_unreplayed
from sparkstore.cli.output import json_lines, print_lines, printable
from sparkstore.cli.parsing import command
from sparkstore.cli.target import opened_root

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers


def add(subparsers: Subparsers) -> None:
    """Add the command `verify` to the command line."""
    parser = command(
        subparsers,
        verify,
        "check every invariant of a root",
        "Needs no Java and changes nothing. Exit code 0: all hold; 1: one is broken, and its line\n"
        "says what to do. Check a root that nobody writes: a running store may show half a\n"
        "commit. Records in a crashed store's write-ahead log break nothing; they are reported\n"
        "(log_can_be_replayed, and on standard error). A damaged log is broken.\n\n"
        "example:\n  sparkstore verify --deep ROOT",
    )
    parser.add_argument(
        "--deep", action="store_true", help="also read the content of every message"
    )


def verify(arguments: Namespace) -> int:
    """Print every invariant by name; 1 if one does not hold."""
    with opened_root(arguments.root, whole=True) as root:
        from sparkstore.reconcile.invariants import check

        findings = check(root, deep=arguments.deep)
        if arguments.json:
            print_lines(json_lines(map(asdict, findings)))
        else:
            width = max(len(finding.name) for finding in findings)
            for finding in findings:
                result = "ok    " if finding.holds else "BROKEN"
                print(f"{result}  {finding.name:{width}}  {printable(finding.evidence)}")
        note_unreplayed(root)
    return 0 if all(finding.holds for finding in findings) else 1
