"""The grammar of selectors, and the parser made of it. Pure.

Keywords are reserved and may be written in any case; identifiers are not, and may hold dots
(`amqp.subject`) or stand in double quotes (`"content-language"`), which JMS lacks and AMQP needs.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from typing import Any, NamedTuple

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken, VisitError

from broker_shim.selectors import nodes
from broker_shim.selectors.nodes import Evaluate, InvalidSelector, Lookup, Node, Sort, Value

MAX_CHARACTERS = 1 << 13
"""A longer selector is refused before it is read."""
MAX_TOKENS = 2_048
"""Words, numbers, texts and signs: each is a step for every message, too."""
MAX_WORK = 1_024
"""Of all LIKE patterns together, for each character of a text: their characters between two `%`;
where there is a `_` among these, they count eight times."""
SLICE_TOKENS = 128
"""So many are compiled in one go: a token takes some 10 µs."""
MAX_DEPTH = 100
"""Deeper nesting is refused: of parentheses, NOT, signs and operators."""
_LIKE_STEPS = 4
"""To hold one character of a pattern against a whole text."""
_MAX_INTEGER = (1 << 64) - 1
_MAX_DIGITS = 40

_GRAMMAR = r"""
    start: _any
    _any: any
    any: all (_OR all)*
    all: term (_AND term)*
    ?term: NOT term -> negation
         | condition
    ?condition: sum
        | sum EQUAL sum -> equal
        | sum ORDER sum -> order
        | sum [NOT] _BETWEEN sum _AND sum -> between
        | sum [NOT] IN "(" literal ("," literal)* ")" -> among
        | sum [NOT] LIKE STRING [_ESCAPE STRING] -> like
        | sum _IS [NOT] _NULL -> null
    sum: product (SIGN product)*
    product: signed (FACTOR signed)*
    ?signed: SIGN signed -> signed
           | atom
    ?atom: literal -> literal
         | IDENTIFIER -> identifier
         | QUOTED -> quoted
         | BOOLEAN -> boolean
         | OPEN any ")" -> group
    literal: FLOAT -> approximate
           | INTEGER -> exact
           | STRING -> text

    OPEN: "("
    EQUAL: "=" | "<>"
    ORDER: /<=|>=|<(?!>)|>/
    SIGN: "+" | "-"
    FACTOR: "*" | "/"
    _OR.3: /OR(?![\w$.])/i
    _AND.3: /AND(?![\w$.])/i
    NOT.3: /NOT(?![\w$.])/i
    _BETWEEN.3: /BETWEEN(?![\w$.])/i
    IN.3: /IN(?![\w$.])/i
    LIKE.3: /LIKE(?![\w$.])/i
    _ESCAPE.3: /ESCAPE(?![\w$.])/i
    _IS.3: /IS(?![\w$.])/i
    _NULL.3: /NULL(?![\w$.])/i
    BOOLEAN.3: /(TRUE|FALSE)(?![\w$.])/i
    FLOAT.2: /(\d+\.\d*|\.\d+)(e[+-]?\d+)?[fd]?|\d+(e[+-]?\d+[fd]?|[fd](?![\w$]))/i
    INTEGER.1: /0x[0-9a-f]+l?|\d+l?/i
    STRING: /'(?:[^']|'')*'/
    QUOTED: /"(?:[^"]|"")*"/
    IDENTIFIER: /[^\W\d][\w$]*(?:\.[\w$]+)*|\$[\w$]*(?:\.[\w$]+)*/
    %ignore /[ \t\r\n\f]+/
