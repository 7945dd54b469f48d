"""Build selectors of closures over a look-up, in three-valued logic. Pure.

value       None (NULL, unknown) · bool · int (exact) · float (approximate) · str
AND OR NOT  as SQL-92: unknown AND false is false, unknown OR true is true, NOT unknown is
unknown; a value that is no boolean is unknown
= <>        unknown if either is NULL; false if they are not alike (JMS 2.0 section 3.8.1.2):
numbers are alike, texts are, booleans are
< <= > >=   numbers only, otherwise as above
+ - * /     numbers only, otherwise NULL; integers do not wrap; a division of integers drops
the fraction as Java does; a division by zero is NULL
LIKE        NULL for a text of more than `MAX_TEXT` characters, which is not looked through
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, TypeGuard

from broker_shim.selectors.matching import MAX_TEXT, compile_like

Value = None | bool | int | float | str
Lookup = Callable[[str], Value]
"""The value of an identifier in a message's header; None if it has none."""
Evaluate = Callable[[Lookup], Value]


class InvalidSelector(ValueError):
    """The text is no selector that is taken: its message says where and why, in one line."""


class Sort(Enum):
    """The sort of a value, as far as it is known before there is a message."""

    ANY = "a property"
    BOOLEAN = "a condition"
    NUMBER = "a number"
    STRING = "a text"


class Node(NamedTuple):
    """An expression of a selector.

    Attributes:
        evaluate: Its value for a message.
        sort: The sort of the value.
        depth: How deep it is nested, from 1.
        work: Work of all `LIKE` in it, for each character of a text.
    """

    evaluate: Evaluate
    sort: Sort
    depth: int = 1
    work: int = 0


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def constant(value: Value) -> Node:
    """Make the node of a literal."""
    if isinstance(value, bool):
        sort = Sort.BOOLEAN
    else:
        sort = Sort.STRING if isinstance(value, str) else Sort.NUMBER
    return Node(lambda _get: value, sort)


def identifier(name: str) -> Node:
    """A header field or an application property."""
    return Node(lambda get: get(name), Sort.ANY)


def negation(node: Node) -> Node:
    """Make the node of a NOT."""
    inner = node.evaluate

    def evaluate(get: Lookup) -> Value:
        value = inner(get)
        return not value if isinstance(value, bool) else None

    return _over([node], evaluate)


def every(nodes: Sequence[Node]) -> Node:
    """AND of two or more."""
    return _joined(nodes, ending=False)


def some(nodes: Sequence[Node]) -> Node:
    """OR of two or more."""
    return _joined(nodes, ending=True)


def _joined(nodes: Sequence[Node], *, ending: bool) -> Node:
    """Join nodes by AND or OR.

    The first that is `ending` decides, then an unknown one, else the opposite.
    """
    parts = [node.evaluate for node in nodes]

    def evaluate(get: Lookup) -> Value:
        known = True
        for part in parts:
            value = part(get)
            if value is ending:
                return ending
            known = known and isinstance(value, bool)
        return not ending if known else None

    return _over(nodes, evaluate)


def equality(left: Node, right: Node, *, is_equal: bool) -> Node:
    """Make the node of a = or <> between two nodes."""
    first, second = left.evaluate, right.evaluate

    def evaluate(get: Lookup) -> Value:
        one, two = first(get), second(get)
        if one is None or two is None:
            return None
        return are_alike(one, two) and (one == two) is is_equal

    return _over((left, right), evaluate)


def ordering(left: Node, sign: str, right: Node) -> Node:
    """Make the node of a comparison: < <= > or >=."""
    first, second, compare = left.evaluate, right.evaluate, _COMPARE[sign]

    def evaluate(get: Lookup) -> Value:
        one, two = first(get), second(get)
        if one is None or two is None:
            return None
        if not (is_number(one) and is_number(two)):
            return False
        return compare(one, two)

    return _over((left, right), evaluate)


