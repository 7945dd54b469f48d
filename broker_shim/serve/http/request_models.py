"""Read the query and the body of a request as models, and say what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from broker_shim.errors import InvalidRequest
from broker_shim.serve.http.bodies import Model
from broker_shim.serve.http.port.exchange import JSON, HttpExchange
from broker_shim.serve.http.refusals import HttpRefusal
from broker_shim.serve.http.refused_values import refused_value
from sparkstore.settings_file import check_names

MOST_BODY_BYTES, MOST_LONG_BODY_BYTES = 1 << 20, 16 << 20
M = TypeVar("M", bound=Model)


def query_of(model: type[M] | None, query: Mapping[str, str]) -> M | None:
    """Read what stands after the question mark.

    Raises:
        HttpRefusal: A name is unknown, or a value is of a wrong type or out of bounds.
    """
    for name, value in query.items():
        if "\0" in value:  # no SQL can have it
            raise HttpRefusal(400, f"query: {name!r:.80} has a NUL character: leave it out")
    if model is None:
        _check_names(query, (), "query parameter")
        return None
    _check_names(query, model.__struct_encode_fields__, "query parameter")
    try:
        return msgspec.convert(dict(query), model, strict=False)
    except msgspec.ValidationError as reason:
        text = refused_value(reason, query, "query parameter")
        raise HttpRefusal(400, text) from reason


async def body_of_request(
    model: type[M] | None, request: HttpExchange, most_bytes: int = MOST_BODY_BYTES
) -> M | None:
    """Read the body; of a request that has none by its model, nothing may come.

    Raises:
        HttpRefusal: It is too large, no JSON, has an unknown name or a value of a wrong type.
    """
    content = await _content(request, most_bytes)
    if model is None:
        if content:
            raise HttpRefusal(400, "this request has no body: leave it out")
        return None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise HttpRefusal(415, "send the body as JSON, with Content-Type: application/json")
    try:
        body = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as reason:
        raise HttpRefusal(400, f"the body is not JSON: {reason}") from reason
    if isinstance(body, dict):
        _check_names(body, model.__struct_fields__, "field")
    try:
        return msgspec.convert(body, model)
    except msgspec.ValidationError as reason:
        raise HttpRefusal(400, refused_value(reason, body, "field")) from reason


def _check_names(given: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    if not known and given:
        raise HttpRefusal(400, f"this request has no {what}s: leave {next(iter(given))!r:.80} out")
    try:
        check_names((name[:80] for name in given), known, what)
    except InvalidRequest as reason:
        raise HttpRefusal(400, str(reason)) from reason


async def _content(request: HttpExchange, most_bytes: int) -> bytes:
    too_large = HttpRefusal(413, f"the body is larger than {most_bytes} bytes: send less at once")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length[:18]) > most_bytes:
        raise too_large
    content = bytearray()
    try:
        async for piece in request.pieces():
            content += piece
            if len(content) > most_bytes:
                raise too_large
    except ConnectionResetError as reason:
        raise HttpRefusal(400, str(reason)) from reason
    return bytes(content)
