"""Tell whose definitions a text is, and read it: ours, RabbitMQ's or Artemis'."""

from __future__ import annotations

import json
from typing import Any

from sparkstore.errors import InvalidRequest
from sparkstore.operations.definitions import artemis, document, rabbitmq
from sparkstore.operations.definitions.drafts import Definitions

_RABBITMQ = {"rabbit_version", "rabbitmq_version", "vhosts"}


def definitions_of(text: str, vhost: str | None = None) -> Definitions:
    """Read definitions, of whichever of the three forms.

    Args:
        text: The content of the file.
        vhost: Of RabbitMQ's: the virtual host; None: the only one.

    Raises:
        InvalidRequest: It is none of them.
    """
    if text.lstrip().startswith("<"):
        return artemis.read(text)
    document_read = _json(text)
    if document.MARK in document_read:
        return document.read(document_read)
    if _RABBITMQ & document_read.keys() or _names_a_vhost(document_read):
        return rabbitmq.read(document_read, vhost)
    message = "neither ours (sparkstore_definitions), nor RabbitMQ's (vhosts), nor Artemis' (XML)"
    raise InvalidRequest(message)


def _json(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as reason:
        raise InvalidRequest(f"no JSON: {reason}") from reason
    if not isinstance(content, dict):
        raise InvalidRequest("no definitions: a JSON object is wanted")
    return content


def _names_a_vhost(content: dict[str, Any]) -> bool:
    queues = content.get("queues")
    return isinstance(queues, list) and any(
        isinstance(queue, dict) and "vhost" in queue for queue in queues
    )
