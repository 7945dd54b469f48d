"""Users and rules over HTTP: what they tell, and to whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_shim.security.rules.permissions import Permission, Rule
from tests.support.stores.http_houses import HttpHouse

pytestmark = pytest.mark.slow


def test_users_and_rules_are_shown_to_administrators(tmp_path: Path) -> None:
    rules = (Rule(frozenset({"role:shop", "ada"}), "orders.#", frozenset({Permission.READ})),)
    it = HttpHouse(tmp_path, {"ada": ("admin",), "mia": ("monitor", "shop")}, rules)
    try:
        reply, refused = (
            it.ask("GET", "/api/v1/users", "ada"),
            it.ask("GET", "/api/v1/users", "mia"),
        )
    finally:
        it.stop()
    assert reply.body == {
        "requires_login": True,
        "users": [
            {"name": "ada", "roles": ["admin"]},
            {"name": "mia", "roles": ["monitor", "shop"]},
        ],
        "rules": [{"who": ["ada", "role:shop"], "address": "orders.#", "allow": ["read"]}],
    }
    assert refused.status == 403
