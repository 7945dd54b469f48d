"""Bodies in JSON are read strictly by a schema, before either engine gets them. Pure.

Decision: one decoder of our own. Spark's and DuckDB's said different things of odd bodies, as of
`"12"` for a BIGINT, a key that is there twice, or half a surrogate pair, so a sum depended on who
was asked. What goes to their `from_json` is JSON that both read alike: each field of the schema
once, with a value of its type or null.

    BOOLEAN           true or false
    TINYINT … BIGINT  a number in range, without a fraction or an exponent
    FLOAT, DOUBLE     a number in range
    DECIMAL(p, s)     a number in range, rounded half up
    DATE, TIMESTAMP   text in ISO 8601; a time without a zone is UTC
    TIMESTAMP_NTZ     the same without a zone
    STRING            text as it is, all else as its JSON
    ARRAY, MAP        a list, an object
    STRUCT            an object; of a key that is there twice the last counts

A value of another form is null, and so is text with half a surrogate pair. A body that is no JSON
by RFC 8259, or of another form as a whole, is null itself.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import cache, partial
from struct import pack, unpack
from typing import Any, NoReturn

from sparkstore.content.body_schemas import MapType, Type

_INTEGER = re.compile(r"-?\d{1,19}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?", re.IGNORECASE
)
_DECIMAL = re.compile(r"DECIMAL(?:\((\d+)(?:,(\d+))?\))?")
_BITS = {
    **dict.fromkeys(("TINYINT", "BYTE"), 8), **dict.fromkeys(("SMALLINT", "SHORT"), 16),
    **dict.fromkeys(("INT", "INTEGER"), 32), **dict.fromkeys(("BIGINT", "LONG"), 64),
}  # fmt: skip
_MOST_DIGITS = 38


class _Number(str):
    """A number as a body writes it."""

    __slots__ = ()


def fitted_json(text: str | None, kind: Type) -> str | None:
    """Write a body anew as JSON with the fields of a type and no others; null if it is none."""
    if text is None:
        return None
    try:
        value = json.loads(
            text, parse_int=_Number, parse_float=_Number, parse_constant=_refuse_constant
        )
        fitted = _fitted(value, kind)
    except (ValueError, RecursionError):
        return None
    return None if fitted is None else json.dumps(fitted)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _fitted(value: Any, kind: Type) -> Any:
    match kind, value:
        case MapType(), dict():
            return {k: _fitted(inner, kind.value) for k, inner in value.items() if _is_text(k)}
        case dict(), dict():
            return {name: _fitted(value.get(name), inner) for name, inner in kind.items()}
        case list(), list():
            return [_fitted(inner, kind[0]) for inner in value]
        case str(), _ if value is not None:
            return _reader(kind)(value)
    return None


@cache
def _reader(kind: str) -> Callable[[Any], Any]:
    """Return what reads a scalar type, by its name with parameters."""
    if kind in _BITS:
        return partial(_integer, bits=_BITS[kind])
    if (decimal := _DECIMAL.fullmatch(kind)) is not None:
        return partial(_decimal, precision=int(decimal[1] or 10), scale=int(decimal[2] or 0))
    return _READERS[kind]


def _integer(value: Any, bits: int) -> int | None:
    if not isinstance(value, _Number) or not _INTEGER.fullmatch(value):
        return None
    number = int(value)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def _double(value: Any) -> float | None:
    number = float(value) if isinstance(value, _Number) else math.inf
    return number if math.isfinite(number) else None


def _float(value: Any) -> float | None:
    """Round to 32 bits here: one engine would round twice."""
    number = _double(value)
    try:
        return None if number is None else float(unpack("<f", pack("<f", number))[0])
    except OverflowError:
        return None


def _decimal(value: Any, precision: int, scale: int) -> str | None:
    """Write the digits as text: DuckDB reads a number of JSON as a double."""
    if not isinstance(value, _Number):
        return None
    digits = Context(prec=min(precision, _MOST_DIGITS), rounding=ROUND_HALF_UP)
    try:
        return f"{Decimal(value).quantize(Decimal(1).scaleb(-scale), context=digits):f}"
    except InvalidOperation:  # it has more digits
        return None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _date(value: Any) -> str | None:
    if not _is_written(value, _DATE):
        return None
    return date.fromisoformat(value).isoformat()


def _moment(value: Any) -> str | None:
    if not _is_written(value, _TIME):
        return None
    moment = datetime.fromisoformat(value.upper())
    zoned = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return zoned.isoformat()


def _local_moment(value: Any) -> str | None:
    if not _is_written(value, _TIME):
        return None
    moment = datetime.fromisoformat(value.upper())
    return moment.isoformat() if moment.tzinfo is None else None


def _string(value: Any) -> str | None:
    text = value if isinstance(value, str) else _written(value)
    return str(text) if _is_text(text) else None


def _written(value: Any) -> str:
    match value:
        case _Number():
            return str(value)
        case dict():
            pairs = (f"{_written(name)}:{_written(inner)}" for name, inner in value.items())
            return f"{{{','.join(pairs)}}}"
        case list():
            return f"[{','.join(map(_written, value))}]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _is_written(value: Any, form: re.Pattern[str]) -> bool:
    if isinstance(value, _Number) or not isinstance(value, str):
        return False
    return value.isascii() and form.fullmatch(value) is not None


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _or_null(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A date that the calendar lacks is null, and the body's other fields stay."""

    def reader(value: Any) -> Any:
        try:
            return read(value)
        except (ValueError, OverflowError):
            return None

    return reader


_READERS: dict[str, Callable[[Any], Any]] = {
    "STRING": _string,
    "BOOLEAN": _boolean,
    **dict.fromkeys(("FLOAT", "REAL"), _float),
    "DOUBLE": _double,
    "DATE": _or_null(_date),
    "TIMESTAMP": _or_null(_moment),
    "TIMESTAMP_NTZ": _or_null(_local_moment),
}
