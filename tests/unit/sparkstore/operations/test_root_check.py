"""Thresholds, statuses, and the line that a monitoring system reads."""

from __future__ import annotations

import re

import pytest

from sparkstore.errors import InvalidRequest
from sparkstore.operations.root_check import (
    CheckStatus,
    Figure,
    JudgedFigure,
    Threshold,
    judge,
    nagios_line,
    threshold_of,
    worst,
)

PERFORMANCE = r"'(?:[^'=]|'')+'=[0-9.]+s?;[0-9.]*;[0-9.]*;0"
"""Of the guidelines for plugins: 'label'=value[unit];[warn];[crit];[min]."""


@pytest.mark.parametrize(
    ("name", "told", "key", "threshold"),
    [
        ("depth", "5", ("depth", ""), Threshold(5, None)),
        ("depth", "a=b=5:10", ("depth", "a=b"), Threshold(5, 10)),
        ("depth", "q=:10", ("depth", "q"), Threshold(None, 10)),
        ("age", "90s:2h", ("age", ""), Threshold(90, 7200)),
    ],
)
def test_a_threshold_is_read(
    name: str, told: str, key: tuple[str, str], threshold: Threshold
) -> None:
    assert threshold_of(name, told, is_age=name == "age") == (key, threshold)


@pytest.mark.parametrize("told", ["", ":", "q=", "x", "-1", "5:x", "10:5", "1.5", "5:6:7"])
def test_a_threshold_that_is_none_is_refused(told: str) -> None:
    with pytest.raises(InvalidRequest, match="--depth"):
        threshold_of("depth", told, is_age=False)


def test_an_age_needs_a_unit() -> None:
    with pytest.raises(InvalidRequest, match="--age '90': write a number and ms, s"):
        threshold_of("age", "90", is_age=True)


@pytest.mark.parametrize(
    ("value", "status"),
    [(5, "OK"), (6, "WARNING"), (10, "WARNING"), (11, "CRITICAL"), (None, "CRITICAL")],
)
def test_more_than_a_limit_has_reached_it(value: int | None, status: str) -> None:
    [each] = judge([Figure("depth", "q", value)], {("depth", ""): Threshold(5, 10)})
    assert each.status is CheckStatus[status]


def test_a_queues_own_threshold_wins_and_the_worst_counts() -> None:
    limits = {("depth", ""): Threshold(5), ("depth", "big"): Threshold(None, 100)}
    judged = judge([Figure("depth", "big", 50), Figure("depth", "q", 6)], limits)
    assert [each.status for each in judged] == [CheckStatus.OK, CheckStatus.WARNING]
    assert worst(judged) is CheckStatus.WARNING
    assert worst([]) is CheckStatus.OK


def judged(*figures: Figure) -> list[JudgedFigure]:
    return judge(figures, {("depth", ""): Threshold(5, 10), ("age", ""): Threshold(60)})


def test_the_line_says_what_is_wrong_and_has_performance_data() -> None:
    figures = [
        Figure("depth", "a|b 'c'=d", 11),
        Figure("depth", "q", 2),
        Figure("age", "q", 1.5, "s"),
    ]
    line = nagios_line(judged(*figures), "fine")
    told, _, data = line.partition(" | ")
    assert told == "SPARKSTORE CRITICAL - depth of a/b 'c'=d is 11, over 10"
    assert re.fullmatch(f"{PERFORMANCE}( {PERFORMANCE})*", data)
    assert "'depth'=11;5;10;0" in data
    assert "'age'=1.500s;60;;0" in data


def test_a_line_of_many_queues_stays_short() -> None:
    line = nagios_line(judged(*(Figure("depth", f"q{n}", 7) for n in range(9_999))), "fine")
    assert "9994 more" in line
    assert len(line) < 1_000
    assert nagios_line(judged(), "fine") == "SPARKSTORE OK - fine | "
