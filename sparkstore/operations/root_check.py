"""Judge figures of a root by thresholds, for a monitoring system: OK, WARNING or CRITICAL. Pure.

A threshold is `WARN`, `WARN:CRIT` or `:CRIT`; a figure that is larger has reached it. It may be of
one queue, `QUEUE=WARN:CRIT`, and is then used there instead of the one of all queues. A figure that
is not known has reached each of its thresholds: nobody can say that all is well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from sparkstore.errors import InvalidRequest
from sparkstore.operations.choice import age_us

_SECOND_US = 1_000_000


class CheckStatus(IntEnum):
    """The exit codes of a monitoring plugin, as Nagios and its kin want them."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class Threshold(NamedTuple):
    """Limits of a figure.

    Attributes:
        warning: More than this is a warning; None: never.
        critical: More than this is critical; None: never.
    """

    warning: float | None = None
    critical: float | None = None

    def status(self, value: float | None) -> CheckStatus:
        """Judge a figure; None: nobody knows it."""
        if self.critical is not None and (value is None or value > self.critical):
            return CheckStatus.CRITICAL
        if self.warning is not None and (value is None or value > self.warning):
            return CheckStatus.WARNING
        return CheckStatus.OK


class Figure(NamedTuple):
    """A figure of a root.

    Attributes:
        name: The quantity: `depth`, `age`, `dead`, `lag`, `compaction` or `alone`.
        of: The queue or replica that it is about; empty: the whole root.
        value: Messages, seconds or records; None: nobody knows.
        unit: `s` for seconds, else empty.
    """

    name: str
    of: str
    value: float | None
    unit: str = ""


class JudgedFigure(NamedTuple):
    """A figure with the threshold that it was judged by, and the status."""

    figure: Figure
    threshold: Threshold
    status: CheckStatus


Thresholds = Mapping[tuple[str, str], Threshold]
"""By the name of the figure, and the queue that it is for; empty: for all others."""


def threshold_of(name: str, text: str, *, is_age: bool) -> tuple[tuple[str, str], Threshold]:
    """Read a threshold as a command line says it.

    Args:
        name: The figure that it is for.
        text: `[QUEUE=]WARN[:CRIT]` or `[QUEUE=]:CRIT`.
        is_age: Its numbers are ages, such as 90s or 7d; else counts.

    Raises:
        InvalidRequest: It is not written so, or CRIT is less than WARN.
    """
    queue, _, limits = text.rpartition("=")
    first, _, second = limits.partition(":")
    warning, critical = (_number(name, text, limit, is_age=is_age) for limit in (first, second))
    if warning is None and critical is None:
        raise InvalidRequest(f"--{name} {text!r}: write it as WARN, WARN:CRIT or :CRIT")
    if warning is not None and critical is not None and critical < warning:
        raise InvalidRequest(f"--{name} {text!r}: the critical limit is less than the warning")
    return (name, queue), Threshold(warning, critical)


def _number(name: str, option: str, text: str, *, is_age: bool) -> float | None:
    if not text:
        return None
    if is_age:
        return age_us(f"--{name}", text) / _SECOND_US
    if not text.isascii() or not text.isdecimal():
        raise InvalidRequest(f"--{name} {option!r}: {text!r} is no count")
    return int(text)


def judge(figures: Iterable[Figure], thresholds: Thresholds) -> list[JudgedFigure]:
    """Judge each figure by its own threshold, else by that of all."""
    judged = []
    for figure in figures:
        of_all = thresholds.get((figure.name, ""), Threshold())
        threshold = thresholds.get((figure.name, figure.of), of_all)
        judged.append(JudgedFigure(figure, threshold, threshold.status(figure.value)))
    return judged


def worst(judged: Iterable[JudgedFigure]) -> CheckStatus:
    """Return the status of all figures together."""
    return max((figure.status for figure in judged), default=CheckStatus.OK)


def nagios_line(judged: Sequence[JudgedFigure], summary: str) -> str:
    """Write one line: status, what is wrong or a summary, and performance data.

    Performance data has the largest figure of each name, and those that have a threshold of their
    own: a line of ten thousand queues would be cut.
    """
    status = worst(judged)
    wrong = sorted((one for one in judged if one.status), key=lambda one: -one.status)
    sentence = "; ".join(_sentence(figure) for figure in wrong[:_MOST]) or summary
    if len(wrong) > _MOST:
        sentence += f"; {len(wrong) - _MOST} more"
    data = " ".join(_performance(figure) for figure in _shown(judged))
    return f"SPARKSTORE {status.name} - {_plain(sentence)} | {data}"


_MOST = 5


def _plain(text: str) -> str:
    """Write a name without `|`, which begins performance data."""
    return text.replace("|", "/")


def _sentence(judged: JudgedFigure) -> str:
    figure, threshold, status = judged
    limit = threshold.critical if status is CheckStatus.CRITICAL else threshold.warning
    what = f"{figure.name} of {figure.of}" if figure.of else figure.name
    if figure.value is None:
        return f"{what} is not known"
    return f"{what} is {_text(figure.value)}{figure.unit}, over {_text(limit)}{figure.unit}"


def _shown(judged: Sequence[JudgedFigure]) -> list[JudgedFigure]:
    largest: dict[str, JudgedFigure] = {}
    own = []
    for one in judged:
        figure = one.figure
        if figure.value is None:
            continue
        known = largest.get(figure.name)
        if known is None or (known.figure.value or 0) < figure.value:
            largest[figure.name] = one
        if figure.of and one.status:
            own.append(one)
    tops = [one._replace(figure=one.figure._replace(of="")) for one in largest.values()]
    return [*tops, *own[:_MOST]]


def _performance(judged: JudgedFigure) -> str:
    figure, threshold, _status = judged
    label = f"{figure.name}_{figure.of}" if figure.of else figure.name
    quoted = "'" + _plain(label).replace("'", "''").replace("=", "_") + "'"
    limits = f"{_text(threshold.warning)};{_text(threshold.critical)};0"
    return f"{quoted}={_text(figure.value)}{figure.unit};{limits}"


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if value == int(value) else f"{value:.3f}"
