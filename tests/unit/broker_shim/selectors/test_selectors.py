"""Selectors: JMS 2.0 section 3.8.1, scenario by scenario, and against Python on generated ones."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.selectors import MAX_CHARACTERS, MAX_DEPTH, InvalidSelector, Value, parse
from broker_shim.selectors.grammar import MAX_TOKENS, MAX_WORK, SLICE_TOKENS, compiling
from broker_shim.selectors.matching import MAX_TEXT
from tests.support.work import lines_of

MESSAGE: dict[str, Value] = {
    "a": 1,
    "f": 2.5,
    "s": "it's",
    "t": True,
    "big": (1 << 64) - 1,
    "amqp.subject": "order",
    "content-type": "text",
    "$x": 7,
    "größe": 3,
    "NOTe": 5,
}


def value(text: str) -> Value:
    return parse(text).evaluate(MESSAGE.get)


@pytest.mark.parametrize(
    "text",
    [
        # literals
        "s = 'it''s'",
        "a = 1",
        "a = 1L",
        "a = 0x1",
        "a + 7 = 010",
        "f = 2.5",
        "f = 2.5e0",
        "f = .25e1",
        "f = 25.E-1",
        "f = 2.5f",
        "f = 2.5D",
        "t = TRUE",
        "t <> false",
        "big = 18446744073709551615",
        # identifiers
        "$x = 7",
        "größe = 3",
        "NOTe = 5",
        "amqp.subject = 'order'",
        "\"content-type\" = 'text'",
        "A IS NULL",
        # comparisons
        "a <> 2",
        "a < 2 AND a <= 1 AND a > 0 AND a >= 1",
        "a < f",
        "f > a",
        "1 = 1.0",
        # arithmetic
        "a + 2 * 3 = 7",
        "(a + 2) * 3 = 9",
        "7 / 2 = 3",
        "-7 / 2 = -3",
        "7 / 2.0 = 3.5",
        "10 - 3 - 2 = 5",
        "- - a = 1",
        "-a < +a",
        "9223372036854775807 + 1 = 9223372036854775808",
        # between, in, like, null
        "a BETWEEN 1 AND 1",
        "a NOT BETWEEN 2 AND 3",
        "f between a and a + 2 and t",
        "s IN ('x', 'it''s')",
        "s NOT IN ('x')",
        "a IN (1, 2)",
        "s LIKE 'it%'",
        "s LIKE '__''_'",
        "s LIKE '%'",
        "s NOT LIKE 'x%'",
        "'a_b' LIKE 'a!_b' ESCAPE '!'",
        "NOT 'axb' LIKE 'a!_b' ESCAPE '!'",
        "'50%' LIKE '50\\%' ESCAPE '\\'",
        "'a.c' LIKE 'a.c' AND NOT 'abc' LIKE 'a.c'",
        "'x\ny' LIKE 'x_y'",
        "s IS NOT NULL",
        "n IS NULL",
        # logic
        "t",
        "NOT NOT t",
        "t OR n = 1",
        "n = 1 OR t",
        "NOT (n = 1 AND NOT t)",
        "t AND (a = 2 OR a = 1)",
        "a = 1 OR a = 2 AND a = 3",
        "not a = 2",
        "a=1\tAND\r\nt",
    ],
)
def test_it_holds(text: str) -> None:
    assert value(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "a = '1'",
        "a <> '1'",
        "t = 1",
        "t = 'true'",
        "s > 1",
        "s BETWEEN 1 AND 2",
        "a LIKE '1'",
        "a NOT LIKE '1'",
        "t IN ('true')",
        "t NOT IN ('x')",
        "a IN ('1')",
        "a NOT IN ('1')",
        "s NOT IN (1)",
        "s NOT BETWEEN 1 AND 2",
        "t NOT BETWEEN 1 AND 2",
        "s IS NULL",
        "'A' = 'a'",
        "n = 1 AND FALSE",
        "'aXb' LIKE 'a%c'",
    ],
)
def test_it_is_false_and_values_that_are_not_alike_are_never_equal_nor_unequal(text: str) -> None:
    assert value(text) is False


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("x BETWEEN 6 AND 7", "x >= 6 AND x <= 7"),
        ("x NOT BETWEEN 6 AND 7", "x < 6 OR x > 7"),
        ("x NOT BETWEEN y AND 7", "x < y OR x > 7"),
        ("x NOT BETWEEN 6 AND y", "x < 6 OR x > y"),
        ("x IN ('a', 'b')", "x = 'a' OR x = 'b'"),
        ("x NOT IN ('a', 'b')", "x <> 'a' AND x <> 'b'"),
        ("x IN (6, 7)", "x = 6 OR x = 7"),
        ("x NOT IN (6, 7)", "x <> 6 AND x <> 7"),
        ("x LIKE 'a'", "x = 'a'"),
        ("x NOT LIKE 'a'", "x <> 'a'"),
    ],
)
def test_a_short_form_is_what_it_stands_for_of_values_of_every_sort(short: str, long: str) -> None:
    """JMS 2.0 section 3.8.1.1; a comparison of values that are not alike is false (3.8.1.2)."""
    values: tuple[Value, ...] = (None, True, False, 5, 6, 6.5, 7, 8, "6", "a", "b", "c", "")
    one, other = parse(short), parse(long)
    for x in values:
        for y in values:
            get = {"x": x, "y": y}.get
            assert one.evaluate(get) is other.evaluate(get), (x, y)


@pytest.mark.parametrize(
    "text",
    [
        "n",
        "n = 1",
        "n <> 1",
        "NOT n = 1",
        "n > 1",
        "n BETWEEN 1 AND 2",
        "n NOT BETWEEN 1 AND 2",
        "a BETWEEN n AND 2",
        "n IN ('x')",
        "n NOT IN ('x')",
        "n LIKE '%'",
        "n NOT LIKE '%'",
        "n = 1 AND t",
        "n = 1 OR FALSE",
        "n + 1 = 2",
        "s + 1 = 2",
        "t + 1 = 2",
        "a / 0 = 1",
        "a / 0.0 = 1",
        "NOT s",
        "s AND t",
        "NOT a",
    ],
)
def test_it_is_unknown_and_selects_nothing(text: str) -> None:
    assert value(text) is None
    assert not parse(text).fits(MESSAGE.get)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "ends too early, after character 0"),
        ("a =", "ends too early, after character 3"),
        ("a = 1 b", "unexpected 'b' at character 7"),
        ("a = 'x", "unended text at character 5"),
        ("a ! 1", "unexpected '!' at character 3"),
        ("a = = 1", "unexpected '=' at character 5"),
        ("1 = 2 = 3", "unexpected '=' at character 7"),
        ("(a = 1", "ends too early"),
        ("a = 1)", "unexpected ')' at character 6"),
        ("a IN ()", "unexpected ')' at character 7"),
        ("a IN (b)", "unexpected 'b' at character 7"),
        ("a LIKE b", "unexpected 'b' at character 8"),
        ("AND = 1", "unexpected 'AND' at character 1"),
        ("5a = 1", "unexpected 'a' at character 2"),
        ("1 + 1", "a condition was expected, not a number"),
        ("'x'", "a condition was expected, not a text"),
        ("NOT 1", "a condition was expected, not a number, at character 1"),
        ("a = 1 AND 'x'", "a condition was expected, not a text"),
        ("'x' < 'y'", "a number was expected, not a text, at character 5"),
        ("a < TRUE", "a number was expected, not a condition, at character 3"),
        ("(a = 1) + 1 = 2", "a number was expected, not a condition, at character 9"),
        ("1 LIKE '1'", "a text was expected, not a number, at character 3"),
        ("s LIKE 'x' ESCAPE '!!'", "ESCAPE takes one character, at character 3"),
        ("s LIKE 'x!' ESCAPE '!'", "ends with its ESCAPE character, at character 3"),
        ("s LIKE '" + "%a" * 501 + "'", "a pattern of 1002 characters, 1000 at most, at character"),
        ("a = 18446744073709551616", "a number above 18446744073709551615 at character 5"),
        ("a = " + "9" * 8_000, "a number above"),
        ("a = 09", "starts with 0 and is no octal number"),
        ("(" * 1_000 + "t" + ")" * 1_000, f"nested more than {MAX_DEPTH} deep at character"),
        ("NOT " * 1_000 + "t", f"nested more than {MAX_DEPTH} deep at character"),
        ("-" * 1_000 + "a = 1", f"nested more than {MAX_DEPTH} deep at character"),
        ("(" * 2_000, "ends too early"),
        ("1" + "+1" * 2_000, f"more than {MAX_TOKENS} words and signs"),
        ("x" * (1 << 20), f"has 1048576 characters: {MAX_CHARACTERS} at most"),
    ],
)
def test_it_is_refused_in_one_line_that_says_where(text: str, reason: str) -> None:
    with pytest.raises(InvalidSelector) as refused:
        parse(text)
    said = str(refused.value)
    assert reason in said
    assert "\n" not in said
    assert said.isascii()
    assert len(said) < 200


def test_long_chains_are_not_deep() -> None:
    count = 500
    assert value(" OR ".join(["a = 2"] * count + ["t"])) is True
    assert value(" + ".join(["a"] * count) + f" = {count}") is True


@pytest.mark.parametrize(
    "text",
    [
        "1" + "+1" * 1_000 + " = a",
        " OR ".join(["a = 1"] * 500),
        "a IN (" + ", ".join(["'x'"] * 1_000) + ")",
        " AND ".join(["s LIKE 'x'"] * 500),
        "(" * 90 + "a = 1" + ")" * 90,
    ],
    ids=range(5),
)
def test_one_that_is_long_is_compiled_in_slices_of_like_work(text: str) -> None:
    slices, work = compiling(text), []
    parse("a = 1")  # the parser is made once
    with suppress(StopIteration):
        while True:
            work.append(lines_of(lambda: next(slices)))
    one = max(lines_of(lambda: parse("a + 1 = 1")) // 5, 1)
    tokens = len(re.findall(r"'x'|\w+|\S", text))
    assert len(work) >= tokens // SLICE_TOKENS
    assert max(work, default=0) <= 4 * one * SLICE_TOKENS


def test_as_deep_as_allowed() -> None:
    assert value("(" * (MAX_DEPTH - 2) + "a = 1" + ")" * (MAX_DEPTH - 2)) is True


@pytest.mark.parametrize("pattern", ["%a" * 30 + "%b", "%_a" * 30 + "%b", "%" + "_" * 99 + "%b"])
def test_a_malicious_pattern_ends(pattern: str) -> None:
    """A backtracking one takes longer than the universe."""
    fits = parse(f"s LIKE '{pattern}'").fits
    assert not fits({"s": "a" * MAX_TEXT}.get)
    assert fits({"s": "ba" * (MAX_TEXT // 2 - 1) + "ab"}.get)


@pytest.mark.parametrize(
    ("pattern", "count"),
    [("%" + "a" * 100 + "%", 10), ("%" + "a" * 31 + "_%", 4), ("x%" + "a" * 50 + "%a_%y", 15)],
)
def test_all_patterns_of_a_selector_together_have_so_much_work(pattern: str, count: int) -> None:
    one = f"s LIKE '{pattern}'"
    assert parse(" OR ".join([one] * count)).steps > 3 * MAX_WORK
    for more in (" OR ".join([one] * (count + 1)), " AND ".join([f"NOT ({one})"] * (count + 1))):
        with pytest.raises(InvalidSelector, match="LIKE patterns of the selector"):
            parse(more)
        parse(more, is_kept=True)


def test_what_stands_at_an_end_of_a_pattern_is_no_work() -> None:
    assert parse("s LIKE 'a_b%'").steps == parse("s LIKE '%a_b'").steps == parse("s = 'b'").steps


def test_a_text_that_is_too_long_to_be_looked_through_is_unknown() -> None:
    for text in ("s LIKE '%'", "s NOT LIKE '%b%'", "s LIKE 'a%' OR s LIKE '%a'"):
        assert parse(text).evaluate({"s": "a" * MAX_TEXT}.get) is True
        assert parse(text).evaluate({"s": "a" * (MAX_TEXT + 1)}.get) is None


# ------------------------------------------------------- generated, against Python's own meaning

NAMES = st.sampled_from(["a", "b", "c", "d"])
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.sampled_from(["x", "y", "xy"]))
Meaning = Callable[[dict[str, Any]], Any]
COMPARE = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _sort(given: Any) -> str:
    return "bool" if isinstance(given, bool) else "text" if isinstance(given, str) else "number"


def numbers() -> st.SearchStrategy[tuple[str, Meaning]]:
    leaf = st.one_of(
        st.integers(0, 9).map(lambda n: (str(n), lambda _m: n)),
        NAMES.map(lambda name: (name, lambda m: m[name])),
    )

    def combine(inner: Any) -> Any:
        return st.tuples(inner, st.sampled_from("+-*"), inner).map(_arithmetic)

    return st.recursive(leaf, combine, max_leaves=4)


def _arithmetic(parts: Any) -> tuple[str, Meaning]:
    (left, one), sign, (right, two) = parts
    apply = {"+": operator.add, "-": operator.sub, "*": operator.mul}[sign]

    def meaning(message: dict[str, Any]) -> Any:
        x, y = one(message), two(message)
        if x is None or y is None or _sort(x) != "number" or _sort(y) != "number":
            return None
        return apply(x, y)

    return f"({left} {sign} {right})", meaning


def _comparison(parts: Any) -> tuple[str, Meaning]:
    (left, one), sign, (right, two) = parts

    def meaning(message: dict[str, Any]) -> Any:
        x, y = one(message), two(message)
        if x is None or y is None:
            return None
        if _sort(x) != _sort(y) or (sign not in ("=", "<>") and _sort(x) != "number"):
            return False
        return COMPARE[sign](x, y)

    return f"{left} {sign} {right}", meaning


def _like(parts: Any) -> tuple[str, Meaning]:
    name, pattern = parts
    regex = "".join({"%": ".*", "_": "."}.get(each, re.escape(each)) for each in pattern)

    def meaning(message: dict[str, Any]) -> Any:
        x = message[name]
        if x is None:
            return None
        return isinstance(x, str) and re.fullmatch(regex, x) is not None

    return f"{name} LIKE '{pattern}'", meaning


def _not(part: Any) -> tuple[str, Meaning]:
    text, inner = part

    def meaning(message: dict[str, Any]) -> Any:
        found = inner(message)
        return None if found is None else not found

    return f"NOT ({text})", meaning


def _and_or(parts: Any) -> tuple[str, Meaning]:
    (left, one), word, (right, two) = parts

    def meaning(message: dict[str, Any]) -> Any:
        both = {one(message), two(message)}
        ending = word == "OR"
        return ending if ending in both else None if None in both else not ending

    return f"({left} {word} {right})", meaning


CONDITIONS = st.recursive(
    st.one_of(
        st.tuples(numbers(), st.sampled_from(sorted(COMPARE)), numbers()).map(_comparison),
        st.tuples(NAMES, st.text("xy%_", max_size=4)).map(_like),
        NAMES.map(lambda name: (f"{name} IS NULL", lambda m: m[name] is None)),
    ),
    lambda inner: st.one_of(
        inner.map(_not),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(_and_or),
    ),
    max_leaves=8,
)


@given(CONDITIONS, st.fixed_dictionaries(dict.fromkeys("abcd", VALUES)))
def test_a_generated_condition_means_what_it_means_in_python(
    condition: tuple[str, Meaning], message: dict[str, Any]
) -> None:
    text, meaning = condition
    assert parse(text).evaluate(message.get) == meaning(message)


@given(st.text("a1'\"()=<>.+-*/%_ ANDORTLIKEBSX\n", max_size=60))
def test_any_text_is_taken_or_refused_and_nothing_else(text: str) -> None:
    try:
        found = parse(text).evaluate(MESSAGE.get)
    except InvalidSelector:
        return
    assert found in (True, False, None)
