"""Keep a witness's object in a Kubernetes Lease, by plain HTTPS and the pod's service account.

    witness = "kubernetes:NAMESPACE/NAME"

The object is one annotation; holder, length and time of renewal stand in the spec as well, so that
`kubectl get lease` shows who serves. Nobody decides by these: only by the annotation, and by clocks
of their own. (client-go's leader election does likewise, and says of itself that it fences nobody;
what fences here is that a store confirms nothing without its lease: `sparkstore.witness.lease`.)

Why of several who replace the object one wins: an update names the `resourceVersion` that it was
made of, and the API server refuses it by 409 if the Lease has another one by then. It is read from
a quorum, since no `resourceVersion` is asked for. The `uid` goes along, too, without which the
update of a Lease that somebody deleted would make it anew, whatever it said last. An answer that is
lost leaves the outcome unknown; the next look shows it, since each object is of one writer and has
a number.

A Lease without the annotation and without a holder is one that has no object yet. So a manifest can
make it, and the role of the service account needs no more than `get` and `update` of this one name.
The token is read for each request, since it is replaced while the pod runs.

Decision: no client library. `kubernetes-asyncio` and `kubernetes` bring an event loop or urllib3,
and thousands of generated modules, for two requests that the standard library can send.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from sparkstore.errors import InvalidRequest, Unavailable
from sparkstore.storage.storage import StoredContent
from sparkstore.witness.holder import unpacked

SCHEME = "kubernetes:"
HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
ACCOUNT = "SPARKSTORE_SERVICE_ACCOUNT"
"""A folder with `token` and `ca.crt`, for a process that runs in no pod."""
_OF_THE_POD = "/var/run/secrets/kubernetes.io/serviceaccount"
_HELD = "sparkstore/holder"
_LONGEST = 1 << 20
_OK, _CREATED, _UNAUTHORIZED, _FORBIDDEN, _ABSENT, _CONFLICT = 200, 201, 401, 403, 404, 409
_TOO_MANY, _FAILED = 429, 500
_NO_LEASE = (ValueError, KeyError, TypeError)
"""What an answer raises that is no Lease."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class _Answer(NamedTuple):
    status: int
    body: dict[str, Any]


