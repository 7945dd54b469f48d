"""Who may be connected to the HTTP port, and who gives way to another."""

from __future__ import annotations

from broker_shim.serve.http.port.places import MOST_HELD_BYTES, Place, Places

HERE, THERE, ELSEWHERE = "127.0.0.1", "10.0.0.7", "10.0.0.8"


def enter(places: Places, host: str, gone: list[str], name: str = "") -> Place:
    """One more; it appends its name to `gone` when it gives way."""
    place = places.enter(host)
    place.on_give_way = lambda: gone.append(name)
    return place


def refusal(places: Places, host: str) -> str:
    return places.refusal_of_newcomer(host) or ""


def test_an_address_of_another_machine_has_a_quarter_of_the_places() -> None:
    places, gone = Places(8), list[str]()
    enter(places, ELSEWHERE, gone, "other")
    enter(places, THERE, gone, "first")
    enter(places, THERE, gone, "second")
    assert refusal(places, THERE) == "2 connections of this address are open"
    assert not refusal(places, ELSEWHERE)
    assert places.make_room(THERE)
    assert (gone, places.count) == (["first"], 2)
    assert not refusal(places, THERE)


def test_this_machine_has_all_places_and_the_oldest_that_waits_gives_way() -> None:
    places, gone = Places(8), list[str]()
    taken = [enter(places, HERE, gone, str(number)) for number in range(8)]
    taken[0].works()
    taken[1].works()
    taken[1].waits()
    for host in (HERE, THERE):
        assert refusal(places, host) == "8 connections are open"
    assert places.make_room(THERE)
    assert gone == ["2"]
    for _ in range(6):
        assert places.make_room(HERE)
    assert gone[-1] == "1"
    assert not places.make_room(HERE)
    taken[0].leave()
    taken[0].leave()
    assert places.count == 0


def test_an_address_whose_whole_quarter_works_for_it_is_refused() -> None:
    places, gone = Places(8), list[str]()
    enter(places, ELSEWHERE, gone)
    for _ in range(2):
        enter(places, THERE, gone).works()
    assert refusal(places, THERE)
    assert not places.make_room(THERE)
    assert places.make_room(ELSEWHERE)


def test_where_no_descriptor_is_left_the_oldest_gives_way() -> None:
    places, gone = Places(8), list[str]()
    enter(places, THERE, gone, "it")
    assert "LimitNOFILE" in str(places.refusal_of_newcomer(HERE, is_full=True))
    assert places.make_room(HERE)
    assert gone == ["it"]


def test_requests_have_half_the_places_and_one_that_waits_for_its_peer_gives_way() -> None:
    places, gone = Places(8), list[str]()
    asking = [enter(places, HERE, gone, str(number)) for number in range(5)]
    for place in asking[:4]:
        assert places.begin(place)
        place.is_asking = True
        place.works()
    assert not places.begin(asking[4])
    asking[2].waits()
    assert places.begin(asking[4])
    assert gone == ["2"]
    places.end(asking[2])
    assert places.request_count == 4


def test_an_address_has_a_quarter_of_the_requests() -> None:
    places, gone = Places(8), list[str]()
    first, second = (enter(places, THERE, gone) for _ in range(2))
    other = enter(places, ELSEWHERE, gone)
    assert places.begin(first)
    assert not places.begin(second)
    assert places.begin(other)
    places.end(first)
    assert places.begin(second)


def test_beyond_the_bytes_that_may_be_held_who_has_waited_for_longest_is_cut_off() -> None:
    places, gone = Places(8), list[str]()
    first, second, third, fourth = (enter(places, HERE, gone, str(number)) for number in range(4))
    for place in (first, second, third):
        place.holds(MOST_HELD_BYTES // 3)
    first.works()
    third.holds(0)
    fourth.holds(MOST_HELD_BYTES // 3)
    assert gone == []
    fourth.holds(MOST_HELD_BYTES // 2)
    assert gone == ["1"]
    fourth.works()
    first.holds(MOST_HELD_BYTES)  # both are being worked at
    assert gone == ["1"]
    third.holds(1)
    assert gone == ["1", "2"]


def test_all_that_wait_are_ended_or_all() -> None:
    places, gone = Places(8), list[str]()
    enter(places, HERE, gone, "waits")
    enter(places, HERE, gone, "works").works()
    places.end_all(that_wait=True)
    assert gone == ["waits"]
    places.end_all()
    assert gone == ["waits", "works"]
