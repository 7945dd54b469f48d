"""The commands `failover`: which machine of a pair serves, may its standby take over, and a switch.

Of a ROOT the broker that serves it is asked, else the witness: so they answer on either machine,
whether it runs or not. A switch is the business of the machine that serves.
"""

from __future__ import annotations

from argparse import Namespace
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sparkstore.cli.output import show_row
from sparkstore.cli.parsing import add_dry_run, check_code, command, group, is_dry
from sparkstore.cli.target import opened_broker, running_broker
from sparkstore.errors import InvalidRequest, StoreError, Unavailable

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers
    from sparkstore.witness.place import WitnessPlace

_ROOT = (("root", "folder of the root of either machine"),)
_NEVER = "the witness has no object: no machine of this pair has served yet"


def add(subparsers: Subparsers) -> None:
    """Add the commands `failover status`, `switch`, `pause` and `resume` to the command line."""
    commands = group(subparsers, "failover", "two machines of which one serves")
    command(
        commands,
        show_failover,
        "show which machine serves, and whether its standby is in step",
        "Asks the broker that serves the root, else its witness: so it answers on either machine.\n"
        "Only a broker knows the lag. Exit code 1 if no standby could take over now.\n\nexamples:\n"
        "  sparkstore failover status ROOT\n  sparkstore failover status --url https://broker.example:8161",
        positional=_ROOT,
        name="status",
        by_url=True,
    )
    parser = command(
        commands,
        switch_machines,
        "have the standby take over now, and make this machine its standby",
        "Asks the broker that serves: it answers what was sent before, and hands over. Clients\n"
        "connect to the other machine. Refused while no standby is in step, or while paused.\n\n"
        "examples:\n  sparkstore failover switch ROOT\n  sparkstore failover switch ROOT --dry-run",
        positional=_ROOT,
        name="switch",
        by_url=True,
    )
    add_dry_run(parser, "say whether it could be done now, and do nothing")
    for name, run, summary in (
        ("pause", pause_failover, "let no standby take over, until `resume`"),
        ("resume", resume_failover, "let a standby take over again"),
    ):
        example = (
            f"As before an upgrade of both machines.\n\nexample:\n  sparkstore failover {name} ROOT"
        )
        parser = command(commands, run, summary, example, positional=_ROOT, name=name, by_url=True)
        add_dry_run(parser, "say whether it would change anything")


def show_failover(arguments: Namespace) -> int:
    """Show who serves; exit code 1 if nobody could take over."""
    row = _status(arguments)
    show_row(arguments, row)
    return 0 if row["standby_in_step"] and not row["paused"] else 1


def switch_machines(arguments: Namespace) -> int:
    """Have the machine that serves hand over to its standby."""
    if arguments.url is None:
        _check_serves(arguments)
    with running_broker(arguments) as control:
        order = {"dry_run": is_dry(arguments)}
        answer = control.broker.ask("POST", "failover/switch", order)
    show_row(arguments, {"dry_run": answer["dry_run"], **answer["details"]})
    return check_code(arguments, answer["changed"])


def pause_failover(arguments: Namespace) -> int:
    """Let no standby take over."""
    return _pause(arguments, "pause", is_paused=True)


def resume_failover(arguments: Namespace) -> int:
    """Let a standby take over again."""
    return _pause(arguments, "resume", is_paused=False)


def _pause(arguments: Namespace, name: str, *, is_paused: bool) -> int:
    if arguments.url is not None:
        with opened_broker(arguments) as broker:
            order = {"dry_run": is_dry(arguments)}
            changes = broker.ask("POST", f"failover/{name}", order)["changed"]
            row = broker.ask("GET", "failover")
    else:
        from sparkstore.standby.status import status_row
        from sparkstore.witness.turn import pause, sight

        place = _witness(arguments)
        sighted = sight(place)
        if sighted is None:
            raise InvalidRequest(_NEVER)
        holder, changes = sighted[0], sighted[0].is_paused != is_paused
        if changes and not is_dry(arguments):
            holder = pause(place, is_paused=is_paused)
        row = status_row(holder)
    show_row(arguments, row)
    return check_code(arguments, changes)


def _status(arguments: Namespace) -> dict[str, Any]:
    """Return the row of the broker, or of the witness."""
    row: dict[str, Any]
    if arguments.url is not None:
        with opened_broker(arguments) as broker:
            row = broker.ask("GET", "failover")
            return row
    with suppress(StoreError), running_broker(arguments) as control:
        row = control.broker.ask("GET", "failover")
        return row
    # Nobody serves this root here, or nobody comes round.
    from sparkstore.standby.status import status_row
    from sparkstore.witness.turn import sight

    sighted = sight(_witness(arguments))
    if sighted is None:
        raise InvalidRequest(_NEVER)
    return status_row(sighted[0])


def _check_serves(arguments: Namespace) -> None:
    """Say where to ask, if the machine of this root does not serve.

    Raises:
        InvalidRequest: It is the standby, or there is no witness.
        Unavailable: No broker runs there.
    """
    from sparkstore.control.client import connect_to
    from sparkstore.tables.root import open_root
    from sparkstore.witness.turn import sight

    served = connect_to(arguments.root)
    if served is not None:
        served.close()
        return
    sighted = sight(_witness(arguments))
    own = open_root(arguments.root).identity
    if sighted is not None and sighted[0].root_id != own.root_id:
        message = f"{arguments.root} is the standby: {sighted[0].where} serves, so order it there"
        raise InvalidRequest(f"{message}, or by its --url")
    raise Unavailable(f"no broker serves {arguments.root}: there is nothing to hand over")


def _witness(arguments: Namespace) -> WitnessPlace:
    from sparkstore.tables.root import open_root
    from sparkstore.witness.place import witness_at

    root = open_root(arguments.root)
    if not root.identity.witness:
        message = f"{root.path} has no witness: nothing takes over by itself (docs/failover.md)"
        raise InvalidRequest(message)
    return witness_at(root.identity.witness)
