"""Who holds an entry, and the refusals of everybody else."""

from __future__ import annotations

from sparkstore.errors import InvalidRequest, NotAcquired


def held(queue: str, message_id: int, holder: str) -> NotAcquired:
    """The refusal of what somebody else has."""
    return NotAcquired(f"message {message_id} on queue {queue!r} is held by {holder}")


def check_holder(queue: str, message_id: int, acquired_by: str | None, holder: str) -> None:
    """Only the one who holds an entry may give it back.

    Raises:
        InvalidRequest: Nobody holds it.
        NotAcquired: Somebody else than `holder` holds it.
    """
    if acquired_by is None:
        message = f"message {message_id} on queue {queue!r} is not acquired"
        raise InvalidRequest(message)
    if acquired_by != holder:
        raise held(queue, message_id, acquired_by)
