"""Orders about connections of members, which may be of another release."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.members.inquiries import Inquiries, MemberAnswers
from broker_shim.serve.administration.connection_orders import ConnectionOrders, LinkRows

MISSING = {"error": "InvalidRequest", "message": "there is no connection 7"}
OLDER = {
    "error": "InvalidRequest",
    "message": "a member knows its connections, and nothing else",
}
NEWER = {"links": {"rows": [{"name": "l", "colour": "red"}], "left_out": 3, "more": 1}}


class OtherRelease(Inquiries):
    """A member that answers as one of another release does."""

    def __init__(self, answer: dict[str, Any]) -> None:
        """Answer each question with this."""
        self._answer = answer

    def ask(
        self,
        question: dict[str, Any],
        on_answers: Callable[[MemberAnswers], None],
        member: str | None = None,
    ) -> None:
        """Answer at once."""
        assert question == {"links": 7, "limit": 5}
        on_answers(MemberAnswers({str(member): self._answer}, []))


def links(answer: dict[str, Any]) -> LinkRows | StoreError:
    answers: list[LinkRows | StoreError] = []
    orders = ConnectionOrders(tuple, lambda *_, **__: None, OtherRelease(answer))
    orders.links(7, "one", 5, answers.append)
    return answers[0]


def test_a_newer_member_may_tell_more_than_is_known_here() -> None:
    assert links(NEWER) == LinkRows([{"name": "l", "colour": "red"}], 3)


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [(OLDER, Unavailable, "of an older release"), (MISSING, InvalidRequest, "no connection 7")],
)
def test_an_older_member_is_no_connection_that_has_ended(
    answer: dict[str, Any], kind: type[StoreError], text: str
) -> None:
    error = links(answer)
    assert isinstance(error, kind)
    assert text in str(error)