"""


class Selector(NamedTuple):
    """A condition that was compiled once, for any number of messages.

    Attributes:
        text: The text that was given.
        evaluate: True, False or None (unknown) for a look-up.
        steps: Steps of evaluating it for one message, at most; a step is some µs.
    """

    text: str
    evaluate: Evaluate
    steps: int

    def fits(self, get: Lookup) -> bool:
        """True if the condition holds: neither false nor unknown."""
        return self.evaluate(get) is True


def parse(text: str, *, is_kept: bool = False) -> Selector:
    """Compile a selector; one that `is_kept` was taken before, perhaps under wider limits.

    Raises:
        InvalidSelector: It is too long or too deep, is no condition, or breaks the grammar.
    """
    slices = compiling(text, is_kept=is_kept)
    while True:
        try:
            next(slices)
        except StopIteration as end:
            selector: Selector = end.value
            return selector


def compiling(text: str, *, is_kept: bool = False) -> Generator[None, None, Selector]:
    """Compile a selector in slices of `SLICE_TOKENS`; it is returned by the last.

    Raises:
        InvalidSelector: The text is no selector, or too large a one (`parse`).
    """
    if len(text) > MAX_CHARACTERS and not is_kept:
        message = f"the selector has {len(text)} characters: {MAX_CHARACTERS} at most"
        raise InvalidSelector(message)
    parser = _parser().parse_interactive(text)
    count = 0
    try:
        for _token in parser.iter_parse():
            count += 1
            if count > MAX_TOKENS and not is_kept:
                message = f"the selector has more than {MAX_TOKENS} words and signs"
                raise InvalidSelector(message)
            if count % SLICE_TOKENS == 0:
                yield
        node: Node = parser.feed_eof()  # type: ignore[no-untyped-call]  # Lark has no type here
    except UnexpectedInput as reason:
        raise InvalidSelector(_told(text, reason)) from reason
    except VisitError as reason:
        raise InvalidSelector(str(reason.orig_exc)) from reason
    if node.work > MAX_WORK and not is_kept:
        message = f"the LIKE patterns of the selector are {node.work} of work: {MAX_WORK} at most"
        raise InvalidSelector(message)
    return Selector(text, node.evaluate, count + _LIKE_STEPS * node.work)


def _told(text: str, reason: UnexpectedInput) -> str:
    """Describe where and what is wrong in a selector, in one line of ASCII."""
    if isinstance(reason, UnexpectedCharacters):
        at = reason.pos_in_stream or 0
        what = "an unended text" if text[at] in "'\"" else f"an unexpected {text[at]!a}"
        return f"selector: {what} at character {at + 1}"
    if isinstance(reason, UnexpectedToken) and reason.token.type != "$END":
        token = ascii(str(reason.token)[:40])
        return f"selector: an unexpected {token} at character {(reason.pos_in_stream or 0) + 1}"
    return f"selector: it ends too early, after character {len(text)}"


def _refuse(where: Token | None, why: str) -> InvalidSelector:
    at = "" if where is None or where.start_pos is None else f" at character {where.start_pos + 1}"
    return InvalidSelector(f"selector: {why}{at}".rstrip(","))


def _need(node: Node, sort: Sort, where: Token | None = None) -> Node:
    if node.sort not in (sort, Sort.ANY):
        raise _refuse(where, f"{sort.value} was expected, not {node.sort.value},")
    return node


def _limited(node: Node, where: Token | None = None) -> Node:
    if node.depth > MAX_DEPTH:
        raise _refuse(where, f"nested more than {MAX_DEPTH} deep")
    return node


@v_args(inline=True)
class _Builder(Transformer[Token, Node]):
    """The grammar's rules, each by its name, called innermost first."""

    def start(self, node: Node) -> Node:
        return _need(node, Sort.BOOLEAN)

    def any(self, *parts: Node) -> Node:
        return _junction(parts, nodes.some)

    def all(self, *parts: Node) -> Node:
        return _junction(parts, nodes.every)

    def negation(self, where: Token, node: Node) -> Node:
        return _limited(nodes.negation(_need(node, Sort.BOOLEAN, where)), where)

    def equal(self, left: Node, sign: Token, right: Node) -> Node:
        return _limited(nodes.equality(left, right, is_equal=sign == "="), sign)

    def order(self, left: Node, sign: Token, right: Node) -> Node:
        for node in (left, right):
            _need(node, Sort.NUMBER, sign)
        return _limited(nodes.ordering(left, str(sign), right), sign)

    def between(self, node: Node, negated: Token | None, least: Node, most: Node) -> Node:
        for operand in (node, least, most):
            _need(operand, Sort.NUMBER, negated)
        join = nodes.outside if negated else nodes.between
        return _limited(join(node, least, most))

    def among(self, node: Node, negated: Token | None, where: Token, *values: Value) -> Node:
        condition = nodes.among(node, values)
        return _limited(nodes.unlike(node, condition, values) if negated else condition, where)

    def like(
        self, node: Node, negated: Token | None, where: Token, pattern: Token, escape: Token | None
    ) -> Node:
        _need(node, Sort.STRING, where)
        try:
            condition = nodes.like(node, _text(pattern), None if escape is None else _text(escape))
        except ValueError as reason:
            raise _refuse(where, f"{reason},") from reason
        return _limited(nodes.unlike(node, condition, [""]) if negated else condition, where)

    def null(self, node: Node, negated: Token | None) -> Node:
        return _limited(_not_if(negated, nodes.is_null(node)))

    def sum(self, first: Node, *rest: Any) -> Node:
        return _chain(first, rest)

    def product(self, first: Node, *rest: Any) -> Node:
        return _chain(first, rest)

    def signed(self, sign: Token, node: Node) -> Node:
        _need(node, Sort.NUMBER, sign)
        return _limited(nodes.arithmetic(nodes.constant(0), [(str(sign), node)]), sign)

    def literal(self, value: Value) -> Node:
        return nodes.constant(value)

    def identifier(self, name: Token) -> Node:
        return nodes.identifier(str(name))

    def quoted(self, name: Token) -> Node:
        return nodes.identifier(str(name)[1:-1].replace('""', '"'))

    def boolean(self, word: Token) -> Node:
        return nodes.constant(word.upper() == "TRUE")

    def group(self, where: Token, node: Node) -> Node:
        return _limited(node._replace(depth=node.depth + 1), where)

    def approximate(self, digits: Token) -> float:
        return float(digits.rstrip("fFdD"))

    def exact(self, digits: Token) -> int:
        value = _integer(digits.rstrip("lL"))
        if value > _MAX_INTEGER:
            raise _refuse(digits, f"a number above {_MAX_INTEGER}")
        return value

    def text(self, quoted: Token) -> str:
        return _text(quoted)


