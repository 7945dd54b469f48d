"""Judge what `sparkstore doctor` finds, a line each: what it is, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Status = Literal["ok", "warn", "fail"]

_OF_A_MACHINE = {"btrfs", "ext2", "ext3", "ext4", "f2fs", "xfs", "zfs"}
_IN_MEMORY = {"ramfs", "tmpfs"}
_OF_AN_IMAGE = {"aufs", "overlay", "overlayfs"}
_SLOW_SYNC_MS, _NO_SYNC_MS = 20.0, 0.01
_FEW_FILES = 4096


class Diagnosis(NamedTuple):
    """A line of the doctor: one thing, and how it was found.

    Attributes:
        name: The thing that was looked at.
        status: `warn` costs speed or comfort, `fail` data or service.
        found: What it is now.
        advice: What to do; empty if nothing is to be done.
    """

    name: str
    status: Status
    found: str
    advice: str = ""


def worst(diagnoses: Iterable[Diagnosis]) -> Status:
    """Return the worst status of all lines, `ok` of none."""
    order: tuple[Status, ...] = ("ok", "warn", "fail")
    return max((diagnosis.status for diagnosis in diagnoses), key=order.index, default="ok")


def of_file_system(kind: str, place: str) -> Diagnosis:
    """Judge whether a file system keeps what fsync promised: those that do are listed.

    Args:
        kind: Its type, as the kernel's mount table has it.
        place: The folder that is on it.
    """
    name, state = "file system", f"{kind} at {place}"
    if kind in _OF_A_MACHINE:
        return Diagnosis(name, "ok", state)
    if kind in _IN_MEMORY:
        lost = "it is memory, and lost with the machine: put the root on a disk"
        return Diagnosis(name, "fail", state, lost)
    if kind in _OF_AN_IMAGE:
        lost = "it is lost with the container: put the root on a volume"
        return Diagnosis(name, "fail", state, lost)
    text = "whether its fsync and flock are true is not known here: ask who runs it"
    return Diagnosis(name, "warn", state, text)


def of_sync_time(median_ms: float) -> Diagnosis:
    """Judge how long an append with fdatasync takes: each acknowledgement waits for one.

    Args:
        median_ms: The median of several, in milliseconds.
    """
    name, state = "fsync", f"{median_ms:.3f} ms for 4 KiB (median)"
    if median_ms < _NO_SYNC_MS:
        text = "no disk is so fast: something answers before it is written; see file system"
        return Diagnosis(name, "warn", state, text)
    if median_ms > _SLOW_SYNC_MS:
        text = "senders wait that long for each message: use a faster disk, or set wal_dir to one"
        return Diagnosis(name, "warn", state, text)
    return Diagnosis(name, "ok", state)


def of_open_files(soft: int) -> Diagnosis:
    """Judge how many files and sockets a process may have open; -1: as many as it wants."""
    name, state = "open files", "unlimited" if soft < 0 else f"{soft} for each process"
    if 0 <= soft < _FEW_FILES:
        text = "each connection takes one: ulimit -n 65536, or LimitNOFILE=65536 in the unit"
        return Diagnosis(name, "warn", state, text)
    return Diagnosis(name, "ok", state)


def of_room(free_bytes: int, total_bytes: int, least_free: int) -> Diagnosis:
    """Judge the room on a disk: below `least_free` senders are held back."""
    mib = 1 << 20
    state = f"{free_bytes // mib:,} of {total_bytes // mib:,} MiB free"
    if free_bytes < least_free:
        text = f"senders wait below {least_free // mib:,} MiB: free some, or run compact"
        return Diagnosis("free disk", "fail", state, text)
    if free_bytes < 4 * least_free:
        text = f"senders will wait below {least_free // mib:,} MiB: make room in time"
        return Diagnosis("free disk", "warn", state, text)
    return Diagnosis("free disk", "ok", state)


def of_standby(in_step: str, *, is_paused: bool) -> Diagnosis:
    """Judge whether a standby could take over now, by what the witness says.

    Args:
        in_step: The root of the standby that may; empty: none may.
        is_paused: A person wants no take-over.
    """
    if not in_step:
        text = "a lost disk loses what is confirmed now: start the other machine, and ask"
        text += " sparkstore failover status ROOT"
        return Diagnosis("standby", "warn", "none is in step", text)
    if is_paused:
        text = "nobody takes over: sparkstore failover resume ROOT, when both are upgraded"
        return Diagnosis("standby", "warn", "in step, and take-overs are paused", text)
    return Diagnosis("standby", "ok", f"{in_step[:8]} is in step")


def of_version(package: str, installed: str | None, wanted: str) -> Diagnosis:
    """Judge the version of a package by what sparkstore asks for.

    Args:
        package: The name of the package.
        installed: The version that is installed; None: none is.
        wanted: Conditions with commas between, such as `<1.7,>=1.6.6`; empty: any will do.
    """
    if installed is None:
        text = f"pip install '{package}{wanted}'"
        return Diagnosis(package, "fail", "not installed", text)
    conditions = filter(None, map(str.strip, wanted.split(",")))
    if not all(_holds(_numbers(installed), condition) for condition in conditions):
        text = f"sparkstore is tested with {wanted}: pip install '{package}{wanted}'"
        return Diagnosis(package, "fail", installed, text)
    return Diagnosis(package, "ok", installed)


def _holds(installed: tuple[int, ...], condition: str) -> bool:
    operator = condition[: 2 if condition[1] == "=" else 1]
    wanted = _numbers(condition[len(operator) :])
    compared = installed[: len(wanted)] if operator == "==" else installed
    return {
        "==": compared == wanted,
        ">=": compared >= wanted,
        "<=": compared <= wanted,
        "<": compared < wanted,
        ">": compared > wanted,
    }.get(operator, True)


def _numbers(version: str) -> tuple[int, ...]:
    """Leading numbers of a version, without what follows them: `1.2rc1` is (1, 2)."""
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)
