"""The commands `failover`: which machine of a pair serves, and whether its standby may take over.

They read the witness's object, and change no more of it than whether a take-over is paused.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from sparkstore.cli.output import fields, json_lines, print_lines
from sparkstore.cli.parsing import command, group
from sparkstore.errors import InvalidRequest

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.witness.holder import Holder

_ROOT = (("root", "folder of the root of either machine"),)


def add(subparsers: Subparsers) -> None:
    """Add the commands `failover status`, `pause` and `resume` to the command line."""
    commands = group(subparsers, "failover", "two machines of which one serves")
    command(
        commands,
        show_failover,
        "show which machine serves, and whether its standby is in step",
        "Asks the witness of the root, so it answers on either machine, whether they run or not.\n"
        "Exit code 1 if no standby could take over now.\n\nexample:\n"
        "  sparkstore failover status ROOT",
        positional=_ROOT,
        name="status",
    )
    for name, run, summary in (
        ("pause", pause_failover, "let no standby take over, until `resume`"),
        ("resume", resume_failover, "let a standby take over again"),
    ):
        example = (
            f"As before an upgrade of both machines.\n\nexample:\n  sparkstore failover {name} ROOT"
        )
        command(commands, run, summary, example, positional=_ROOT, name=name)


def show_failover(arguments: Namespace) -> int:
    """Show who serves, by the witness; exit code 1 if nobody could take over."""
    from sparkstore.witness.turn import sight

    sighted = sight(_witness(arguments))
    if sighted is None:
        raise InvalidRequest("the witness has no object: no machine of this pair has served yet")
    return _show(arguments, sighted[0])


def pause_failover(arguments: Namespace) -> int:
    """Let no standby take over."""
    return _pause(arguments, is_paused=True)


def resume_failover(arguments: Namespace) -> int:
    """Let a standby take over again."""
    return _pause(arguments, is_paused=False)


def _pause(arguments: Namespace, *, is_paused: bool) -> int:
    from sparkstore.witness.turn import pause

    _show(arguments, pause(_witness(arguments), is_paused=is_paused))
    return 0


def _witness(arguments: Namespace) -> Any:
    from sparkstore.tables.root import open_root
    from sparkstore.witness.place import witness_at

    root = open_root(arguments.root)
    if not root.identity.witness:
        message = f"{root.path} has no witness: nothing takes over by itself (docs/failover.md)"
        raise InvalidRequest(message)
    return witness_at(root.identity.witness)


def _show(arguments: Namespace, holder: Holder) -> int:
    row = {
        "serves": "" if holder.is_closed else holder.where,
        "served_last": holder.where,
        "root_id": holder.root_id,
        "generation": holder.generation,
        "standby_in_step": holder.in_step,
        "paused": holder.is_paused,
        "lease_s": holder.lease_s,
    }
    print_lines(json_lines([row]) if arguments.json else fields(row))
    return 0 if holder.in_step and not holder.is_paused else 1
