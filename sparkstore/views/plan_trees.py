"""Walks over Spark's plans from Python: kinds, and everything that a tree holds.

A kind is the full name of a class in Spark, below `org.apache.spark.sql`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from py4j.java_collections import JavaArray
from py4j.java_gateway import JavaObject, is_instance_of
from pyspark import SparkContext

_SPARK = "org.apache.spark.sql."


class _Shape(NamedTuple):
    """How the objects of a class hold others."""

    is_node: bool
    has_elements: bool
    has_fields: bool


_SHAPES: dict[str, _Shape] = {}
"""By the class's name: to ask the JVM costs a round trip for each answer."""


def nodes(tree: Any) -> Iterator[tuple[str, Any]]:
    """Kind and node of all plans and expressions in a parsed tree, itself first.

    Each field of each node is gone through, and what is in lists, maps, options and tuples. A list
    of literals (`IN (1, 2, …)`) is not: it may be of thousands, and Spark says that it is one.
    """
    waiting = [tree]
    while waiting:
        value = waiting.pop()
        if isinstance(value, JavaArray):
            waiting.extend(value)
            continue
        if not isinstance(value, JavaObject):
            continue
        name = value.getClass().getName()
        shape = _shape(name, value)
        kind = name.removeprefix(_SPARK)
        if shape.is_node:
            yield kind, value
        if kind == "catalyst.expressions.In" and value.inSetConvertible():
            waiting.append(value.value())
        elif shape.has_elements and not shape.is_node:
            waiting.extend(elements(value.toIndexedSeq()))
        elif shape.has_fields:
            waiting.extend(value.productElement(at) for at in range(value.productArity()))


def _shape(name: str, value: Any) -> _Shape:
    if name not in _SHAPES:
        _SHAPES[name] = _Shape(
            is_node=is_a(value, "catalyst.trees.TreeNode"),
            has_elements=_is_instance(value, "scala.collection.Iterable"),
            has_fields=_is_instance(value, "scala.Product"),
        )
    return _SHAPES[name]


def is_a(value: Any, kind: str) -> bool:
    """True for an object of this kind, or of one that is derived from it."""
    return _is_instance(value, _SPARK + kind)


def _is_instance(value: Any, name: str) -> bool:
    gateway = SparkContext._gateway  # noqa: SLF001  # is_instance_of asks for it
    return bool(is_instance_of(gateway, value, name))


def kind_of(node: Any) -> str:
    """Name the kind of a plan, an expression, or whatever else Spark holds."""
    name: str = node.getClass().getName()
    return name.removeprefix(_SPARK)


def elements(sequence: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala's."""
    return (sequence.apply(at) for at in range(sequence.size()))
