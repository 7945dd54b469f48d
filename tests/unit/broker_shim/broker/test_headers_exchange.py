"""Headers exchanges, and the alternates of exchanges: which queues a message goes to. Pure."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker_shim.broker.wiring.routing import Router
from broker_shim.store.interface import Exchange
from sparkstore.core.wiring_arguments import ALTERNATE_EXCHANGE, HeaderValue

NAMES = st.sampled_from(["land", "year", "urgent"])
VALUES = st.sampled_from([1, 1.0, 2, True, False, "1", "eu", ""])
ASKED = st.builds(
    lambda headers, match: headers | ({} if match is None else {"x-match": match}),
    st.dictionaries(NAMES, VALUES | st.none(), max_size=3),
    st.sampled_from([None, "all", "any"]),
)
ORDERS = st.lists(st.tuples(st.booleans(), st.integers(0, 5), ASKED), max_size=12)


def fits(asked: dict[str, Any], message: dict[str, HeaderValue]) -> bool:
    """What a binding asks, word by word: the model."""

    def is_so(name: str, wanted: HeaderValue) -> bool:
        found = message.get(name)
        if found is None or wanted is None:
            return found is not None
        return isinstance(found, bool) == isinstance(wanted, bool) and found == wanted

    told = [is_so(name, wanted) for name, wanted in asked.items() if name != "x-match"]
    return any(told) if asked.get("x-match") == "any" else all(told)


@given(ORDERS, st.dictionaries(NAMES, VALUES, max_size=3))
def test_a_message_goes_to_the_queues_whose_bindings_it_fits(
    orders: list[tuple[bool, int, dict[str, Any]]], message: dict[str, HeaderValue]
) -> None:
    router, bound = Router(), dict[int, dict[str, Any]]()
    router.add_exchange(Exchange("h", "headers"))
    for is_bound, number, asked in orders:
        queue = f"queue {number // 2}"  # two keys of each
        if not is_bound:
            router.unbind("h", str(number), queue)
            bound.pop(number, None)
        elif asked != {"x-match": "any"}:  # refused before it comes here: nothing fits it
            router.bind("h", str(number), queue, asked)
            bound[number] = asked
    expected = {f"queue {number // 2}" for number, asked in bound.items() if fits(asked, message)}
    assert router.route("h", "key", message.get) == expected
    for number in [*bound]:
        router.unbind_queue(f"queue {number // 2}")
    assert not router.route("h", "key", message.get)
    assert not router.bindings()


def test_a_message_that_goes_nowhere_goes_where_the_alternate_sends_it_and_on() -> None:
    router = Router()
    router.add_exchange(Exchange("end", "fanout"))
    router.add_exchange(Exchange("middle", "direct", arguments={ALTERNATE_EXCHANGE: "end"}))
    router.add_exchange(Exchange("first", "topic", arguments={ALTERNATE_EXCHANGE: "middle"}))
    router.bind("first", "a.#", "a")
    router.bind("middle", "b", "b")
    assert router.route("first", "c") == set()
    router.bind("end", "", "all")
    found = [router.route("first", key) for key in ("a.x", "b", "c")]
    assert found == [{"a"}, {"b"}, {"all"}]
    assert router.with_alternate("end") == ["middle"]
    router.remove_exchange("first")
    assert router.with_alternate("middle") == []


def test_exchanges_that_are_each_others_alternates_end_the_way() -> None:
    router = Router()
    router.add_exchange(Exchange("a", "direct", arguments={ALTERNATE_EXCHANGE: "b"}))
    router.add_exchange(Exchange("b", "direct", arguments={ALTERNATE_EXCHANGE: "c"}))
    router.add_exchange(Exchange("c", "direct", arguments={ALTERNATE_EXCHANGE: "a"}))
    assert router.route("b", "nowhere") == set()
    router.bind("a", "x", "q")
    assert router.route("b", "x") == {"q"}
