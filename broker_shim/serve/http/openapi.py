"""Describe the endpoints as OpenAPI 3.1, from the table of them and the models of msgspec. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from broker_shim.security.rules.http_roles import HttpRole
from broker_shim.security.rules.rights import RIGHTS, Act
from broker_shim.serve.http.bodies import ProblemAnswer
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.endpoint import API, Endpoint
from sparkstore import __version__

PATH = API + "/openapi.json"
_REFERENCE = "#/components/schemas/{name}"
_LOGINS = {
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "certificate": {"type": "mutualTLS"},
}
_TEXT = {"text/plain": {"schema": {"type": "string"}}}


def description_of(endpoints: tuple[Endpoint, ...]) -> Endpoint:
    """Make the endpoint that describes these endpoints, and itself."""

    async def describe(call: Call) -> dict[str, Any]:  # noqa: ARG001  # as all endpoints
        """Describe all endpoints as OpenAPI."""
        return openapi_of([*endpoints, itself], __version__)

    itself = Endpoint("GET", PATH, HttpRole.MONITOR, describe)
    return itself


def openapi_of(endpoints: Iterable[Endpoint], version: str) -> dict[str, Any]:
    """Describe endpoints as an OpenAPI document.

    Args:
        endpoints: All that there are.
        version: The release of the broker.
    """
    every = [*endpoints]
    models = {model for one in every for model in (one.answer, one.body) if model is not None}
    _, components = msgspec.json.schema_components(
        [*sorted(models, key=lambda model: model.__name__), ProblemAnswer], ref_template=_REFERENCE
    )
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in every:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "sparkstore", "version": version},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _LOGINS},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    summary = (endpoint.run.__doc__ or "").partition("\n")[0]
    problem = {"description": "Why not, and what to do.", "content": _json(ProblemAnswer)}
    answer = _TEXT if endpoint.answer is None else _json(endpoint.answer)
    operation: dict[str, Any] = {
        "operationId": getattr(endpoint.run, "__name__", endpoint.path),
        "summary": summary,
        "parameters": [*_names(endpoint.path), *_parameters(endpoint)],
        "responses": {"200": {"description": summary, "content": answer}, "default": problem},
        "x-role": endpoint.role,
        "x-rights": rights_of(endpoint.acts),
        "x-target-rights": rights_of(endpoint.target_acts),
        "x-changes": endpoint.changes,
        "x-dry-run": endpoint.has_dry_run,
        "security": [] if endpoint.role is None else [{name: [endpoint.role]} for name in _LOGINS],
    }
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": _json(endpoint.body)}
    return operation


def rights_of(acts: Iterable[Act]) -> list[str]:
    """Name the rights that acts take, each once."""
    return [*dict.fromkeys(str(RIGHTS[act]) for act in acts)]


def _json(model: type) -> dict[str, Any]:
    reference = {"$ref": _REFERENCE.format(name=model.__name__)}
    return {"application/json": {"schema": reference}}


def _names(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    if endpoint.query is None:
        return []
    _, components = msgspec.json.schema_components([endpoint.query], ref_template=_REFERENCE)
    schema = components[endpoint.query.__name__]
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": row}
        for name, row in schema["properties"].items()
    ]
