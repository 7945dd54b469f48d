"""Names of queues: the scenarios of ARTEMIS-1093, parsing, and the registry as a whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_shim.addressing.bindings import AddressManager, Ambiguous, Binding, Routing
from broker_shim.addressing.fqqn import BindingKey, key_of, name_of, parse
from broker_shim.errors import InvalidRequest
from sparkstore.core.queue_names import canonical, find

PARTS = st.sampled_from(["a", "b", "q", "r", "a:", ":", "é"])
KEYS = st.builds(BindingKey, PARTS, PARTS)


def manager_of(*names: str) -> AddressManager:
    manager = AddressManager()
    for name in names:
        manager.add(name)
    return manager


@pytest.fixture
def manager() -> AddressManager:
    """The three queues of ARTEMIS-1093."""
    return manager_of("address1::q1", "address1::q2", "address2::q1")


def test_scenario_1_a_short_name_that_one_queue_has_resolves(manager: AddressManager) -> None:
    key = BindingKey("address1", "q2")
    assert manager.resolve("q2") == Binding(key, "address1::q2")


def test_scenario_2_a_full_name_resolves_directly(manager: AddressManager) -> None:
    key = BindingKey("address2", "q1")
    assert manager.resolve("address2::q1") == Binding(key, "address2::q1")


def test_scenario_3_a_short_name_of_two_queues_has_no_result_and_names_both(
    manager: AddressManager,
) -> None:
    assert manager.resolve("q1") == Ambiguous("q1", ("address1::q1", "address2::q1"))


def test_a_short_name_resolves_again_once_one_queue_of_it_is_left(manager: AddressManager) -> None:
    manager.remove("address1::q1")
    assert manager.resolve("q1") == Binding(BindingKey("address2", "q1"), "address2::q1")


def test_a_queue_on_the_address_of_its_own_name_is_what_its_name_says() -> None:
    manager = manager_of("address1::q1", "address2::q1", "q1")
    assert manager.resolve("q1") == manager.resolve("q1::q1") == Binding(key_of("q1"), "q1")
    manager.remove("q1")
    assert isinstance(manager.resolve("q1"), Ambiguous)


@pytest.mark.parametrize("name", ["q3", "address2::q2", "address3::q1", "address1", ""])
def test_a_queue_that_is_not_there_has_no_result(manager: AddressManager, name: str) -> None:
    assert manager.resolve(name) is None


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("a::q", BindingKey("a", "q")),
        ("a:b::q:r", BindingKey("a:b", "q:r")),
        ("a/b c::q.r", BindingKey("a/b c", "q.r")),
        ("q", None),
        ("a:q", None),
    ],
)
def test_the_first_two_colons_part_address_and_queue(name: str, key: BindingKey | None) -> None:
    assert parse(name) == key


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("::q", "no address"),
        ("a::", "no queue"),
        ("::", "no address"),
        (":::", "no address"),
        ("a::b::c", "more than one"),
        ("a:::b", "more than one"),
        ("a::::b", "more than one"),
        ("a::b::", "more than one"),
    ],
)
def test_a_malformed_name_is_refused_and_told_how_it_is_spelt(name: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as refusal:
        parse(name)
    assert "say address::queue" in str(refusal.value)
    with pytest.raises(InvalidRequest):
        AddressManager().resolve(name)


@pytest.mark.parametrize("name", ["a" * 9_997 + "::" + "q" * 10, "::" + "q" * 10_000, "q" * 10_000])
def test_a_name_of_ten_thousand_characters_is_found_or_refused_in_a_short_line(name: str) -> None:
    if name.startswith("::"):
        with pytest.raises(InvalidRequest) as refusal:
            parse(name)
        assert len(str(refusal.value)) < 200
    else:
        assert manager_of(name).resolve(name) == Binding(key_of(name), name)


@given(KEYS)
def test_a_queue_has_one_name_in_the_store_and_each_name_one_queue(key: BindingKey) -> None:
    try:
        parse(f"{key.address}::{key.queue}")
    except InvalidRequest:
        return
    if parse(f"{key.address}::{key.queue}") == key:
        assert key_of(name_of(key)) == key
        assert canonical(f"{key.address}::{key.queue}") == name_of(key)


@pytest.mark.parametrize("name", ["a::b::c", "::x", "q::q", "x::"])
def test_a_queue_that_was_named_so_before_such_names_meant_anything_is_still_found(
    name: str,
) -> None:
    assert manager_of(name, "q").resolve(name) == Binding(BindingKey(name, name), name)


OPERATIONS = st.lists(st.tuples(st.booleans(), KEYS), max_size=30)


def expected(keys: set[BindingKey], name: str) -> Binding | Ambiguous | str | None:
    """What a name means, by looking at every key: the model."""
    named = {name_of(key): key for key in keys}
    if name in named:
        return Binding(named[name], name)
    having = sorted(key for key in keys if key.queue == name)
    if having:
        names = tuple(name_of(key) for key in having)
        return Ambiguous(name, names) if len(names) > 1 else Binding(having[0], names[0])
    try:
        parsed = parse(name)
    except InvalidRequest:
        return "malformed"
    return Binding(parsed, name_of(parsed)) if parsed in keys else None


@given(OPERATIONS)
def test_after_any_changes_every_name_means_what_the_bindings_say(
    operations: list[tuple[bool, BindingKey]],
) -> None:
    manager, keys = AddressManager(), set[BindingKey]()
    asked = {"a", "b", "q", "r", "a:", ":", "é", "none", "a::none", "q::q", "::q", "a::b::c"}
    for is_added, key in operations:
        name = name_of(key)
        if key_of(name) != key:
            continue  # nobody can say it
        asked |= {name, f"{key.address}::{key.queue}"}
        (manager.add if is_added else manager.remove)(name)
        (keys.add if is_added else keys.discard)(key)
        for each in asked:
            try:
                found: object = manager.resolve(each)
            except InvalidRequest:
                found = "malformed"
            assert found == expected(keys, each), each
        for address in {key.address, "a"}:
            assert {binding.key for binding in manager.on(address)} == {
                each for each in keys if each.address == address
            }
            assert (address in manager) == any(each.address == address for each in keys)


def test_adding_and_removing_a_queue_leaves_nothing_behind() -> None:
    manager, untouched = AddressManager(), AddressManager()
    for name in ("a::q", "b::q", "q", "q::r"):
        manager.add(name)
        manager.add(name)
    for name in ("a::q", "b::q", "q", "q::r"):
        manager.remove(name)
        manager.remove(name)
    assert vars(manager) == vars(untouched)


def test_a_multicast_address_routes_to_all_its_queues() -> None:
    manager = manager_of("news::a", "news::b", "other::c", "news")
    assert sorted(manager.route("news", Routing.MULTICAST)) == ["news", "news::a", "news::b"]


def test_the_queues_of_an_anycast_address_take_turns() -> None:
    manager = manager_of("work::a", "work::b", "work::c")
    routed = [manager.route("work", Routing.ANYCAST) for _ in range(6)]
    assert routed == [("work::a",), ("work::b",), ("work::c",)] * 2
    manager.remove("work::b")
    assert {manager.route("work", Routing.ANYCAST) for _ in range(4)} == {
        ("work::a",),
        ("work::c",),
    }


def test_a_queue_of_the_addresss_own_name_gets_all_that_is_sent_to_an_anycast_address() -> None:
    manager = manager_of("work::a", "work")
    assert [manager.route("work", Routing.ANYCAST) for _ in range(3)] == [("work",)] * 3


@pytest.mark.parametrize("routing", Routing)
def test_an_address_without_queues_routes_nowhere(routing: Routing) -> None:
    assert manager_of("work::a").route("other", routing) == ()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("q1", "q1"),
        ("q2", "address1::q2"),
        ("q1::q1", "q1"),
        ("address1::q1", "address1::q1"),
        ("q4", "q4"),
        ("a::q4", "a::q4"),
    ],
)
def test_the_command_line_finds_a_queue_by_the_same_names(text: str, name: str) -> None:
    assert find(text, {"q1", "address1::q1", "address1::q2", "a::q3", "b::q3"}) == name


def test_an_ambiguous_name_on_the_command_line_is_refused_with_the_candidates() -> None:
    with pytest.raises(InvalidRequest, match="a::q3 or b::q3"):
        find("q3", {"b::q3", "a::q3", "a::xq3"})
