"""Refuse names and arguments of an administrator's order that nobody could use. Pure.

All of them raise InvalidRequest, with what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparkstore.core.queue_arguments import QueueArguments
from sparkstore.core.queue_names import shown
from sparkstore.errors import InvalidRequest
from sparkstore.settings_file import check_names

_MOST_CHARACTERS, _MOST_WORDS = 10_000, 256
"""Of a name: no client could say a longer one."""


def check_name(what: str, name: str) -> None:
    """Refuse a name that no client could say."""
    if not name:
        message = f"a {what} needs a name of at least one character"
        raise InvalidRequest(message)
    try:
        name.encode()
    except UnicodeEncodeError as reason:
        message = f"{what} {name[:40]!a} is not valid Unicode"
        raise InvalidRequest(message) from reason
    if len(name) > _MOST_CHARACTERS or name.count(".") >= _MOST_WORDS:
        message = f"{what} {shown(name)}: a name has at most {_MOST_CHARACTERS} characters and"
        raise InvalidRequest(f"{message} {_MOST_WORDS} words")


def check_known(what: str, name: str, arguments: Collection[str]) -> None:
    """Refuse arguments of queues that are misspelt: the store would ask nothing of them."""
    known = QueueArguments._fields
    check_names(dict.fromkeys(arguments), known, "argument", f"of {what} {shown(name)}")


def check_loss(what: str, name: str, losses: Sequence[str], *, is_forced: bool) -> None:
    """Refuse to delete what somebody would miss, unless by force."""
    if losses and not is_forced:
        message = f"{what} {shown(name)} has {', '.join(losses)}: --force deletes it (over HTTP"
        message = f"{message} ?force=true), and that is lost"
        raise InvalidRequest(message)