class KubernetesPlace:
    """The object in a Lease; may be used from several threads."""

    def __init__(
        self, where: str, patience_s: float, environment: Mapping[str, str] = os.environ
    ) -> None:
        """Prepare; nothing is asked yet.

        Raises:
            InvalidRequest: `where` names no Lease, or this process is in no cluster.
        """
        namespace, _, name = where.removeprefix(SCHEME).partition("/")
        if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
            raise InvalidRequest(f"witness is {where!r}: say kubernetes:NAMESPACE/NAME of a Lease")
        if not environment.get(HOST):
            message = f"witness is {where!r}, and {HOST} is not set: this process is in no pod; set"
            raise InvalidRequest(f"{message} {HOST}, {PORT} and {ACCOUNT} (docs/failover.md)")
        self._where, self._patience_s = where, patience_s
        self._namespace, self._name = namespace, name
        self._address = environment[HOST], int(environment.get(PORT, "443"))
        self._account = Path(environment.get(ACCOUNT, _OF_THE_POD))
        self._last: dict[str, Any] = {}

    @property
    def location(self) -> str:
        """Return the name of the Lease."""
        return self._where

    def read(self) -> StoredContent | None:
        """Read the object, as `WitnessPlace` says."""
        lease = self._lease()
        content = None if lease is None else _content(lease)
        if lease is None or content is None:
            return None
        return StoredContent(content, _version(lease))

    def put_if_absent(self, content: bytes) -> bool:
        """Write the object if there is none, as `WitnessPlace` says."""
        lease = self._lease()
        if lease is not None:
            standing = _content(lease)
            return standing == content if standing is not None else self._update(lease, content)
        metadata = {"name": self._name, "namespace": self._namespace}
        answer = self._asked("POST", "", self._written({"metadata": metadata}, content))
        if answer.status == _CONFLICT:
            return False
        if answer.status == _ABSENT:
            raise InvalidRequest(f"{self._where}: there is no such namespace")
        return True

    def replace_if_unchanged(self, content: bytes, tag: str) -> bool:
        """Replace the object if it is unchanged, as `WitnessPlace` says."""
        lease: dict[str, Any] | None = self._last
        if not lease or _version(lease) != tag:
            lease = self._lease()
        if lease is None or _content(lease) is None:
            return False
        if _version(lease) != tag:
            return _content(lease) == content
        return self._update(lease, content)

    def delete(self) -> None:
        """Leave the Lease without an object; the Lease itself may be a manifest's."""
        lease = self._lease()
        if lease is None:
            return
        annotations = dict(lease["metadata"].get("annotations") or {})
        annotations.pop(_HELD, None)
        metadata = lease["metadata"] | {"annotations": annotations}
        self._asked("PUT", f"/{self._name}", lease | {"metadata": metadata, "spec": {}})

    def _update(self, lease: dict[str, Any], content: bytes) -> bool:
        answer = self._asked("PUT", f"/{self._name}", self._written(lease, content))
        if answer.status in {_CONFLICT, _ABSENT}:
            standing = self._lease()
            return standing is not None and _content(standing) == content
        self._last = answer.body
        return True

    def _written(self, lease: dict[str, Any], content: bytes) -> dict[str, Any]:
        """Return a Lease with another object, and all else as it was."""
        holder = unpacked(self._where, content)
        annotations = (lease["metadata"].get("annotations") or {}) | {_HELD: content.decode()}
        spec = (lease.get("spec") or {}) | {
            "holderIdentity": "" if holder.is_closed else holder.where,
            "leaseDurationSeconds": math.ceil(holder.lease_s),
            "renewTime": datetime.now(UTC).isoformat(timespec="microseconds")[:-6] + "Z",
            "leaseTransitions": holder.generation,
        }
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": lease["metadata"] | {"annotations": annotations},
            "spec": spec,
        }

    def _lease(self) -> dict[str, Any] | None:
        answer = self._asked("GET", f"/{self._name}")
        if answer.status == _ABSENT:
            return None
        lease = answer.body
        holder = (lease.get("spec") or {}).get("holderIdentity")
        if holder and _content(lease) is None:
            message = f"{self._where} is the Lease of something else, {holder}: name another one"
            raise InvalidRequest(message)
        self._last = lease
        return lease

    # ------------------------------------------------------------------- requests

    def _asked(self, method: str, name: str, body: dict[str, Any] | None = None) -> _Answer:
        """Send one request; the answer, if it is one of those that decide.

        Raises:
            InvalidRequest: The service account may not do that.
            Unavailable: The API server did not answer, or not now.
        """
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases{name}"
        try:
            answer = self._sent(method, path, body)
        except (OSError, http.client.HTTPException, *_NO_LEASE) as reason:
            message = f"{self._where}: the API server did not answer: {reason}"
            raise Unavailable(message) from reason
        if answer.status in {_OK, _CREATED, _ABSENT, _CONFLICT}:
            return answer
        text = f"{answer.status} {answer.body.get('message', '')}".strip()[:300]
        message = f"{self._where}: the API server says {text}"
        if answer.status in {_UNAUTHORIZED, _TOO_MANY} or answer.status >= _FAILED:
            raise Unavailable(message)
        if answer.status == _FORBIDDEN:
            message += ": its role needs get and update of this Lease (conf/kubernetes)"
        raise InvalidRequest(message)

    def _sent(self, method: str, path: str, body: dict[str, Any] | None) -> _Answer:
        """Send a request over a connection of its own: few are sent, and none finds a stale one."""
        token = (self._account / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        tls = ssl.create_default_context(cafile=self._account / "ca.crt")
        connection = http.client.HTTPSConnection(
            *self._address, timeout=self._patience_s, context=tls
        )
        try:
            connection.request(method, path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            content = response.read(_LONGEST)
        finally:
            connection.close()
        decoded = json.loads(content) if content else {}
        if response.status in {_OK, _CREATED}:
            _ = decoded["metadata"]["resourceVersion"]
        return _Answer(response.status, decoded if isinstance(decoded, dict) else {})


def _version(lease: dict[str, Any]) -> str:
    return str(lease["metadata"]["resourceVersion"])


def _content(lease: dict[str, Any]) -> bytes | None:
    held = (lease["metadata"].get("annotations") or {}).get(_HELD)
    return None if held is None else str(held).encode()
