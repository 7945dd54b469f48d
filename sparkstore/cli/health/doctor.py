"""The command `doctor`: look at a machine and a root, and say what to do, a line each."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkstore.cli.output import json_lines, print_lines, printable
from sparkstore.cli.parsing import ROOT, add_config, command
from sparkstore.exit_codes import ExitCode

if TYPE_CHECKING:
    from sparkstore.cli.health.diagnosis import Diagnosis
    from sparkstore.cli.parsing import Subparsers


def add(subparsers: Subparsers) -> None:
    """Add the command `doctor` to the command line."""
    parser = command(
        subparsers,
        doctor,
        "look at this machine and a root: disk, clock, limits, owner, versions, heals",
        "Each line is ok, warn or fail, and says what to do. It changes nothing, but writes a\n"
        "small file to time the disk's fsync, and removes it. Run it as the broker's user. In a\n"
        "bucket it tries conditional puts. Exit code 1: something has failed; 0 else, also with\n"
        "warnings. It may run beside a store.\n\n"
        "examples:\n  sparkstore doctor                         the machine alone\n"
        "  sparkstore doctor /var/lib/queues         and a root, or where one is to be\n"
        "  sparkstore doctor --json ROOT | jq 'select(.status != \"ok\")'",
        positional=(),
    )
    parser.add_argument("root", nargs="?", help=ROOT[1])
    add_config(parser)


def doctor(arguments: Namespace) -> int:
    """Look at the machine, and at the root if one is named."""
    from sparkstore.cli.health.machine_health import of_machine
    from sparkstore.cli.health.root_health import of_root
    from sparkstore.config import StoreConfig, read_config

    diagnoses = list(of_machine())
    if arguments.root is not None:
        config = read_config(arguments.config) if arguments.config else StoreConfig()
        diagnoses += of_root(arguments.root, config)
    return show_diagnoses(arguments, diagnoses)


def show_diagnoses(arguments: Namespace, diagnoses: Sequence[Diagnosis]) -> int:
    """Print diagnoses, at least one; the exit code that the worst of them asks for."""
    from sparkstore.cli.health.diagnosis import worst

    if arguments.json:
        print_lines(json_lines(diagnosis._asdict() for diagnosis in diagnoses))
    else:
        width = max(len(diagnosis.name) for diagnosis in diagnoses)
        print_lines(_diagnosis_line(diagnosis, width) for diagnosis in diagnoses)
    return ExitCode.ERROR if worst(diagnoses) == "fail" else ExitCode.DONE


def _diagnosis_line(diagnosis: Diagnosis, width: int) -> str:
    """Write a diagnosis as a line for people; names are padded to a width."""
    advice = f": {diagnosis.advice}" if diagnosis.advice else ""
    return f"{diagnosis.status:4}  {diagnosis.name:{width}}  {printable(diagnosis.found + advice)}"
