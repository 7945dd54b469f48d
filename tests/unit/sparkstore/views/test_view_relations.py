"""What a query of Spark sees: all its views as they stood at one moment, whoever asks beside it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker_shim.completion import wait_for
from broker_shim.store.delta import DeltaMessageStore
from sparkstore.core.state_machine.call_values import Queue
from sparkstore.tables.root import open_root
from sparkstore.views.view_relations import ViewRelations


class AnalysedBeside:
    """A session of Spark that analyses several queries at once, of which it tells one by number."""

    def __init__(self) -> None:
        self.query = 0
        context = SimpleNamespace(relationCache=lambda: self.query)
        analysis = SimpleNamespace(AnalysisContext=SimpleNamespace(get=lambda: context))
        catalyst = SimpleNamespace(catalyst=SimpleNamespace(analysis=analysis))
        spark = SimpleNamespace(spark=SimpleNamespace(sql=catalyst))
        system = SimpleNamespace(identityHashCode=lambda number: number)
        self._jvm = SimpleNamespace(org=SimpleNamespace(apache=spark), System=system)


def test_a_query_that_is_analysed_beside_another_sees_one_moment(tmp_path: Path) -> None:
    session: Any = AnalysedBeside()
    store = DeltaMessageStore(tmp_path / "root")
    relations = ViewRelations(session, open_root(tmp_path / "root"), None, 100)
    session.query = 1
    first = relations._moment()
    wait_for([lambda on_complete: store.create(Queue("q"), on_complete)])
    wait_for([store.flush])
    session.query = 2
    beside = relations._moment()
    session.query = 1
    again = relations._moment()
    store.close()
    assert again is first
    assert beside is not first
