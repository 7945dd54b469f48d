"""Valid histories of a store, and how the three tables may hold them at one moment.

A history is drawn as a list of small integers that drive the oracle itself (`history_builder`), so
hypothesis shrinks it well.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.histories.histories import QUEUE_NAMES, History, Layers, Row, fold_rows
from tests.support.histories.history_builder import STEPS, Choices, HistoryBuilder, build_history

__all__ = [
    "QUEUE_NAMES",
    "Choices",
    "History",
    "HistoryBuilder",
    "Layers",
    "Row",
    "build_history",
    "fold_rows",
    "histories",
    "layers",
]

_NUMBER = st.integers(0, 60)
_CHOICES = st.tuples(st.integers(0, len(STEPS) - 1), _NUMBER, _NUMBER)


def histories(max_steps: int = 60) -> st.SearchStrategy[History]:
    """Valid histories; a step is one record or a few."""
    short = st.lists(_CHOICES, max_size=max_steps // 4)
    long = st.lists(_CHOICES, min_size=max_steps // 2, max_size=max_steps)
    return st.one_of(short, long).map(build_history)


@st.composite
def layers(draw: st.DrawFn, max_steps: int = 60) -> Layers:
    """A history and how the tables hold it at one moment, trimmed only behind the state."""
    history = draw(histories(max_steps))
    state_position = draw(st.integers(0, history.last_position))
    history_position = draw(st.integers(state_position, history.last_position))
    segment_records = draw(st.sampled_from([3, 7, 1_000]))
    closed = state_position // segment_records
    trimmed = draw(st.integers(0, closed)) * segment_records
    return Layers(history, state_position, history_position, trimmed + 1, segment_records)
