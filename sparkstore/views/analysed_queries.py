"""Check a typed query again: what Spark found behind its names, before a row is read."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from sparkstore.errors import InvalidRequest
from sparkstore.views import permitted_sql as permitted
from sparkstore.views.plan_trees import elements, is_a, kind_of
from sparkstore.views.written_queries import ASK_VIEWS, Relations


def check_analysed(relations: Relations, plan: Any, kinds: Set[str]) -> None:
    """Refuse what Spark found behind the names. Of a view of ours it looks at what is read alone.

    Args:
        relations: All that may be read.
        plan: A query or a statement, with its names looked up.
        kinds: What the plan may be made of, beside what reads.

    Raises:
        InvalidRequest: It does more than to ask these relations.
    """
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        kind = kind_of(node)
        if kind == "catalyst.plans.logical.View":
            _check_view(relations, node)
            continue
        inner = [*elements(node.children()), *elements(node.subqueries())]
        if kind == "execution.command.DescribeColumnCommand":
            _check_described(relations, node.table())
        elif kind not in kinds:
            _check_leaf(relations, kind, node)
        waiting += inner


def _check_view(relations: Relations, view: Any) -> None:
    if not view.isTempView() or not _is_view(relations, view.desc().identifier()):
        raise InvalidRequest(ASK_VIEWS)
    child = view.child()
    for plan in (child, *elements(child.subqueriesAll())):
        for leaf in elements(plan.collectLeaves()):
            _check_leaf(relations, kind_of(leaf), leaf)


def _check_leaf(relations: Relations, kind: str, leaf: Any) -> None:
    """Let pass what reads nothing, a view of ours, or a table of the root."""
    if kind in permitted.READ_NOTHING:
        return
    check = _LEAVES.get(kind)
    if check is None or not check(relations, leaf):
        raise InvalidRequest(ASK_VIEWS)


def _is_own_scan(relations: Relations, leaf: Any) -> bool:
    relation = leaf.relation()
    if not is_a(relation, "execution.datasources.HadoopFsRelation"):
        return False
    files = relation.location()
    return (
        kind_of(relation.fileFormat()) == "delta.DeltaParquetFileFormat"
        and kind_of(files) == "delta.files.TahoeLogFileIndex"
        and all(_is_own(relations, path) for path in elements(files.rootPaths()))
    )


def _is_own_table(relations: Relations, leaf: Any) -> bool:
    table = leaf.table()
    return kind_of(table) == "delta.catalog.DeltaTableV2" and _is_own(relations, table.path())


def _is_own_view(relations: Relations, leaf: Any) -> bool:
    return _is_view(relations, leaf.metadata().identifier())


_LEAVES = {
    "execution.datasources.LogicalRelation": _is_own_scan,
    "catalyst.analysis.ResolvedTable": _is_own_table,
    "catalyst.analysis.ResolvedTempView": _is_own_view,
}


def _check_described(relations: Relations, identifier: Any) -> None:
    if not _is_view(relations, identifier):
        raise InvalidRequest(ASK_VIEWS)


def _is_view(relations: Relations, identifier: Any) -> bool:
    return identifier.database().isEmpty() and identifier.table().lower() in relations.views


def _is_own(relations: Relations, path: Any) -> bool:
    """Whether a path of Hadoop is that of a table; two slashes in front name a machine in it."""
    uri = path.toUri()
    if uri.getScheme() not in {None, "file"}:
        return str(path) in relations.tables
    return not uri.getAuthority() and relations.has_table(uri.getPath())