def _junction(parts: tuple[Node, ...], join: Any) -> Node:
    if len(parts) == 1:
        return parts[0]
    joined: Node = join([_need(part, Sort.BOOLEAN) for part in parts])
    return _limited(joined)


def _chain(first: Node, rest: tuple[Any, ...]) -> Node:
    if not rest:
        return first
    steps = list(zip(map(str, rest[::2]), rest[1::2], strict=True))
    for node in (first, *rest[1::2]):
        _need(node, Sort.NUMBER, rest[0])
    return _limited(nodes.arithmetic(first, steps), rest[0])


def _not_if(negated: Token | None, node: Node) -> Node:
    return nodes.negation(node) if negated else node


def _integer(digits: str) -> int:
    """Parse an integer as Java does: 0x is hexadecimal, a leading 0 octal."""
    if len(digits) > _MAX_DIGITS:
        return _MAX_INTEGER + 1
    if digits[:2] in {"0x", "0X"}:
        return int(digits, 16)
    try:
        return int(digits, 8 if len(digits) > 1 and digits[0] == "0" else 10)
    except ValueError as reason:
        message = f"selector: {digits[:40]} starts with 0 and is no octal number"
        raise InvalidSelector(message) from reason


def _text(quoted: Token) -> str:
    return str(quoted)[1:-1].replace("''", "'")


@cache
def _parser() -> Lark:
    """Make the parser once, which takes a few milliseconds."""
    return Lark(
        _GRAMMAR, parser="lalr", lexer="basic", transformer=_Builder(), maybe_placeholders=True
    )
