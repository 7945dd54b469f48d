"""Parse texts that name a queue: `address::queue`, in full, or a queue alone. Pure.

    said                what it is
    address::queue      that queue on that address, and no other (a fully qualified queue name)
    name                the queue `name` on the address of the same name

The store calls a queue by one text only: `address::queue`, or the queue alone where its address
has the same name. So each queue has one name in SQL, and a plain name is what it always was.

Patterns of addresses are read here, too. Here and not in `broker_shim.addressing`, which stands on
this: the command line of a root that nobody serves takes the same names.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparkstore.errors import InvalidRequest

SEPARATOR = "::"
TEMPORARY = "temporary"
"""The address of the queues that clients have the broker name, in permissions."""
MANAGEMENT = "$management"
"""Where AMQP 1.0 clients send requests about queues."""
TEMPORARY_PREFIX = TEMPORARY + "-"
"""Of the names that the broker gives."""
TOPIC_PREFIX = TEMPORARY_PREFIX + "topic-"
"""Of the names that the broker gives to temporary topics."""
SUBSCRIPTION_PREFIX = "subscription."
"""Of the names of queues of subscriptions that outlive their link."""
_SHOWN_CHARACTERS = 60


def split(text: str) -> tuple[str, str] | None:
    """Address and queue of a full name; None for a name without `::`.

    Raises:
        InvalidRequest: A half is empty, or there is a second `::` (the second colon of three
            begins one, too: else two addresses would be spelt alike).
    """
    at = text.find(SEPARATOR)
    if at < 0:
        return None
    address, queue = text[:at], text[at + len(SEPARATOR) :]
    if not address or not queue:
        message = f"{shown(text)} has no {'queue' if address else 'address'}: say address::queue"
        raise InvalidRequest(message)
    if text.find(SEPARATOR, at + 1) >= 0:
        message = f"{shown(text)} has more than one '::': say address::queue"
        raise InvalidRequest(message)
    return address, queue


def full(address: str, queue: str) -> str:
    """Return the store's name of a queue on an address."""
    return queue if address == queue else f"{address}{SEPARATOR}{queue}"


def canonical(text: str) -> str:
    """Return the store's name of a queue that somebody named, whether it exists or not.

    Raises:
        InvalidRequest: The name has an empty half, or a second `::` (`split`).
    """
    parts = split(text)
    return text if parts is None else full(*parts)


def parts_of(name: str) -> tuple[str, str]:
    """Address and queue of a name that the store has; the other way round than `full`.

    A root may have names that nobody could give a queue now (`a::b::c`). Such a queue is on the
    address of its own name, so it is found by that name, as it was before.
    """
    try:
        parts = split(name)
    except InvalidRequest:
        return name, name
    return (name, name) if parts is None or parts[0] == parts[1] else parts


def is_reserved(name: str) -> bool:
    """True for a queue that a client or the settings may not name, but the broker alone.

    `temporary`, and what begins with `temporary-`, alone or on either side of `::`. Permissions
    speak of the queues that the broker names as of `temporary`; and could anybody make
    `temporary::orders`, what others send to the plain name `orders` would go there. What is sent to
    `$management` is a request.
    """
    own = TEMPORARY, MANAGEMENT
    return any(part in own or part.startswith(TEMPORARY_PREFIX) for part in parts_of(name))


def is_temporary_topic(address: str) -> bool:
    """True for an address that a client had the broker name, as a topic."""
    return address.startswith(TOPIC_PREFIX)


def is_subscription(address: str, queue: str) -> bool:
    """True if a queue on an address is a subscription's: only the broker gives it such a name."""
    return address != queue and queue.startswith((SUBSCRIPTION_PREFIX, TEMPORARY_PREFIX))


def find(text: str, names: Collection[str]) -> str:
    """Return the existing queue that a text names; if none fits, the name that it would have.

    Raises:
        InvalidRequest: Several addresses have a queue of this short name; see `split`.
    """
    if text in names:
        return text
    if SEPARATOR in text:
        return canonical(text)
    candidates = sorted(name for name in names if name.endswith(text) and parts_of(name)[1] == text)
    if len(candidates) > 1:
        message = f"{shown(text)} is on several addresses: say {' or '.join(candidates)}"
        raise InvalidRequest(message)
    return candidates[0] if candidates else text


def shown(name: str) -> str:
    """A name for an error or the log: a peer may send one of any length, with anything in it."""
    if len(name) <= _SHOWN_CHARACTERS:
        return repr(name)
    return f"{name[:_SHOWN_CHARACTERS]!r}… ({len(name)} characters)"


class WordPattern:
    """A pattern of an address's words: `*` is any one, `#` any number of them, none too.

    It is followed at all of its places at once: bit n is set when n of its words are used up.
    """

    def __init__(self, words: Sequence[str]) -> None:
        """Begin with the words of a pattern, as `words_of` gives them."""
        self._takes: dict[str, int] = {}
        for place, word in enumerate(words):
            self._takes[word] = self._takes.get(word, 0) | 1 << place
        self._hashes = self._takes.pop("#", 0)
        self._stars = self._takes.pop("*", 0)
        self._end = 1 << len(words)

    def fits(self, words: Sequence[str]) -> bool:
        """True if it fits these words: some steps for each, however long the pattern is."""
        hashes, stars, takes = self._hashes, self._stars, self._takes
        here = 1 | (1 & hashes) << 1
        for word in words:
            here = (here & (stars | takes.get(word, 0))) << 1 | here & hashes
            here |= (here & hashes) << 1
        return bool(here & self._end)

    def includes(self, words: Sequence[str]) -> bool:
        """True only if it fits all that a pattern of these words (`words_of`) fits.

        A place stands for what every text so far leads to: an unknown word leads on only from `*`
        and `#`, and any number of unknown words only stay at a `#`. A place that some texts lead to
        by one way and some by another is not followed, so a false answer may be wrong (`a.*.#` and
        `a.#.a`): whoever asks about rights is refused then.
        """
        hashes, stars, takes = self._hashes, self._stars, self._takes
        here = 1 | (1 & hashes) << 1
        for word in words:
            onward = 0 if word == "#" else here & (stars | takes.get(word, 0))
            here = onward << 1 | here & hashes
            here |= (here & hashes) << 1
        return bool(here & self._end)


def words_of(pattern: str) -> tuple[str, ...]:
    """The words of the one pattern that stands for all that mean the same."""
    words: list[str] = []
    is_any = False
    for word in pattern.split("."):
        if word == "#":
            is_any = True
            continue
        if is_any and word != "*":
            words.append("#")
            is_any = False
        words.append(word)
    return (*words, "#") if is_any else tuple(words)