def between(node: Node, least: Node, most: Node) -> Node:
    """BETWEEN: both ends belong to it."""
    return every([ordering(node, ">=", least), ordering(node, "<=", most)])


def outside(node: Node, least: Node, most: Node) -> Node:
    """Make the node of a NOT BETWEEN: below or above (JMS 2.0 section 3.8.1.1).

    It is not NOT of `between`, which holds for a text: a comparison with one is false.
    """
    return some([ordering(node, "<", least), ordering(node, ">", most)])


def among(node: Node, values: Sequence[Value]) -> Node:
    """IN: texts or numbers."""
    inner = node.evaluate
    texts = frozenset(value for value in values if isinstance(value, str))
    numbers = frozenset(value for value in values if is_number(value))

    def evaluate(get: Lookup) -> Value:
        value = inner(get)
        if value is None:
            return None
        return value in (numbers if is_number(value) else texts)

    return _over([node], evaluate)


def like(node: Node, pattern: str, escape: str | None) -> Node:
    """LIKE; unknown of a text that is too long to be looked through.

    Raises:
        ValueError: Pattern or escape is none (`compile_like`).
    """
    inner, compiled = node.evaluate, compile_like(pattern, escape)
    fits = compiled.fits

    def evaluate(get: Lookup) -> Value:
        value = inner(get)
        if value is None:
            return None
        if not isinstance(value, str):
            return False
        return fits(value) if len(value) <= MAX_TEXT else None

    made = _over([node], evaluate)
    return made._replace(work=made.work + compiled.work)


def unlike(node: Node, positive: Node, values: Sequence[Value]) -> Node:
    """Make the node of a NOT LIKE or NOT IN: as `<>` of the pattern, or of each text or number.

    It is unknown if the value is NULL, and false if none of `values` is alike.
    """
    inner, judge = node.evaluate, positive.evaluate
    samples = [*{type(one) is str: one for one in values}.values()]  # one of each sort will do

    def evaluate(get: Lookup) -> Value:
        value = inner(get)
        if value is None:
            return None
        fits = any(are_alike(value, sample) for sample in samples)
        judged = judge(get)
        return None if judged is None else fits and not judged

    return positive._replace(evaluate=evaluate)


def is_null(node: Node) -> Node:
    """IS NULL: the only one that is never unknown."""
    inner = node.evaluate
    return _over([node], lambda get: inner(get) is None)


def arithmetic(first: Node, rest: Sequence[tuple[str, Node]]) -> Node:
    """A chain of + and -, or of * and /, from left to right."""
    start = first.evaluate
    steps = [(_ARITHMETIC[sign], node.evaluate) for sign, node in rest]

    def evaluate(get: Lookup) -> Value:
        total = start(get)
        for apply, part in steps:
            value = part(get)
            if not (is_number(total) and is_number(value)):
                return None
            try:
                total = apply(total, value)
            except (ArithmeticError, ValueError):
                return None
        return total if is_number(total) else None

    return _over([first, *(node for _sign, node in rest)], evaluate, Sort.NUMBER)


def is_number(value: Value) -> TypeGuard[int | float]:
    """True for exact and approximate numbers; a boolean is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def are_alike(one: Value, two: Value) -> bool:
    """True if `=` may hold between two values that are not NULL."""
    if isinstance(one, bool) or isinstance(two, bool):
        return isinstance(one, bool) and isinstance(two, bool)
    return isinstance(one, str) is isinstance(two, str)


def _divided(one: float, two: float) -> float:
    if not (type(one) is type(two) is int):
        return one / two
    quotient = abs(one) // abs(two)
    return quotient if (one < 0) is (two < 0) else -quotient


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
}


def _over(nodes: Sequence[Node], evaluate: Evaluate, sort: Sort = Sort.BOOLEAN) -> Node:
    """Make the expression of some others."""
    depth = max(node.depth for node in nodes) + 1
    return Node(evaluate, sort, depth, sum(node.work for node in nodes))
