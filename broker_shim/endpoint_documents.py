"""Write the table of endpoints in `docs/http.md` from the table that is served.

`python -m broker_shim.generate` does so, after an endpoint changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from broker_shim.argument_documents import between
from broker_shim.serve.http.console.console_files import console_endpoints
from broker_shim.serve.http.endpoint import Endpoint
from broker_shim.serve.http.endpoints import ENDPOINTS
from broker_shim.serve.http.openapi import rights_of

PAGE = Path("docs/http.md")


def main() -> None:
    """Write the table of the page."""
    path = Path(__file__).parents[1] / PAGE
    path.write_text(page(path.read_text()))


def page(text: str) -> str:
    """Return the page of HTTP with the table of endpoints as they are served."""
    return between(text, "endpoints", _table([console_endpoints()[0], *ENDPOINTS]))


def _table(endpoints: Iterable[Endpoint]) -> Iterator[str]:
    yield "| request | role | right | changes | does |"
    yield "| --- | --- | --- | --- | --- |"
    for endpoint in endpoints:
        role = endpoint.role or "none, and no login"
        cells = (_request(endpoint), role, _rights(endpoint), _changes(endpoint), _does(endpoint))
        yield f"| {' | '.join(cells)} |"


def _request(endpoint: Endpoint) -> str:
    names = [] if endpoint.query is None else endpoint.query.__struct_encode_fields__
    return f"`{endpoint.method} {endpoint.path}{'?' if names else ''}{'&'.join(names)}`"


def _rights(endpoint: Endpoint) -> str:
    own = ", ".join(f"`{right}`" for right in rights_of(endpoint.acts))
    others = ", ".join(f"`{right}`" for right in rights_of(endpoint.target_acts))
    return ", ".join(filter(None, (own, others and f"elsewhere {others}")))


def _changes(endpoint: Endpoint) -> str:
    return ("yes, or a dry run" if endpoint.has_dry_run else "yes") if endpoint.changes else "no"


def _does(endpoint: Endpoint) -> str:
    sentence = (endpoint.run.__doc__ or "").partition("\n")[0]
    names = [] if endpoint.body is None else endpoint.body.__struct_encode_fields__
    fields = ", ".join(f"`{name}`" for name in names)
    return f"{sentence} Body: {fields}." if fields else sentence
