"""The console makes, alters and deletes what a broker has; each order is tried first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_shim.security.rules.permissions import Permission, Rule
from tests.support.stores.http_houses import PASSWORD, HttpHouse, path_of
from tests.support.system.chromium import CHROMIUM, Page, browser

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
BUTTONS = "[...document.querySelectorAll('main button')]"
STATUS = "document.getElementById('status').textContent"
DIALOG = "document.getElementById('dialog')"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpHouse]:
    it = HttpHouse(tmp_path_factory.mktemp("house"), {"ada": ("admin",), "mia": ("monitor",)})
    for name in ("orders", "audit"):
        it.put_queue(name)
    it.put("orders", b"one", b"two", b"three")
    yield it
    it.stop()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as it:
        yield it


def at(page: Page, house: HttpHouse, view: str, user: str = "ada") -> None:
    page.log_in(user, PASSWORD)
    page.open("about:blank")
    page.open(f"http://127.0.0.1:{house.port}/#/{view}")
    page.until("document.querySelector('main h1')")


def press(page: Page, label: str) -> None:
    """Click a button of the view, by its text or its name."""
    chosen = f"(it) => it.textContent === {label!r} || it.ariaLabel === {label!r}"
    page.until(f"{BUTTONS}.some({chosen})")
    page.evaluate(f"{BUTTONS}.find({chosen}).click()")
    page.until(f"{DIALOG}.open")


def fill(page: Page, **values: str) -> None:
    """Fill the form of the dialog, and send it."""
    for name, value in values.items():
        field = f"{DIALOG}.querySelector('[name={name}]')"
        page.evaluate(f"{field}.value = {json.dumps(value)}")
    page.evaluate("document.getElementById('dialog-go').click()")


def agree(page: Page, title: str) -> str:
    """Wait for the question about a trial, say yes, and wait until that is done; what it said."""
    page.until(
        f"document.getElementById('dialog-title').textContent === {title!r} && {DIALOG}.open"
    )
    text: str = page.evaluate("document.getElementById('dialog-body').innerText")
    page.evaluate("document.getElementById('dialog-go').click()")
    page.until(f"{DIALOG}.open === false")  # the next dialog is the same element
    return text


def test_a_queue_is_made_altered_and_deleted(house: HttpHouse, page: Page) -> None:
    at(page, house, "queues")
    press(page, "New queue…")
    fill(page, name="returns", lines="max_depth = 10")
    agree(page, "Create this queue?")
    page.until(
        "[...document.querySelectorAll('tbody a')].some((it) => it.textContent === 'returns')"
    )
    at(page, house, "queue/returns")
    press(page, "Alter…")
    fill(page, lines="max_depth = 20")
    agree(page, "Alter this queue?")
    page.until(f"{STATUS} === 'done'")
    assert house.ask("GET", path_of("returns"), "ada").body["arguments"] == {"max_depth": 20}
    press(page, "Delete…")
    fill(page)
    agree(page, "Delete the queue returns?")
    page.until("location.hash === '#/queues'")
    assert house.ask("GET", path_of("returns"), "ada").status == 404
    assert page.troubles == []


def test_an_exchange_is_made_bound_tried_and_deleted(house: HttpHouse, page: Page) -> None:
    at(page, house, "exchanges")
    press(page, "New exchange…")
    fill(page, name="shop", type="topic")
    agree(page, "Create this exchange?")
    page.until(f"{BUTTONS}.some((it) => it.ariaLabel === 'Delete shop')")
    press(page, "New binding…")
    fill(page, exchange="shop", queue="audit", key="order.*")
    agree(page, "Add this binding?")
    page.until("document.querySelectorAll('table')[1].innerText.includes('order.*')")
    press(page, "Try or send a message…")
    fill(page, exchange="shop", key="order.new", body="hello")
    assert "It would reach audit." in agree(page, "Send this message?")
    page.until(f"{STATUS} === 'the message was sent'")
    at(page, house, "queue/audit")
    page.until("document.querySelectorAll('tbody tr').length === 1")
    page.evaluate("document.querySelector('dd a').click()")  # its binding
    page.until("document.querySelector('h2')?.textContent.endsWith('of the exchange shop')")
    assert page.evaluate("location.hash") == "#/exchanges?exchange=shop"
    press(page, "Delete shop")
    page.evaluate(f"{DIALOG}.querySelector('[name=force]').click()")
    fill(page)
    agree(page, "Delete shop?")
    page.until("document.querySelectorAll('table')[1].innerText.includes('order.*') === false")
    assert page.troubles == []


def test_a_refusal_is_told_in_the_words_of_the_api(house: HttpHouse, page: Page) -> None:
    at(page, house, "policies")
    press(page, "New policy…")
    fill(page, name="p", match="#", lines="max_depht = 1")
    problem = "document.getElementById('problem').textContent"
    told = page.until(problem)
    body = {"match": "#", "arguments": {"max_depht": 1}, "dry_run": True}
    assert told == house.ask("PUT", "/api/v1/policies/p", "ada", body).body["error"]
    page.events.clear()  # a status of 400 is an error to the browser


def test_a_policy_is_set_changed_and_deleted(house: HttpHouse, page: Page) -> None:
    at(page, house, "policies")
    press(page, "New policy…")
    fill(page, name="deep", match="orders", lines="max_depth = 100")
    assert "orders: max_depth = 100" in agree(page, "Set this policy?")
    page.until("document.querySelector('tbody a')?.textContent === '1'")
    page.evaluate("document.querySelector('tbody a').click()")
    page.until("document.querySelector('h1').textContent === 'Queues that the policy deep fits'")
    page.until("document.querySelector('tbody').innerText.startsWith('orders')")
    page.evaluate("history.back()")
    press(page, "Change deep")
    fill(page, lines="max_depth = 200")
    agree(page, "Set this policy?")
    page.until("document.querySelector('tbody').innerText.includes('max_depth = 200')")
    press(page, "Delete deep")
    agree(page, "Delete the policy deep?")
    page.until("document.querySelectorAll('tbody tr').length === 0")
    assert page.troubles == []


def test_orders_are_about_the_chosen_messages(house: HttpHouse, page: Page) -> None:
    at(page, house, "queue/orders")
    page.until("document.querySelectorAll('.choice').length === 3")
    page.evaluate("document.querySelectorAll('.choice')[1].click()")
    press(page, "Move…")
    page.evaluate("document.getElementById('target').value = 'audit'")
    page.evaluate("document.getElementById('dialog-go').click()")
    assert "1 messages go from orders to audit" in agree(page, "Move these messages?")
    page.until(f"{STATUS}.includes('1 messages were moved')")
    page.until("document.querySelectorAll('.choice').length === 2")
    assert page.troubles == []


def test_a_message_is_repaired_and_resubmitted(house: HttpHouse, page: Page) -> None:
    house.put_queue("broken")
    body = '{"price": 0}'
    reply = house.ask("POST", "/api/v1/messages", "ada", {"queue": "broken", "body": body})
    assert reply.status == 200, reply.body
    at(page, house, "queue/broken")
    page.until("document.querySelectorAll('tbody tr').length === 1")
    page.evaluate("document.querySelector('tbody button').click()")
    assert page.until("document.querySelector('aside pre')?.textContent") == body  # no JSON of it
    press(page, "Repair and resubmit…")
    fill(page, body='"{price: 1}"', to="audit")
    agree(page, "Put this in its place?")
    page.until(f"{STATUS} === 'done'")
    assert house.ask("GET", path_of("broken"), "ada").body["depth"] == 0
    assert page.troubles == []


def test_a_message_is_found_by_its_id(house: HttpHouse, page: Page) -> None:
    house.put_queue("long")
    house.put("long", *[b"x"] * 60)
    last = house.ask("GET", path_of("long", "/messages?offset=59"), "ada").body["items"][0]["id"]
    at(page, house, "queue/long")
    page.until("document.querySelectorAll('tbody tr').length === 50")
    page.evaluate("document.getElementById('sought').focus()")
    page.write(str(last))
    page.key("Enter")
    page.until(f"document.querySelector('aside h2')?.textContent === 'Message {last}'")
    assert page.until(STATUS).startswith("found in ")
    assert page.evaluate("location.hash").endswith(f"message={last}")
    assert page.troubles == []


def test_keys_step_to_the_next_page_and_all_of_a_page_are_chosen(
    house: HttpHouse, page: Page
) -> None:
    """The row of the message that is shown is marked, and in sight."""
    at(page, house, "queue/long")
    page.until("document.querySelectorAll('tbody tr').length === 50")
    page.evaluate("document.querySelector('th input').click()")
    press(page, "Move…")
    title = page.evaluate("document.getElementById('dialog-title').textContent")
    assert title == "Move 50 chosen messages"
    page.key("Escape")
    page.evaluate("document.querySelector('tbody tr:last-child button').click()")
    heading = "document.querySelector('aside:not([hidden]) h2')?.textContent"
    last = page.until(heading)
    marked = "document.querySelector('tr[aria-current]')"
    assert page.until(f"{marked}.getBoundingClientRect().bottom < innerHeight + 1")
    page.key("j")
    page.until(f"{heading} !== {last!r}")
    assert "offset=50" in page.evaluate("location.hash")
    assert page.until(f"{marked}.previousElementSibling === null")
    page.key("Escape")
    page.until(f"{marked} === null")
    page.evaluate("location.hash = '#/queues'")
    page.until("document.querySelector('h1').textContent === 'Queues'")
    page.evaluate("history.back()")
    page.until("document.querySelector('main').innerText.includes('51 to 60 of 60')")
    assert page.troubles == []


def test_a_queue_that_is_deleted_meanwhile_is_told_of(house: HttpHouse, page: Page) -> None:
    house.put_queue("fleeting")
    at(page, house, "queue/fleeting")
    page.until("document.querySelector('main dl')")
    assert house.ask("DELETE", path_of("fleeting"), "ada").status == 200
    problem = "document.getElementById('problem').textContent"
    assert "unknown queue 'fleeting'" in page.until(problem)
    page.evaluate("location.hash = '#/queues'")
    page.until(f"document.querySelector('tbody tr') && {problem} === ''")
    assert {trouble[:23] for trouble in page.troubles} == {"Failed to load resource"}
    page.events.clear()  # a status of 404 is an error to the browser


def test_who_may_read_one_queue_of_two_is_told_so_at_the_other(
    house: HttpHouse, page: Page, tmp_path: Path
) -> None:
    rules = (
        Rule(frozenset({"mia"}), "orders", frozenset({Permission.READ})),
        Rule(frozenset({"ada"}), "#", frozenset(Permission)),
    )
    strict = HttpHouse(tmp_path, {"ada": ("admin",), "mia": ("monitor",)}, rules)
    try:
        for name in ("orders", "secret"):
            strict.put_queue(name)
            strict.put(name, b"eggs")
        at(page, strict, "queue/orders", "mia")
        page.until("document.querySelectorAll('tbody tr').length === 1")
        page.evaluate("location.hash = '#/queue/secret'")
        problem = "document.getElementById('problem').textContent"
        assert "no permission" in page.until(problem)
        assert page.evaluate("document.querySelectorAll('tbody tr').length") == 0
    finally:
        page.open("about:blank")
        strict.stop()
    page.events.clear()  # a status of 403 is an error to the browser


def test_queues_are_sorted_by_a_click_and_the_address_has_it(house: HttpHouse, page: Page) -> None:
    at(page, house, "queues")
    page.until("document.querySelectorAll('tbody tr').length > 1")
    heads = "[...document.querySelectorAll('th button')]"
    page.evaluate(f"{heads}.find((it) => it.textContent === 'Messages').click()")
    page.until("location.hash === '#/queues?sort=-depth'")
    rows = "[...document.querySelectorAll('tbody tr')]"
    depths = f"{rows}.map((row) => Number(row.cells[1].textContent))"
    page.until(f"(({depths}).toSorted((a, b) => b - a)).join() === ({depths}).join()")
    heading = "document.querySelector('th[aria-sort]')"
    assert page.evaluate(f"{heading}.ariaSort") == "descending"


def test_a_monitor_is_offered_no_order(house: HttpHouse, page: Page) -> None:
    for view in ("queues", "exchanges", "policies", "queue/audit"):
        at(page, house, view, "mia")
        page.until("document.querySelector('table')")
        labels = page.evaluate(f"{BUTTONS}.map((it) => it.textContent)")
        assert not [label for label in labels if "…" in label]
