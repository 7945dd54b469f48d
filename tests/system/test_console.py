"""The console in a real Chromium: hostile names, orders after a question, and who may only look."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import proton
import pytest
from proton.utils import BlockingConnection

from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageHeader
from tests.support.stores.http_houses import PASSWORD, HttpHouse, path_of
from tests.support.stores.stores import DELTA_CONFIG
from tests.support.system.chromium import CHROMIUM, Page, browser
from tests.support.system.processes import StartBroker

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
HOSTILE = "<img src=x onerror=alert(1)>/a?b#c%2F'\"</script>&amp;"
BODY = b"<script>alert(2)</script>"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpHouse]:
    users = {"ada": ("admin",), "mia": ("monitor",)}
    folder = tmp_path_factory.mktemp("house")
    it = HttpHouse(folder, users, store=DeltaMessageStore(folder / "root", DELTA_CONFIG))
    header = MessageHeader("raw", b"h", subject=HOSTILE, properties=((HOSTILE, HOSTILE),))
    for name in (HOSTILE, "aside", "grave"):
        it.put_queue(name)
    it.ask("PUT", path_of("orders"), "ada", {"arguments": {"dead_letter_queue": "grave"}})
    it.put(HOSTILE, BODY, b"two", header=header)
    yield it
    it.stop()


@pytest.fixture(scope="module")
def page(house: HttpHouse, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as it:
        yield it


def at(page: Page, house: HttpHouse, user: str, view: str, rows: int) -> None:
    """Open a view as a user, and wait for so many rows."""
    page.log_in(user, PASSWORD)
    page.open("about:blank")
    page.open(f"http://127.0.0.1:{house.port}/#/{view}")
    page.until(f"document.querySelectorAll('tbody tr').length === {rows}")


def press(page: Page, label: str) -> None:
    """Click the button that begins with a text, once the view shows it."""
    buttons, begins = "[...document.querySelectorAll('main button')]", f"startsWith({label!r})"
    page.until(f"{buttons}.some((each) => each.textContent.{begins})")
    page.evaluate(f"{buttons}.find((each) => each.textContent.{begins}).click()")


def open_hostile(page: Page, house: HttpHouse, user: str) -> None:
    at(page, house, user, "queues", 4)
    links = "[...document.querySelectorAll('tbody a')]"
    page.evaluate(f"{links}.find((each) => each.textContent.startsWith('<img')).click()")
    page.until("document.querySelector('h1').textContent.startsWith('<img')")


def test_what_senders_choose_is_shown_as_text_and_never_run(house: HttpHouse, page: Page) -> None:
    open_hostile(page, house, "ada")
    page.until("document.querySelectorAll('tbody tr').length === 2")
    page.evaluate("document.querySelector('tbody button').click()")
    assert page.until("document.querySelector('pre')?.textContent") == BODY.decode()
    assert page.evaluate("document.querySelector('h1').textContent") == HOSTILE
    assert page.evaluate("document.querySelector('main').innerText").count(HOSTILE) >= 4
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert page.troubles == []


def test_messages_are_asked_for_again_when_the_figures_of_their_queue_changed(
    house: HttpHouse, page: Page
) -> None:
    """A page of them costs a read of the disk, and a line of the audit log."""
    house.put("aside", b"first")
    at(page, house, "ada", "queue/aside", 1)
    names = "performance.getEntriesByType('resource').map((each) => new URL(each.name).pathname)"
    figures = f"{names}.filter((each) => each.endsWith('/queues/aside')).length"
    asked = f"{names}.filter((each) => each.endsWith('/aside/messages')).length"
    page.until(f"{figures} >= 3")
    assert page.evaluate(asked) == 1
    house.put("aside", b"second")
    page.until("document.querySelectorAll('tbody tr').length === 2")
    assert page.evaluate(asked) == 2
    house.ask("POST", path_of("aside", "/purge"), "ada", {})
    page.until("document.querySelectorAll('tbody tr').length === 0")


def test_a_message_is_a_panel_that_keys_step_through_and_that_has_an_address(
    house: HttpHouse, page: Page
) -> None:
    """What the address names opens by itself; Escape gives the focus back to the list."""
    open_hostile(page, house, "ada")
    page.until("document.querySelectorAll('tbody tr').length === 2")
    page.evaluate("document.querySelector('tbody button').click()")
    heading = "document.querySelector('aside:not([hidden]) h2')?.textContent"
    first = page.until(heading)
    assert page.evaluate("document.activeElement.textContent") == first
    page.key("j")
    second = page.until(f"{heading} !== {first!r} && {heading}")
    number = second.removeprefix("Message ")
    assert page.evaluate("location.hash").endswith(f"?message={number}")
    address = page.evaluate("location.href")
    page.key("k")
    page.until(f"{heading} === {first!r}")
    page.key("Escape")
    page.until("document.querySelector('aside').hidden")
    assert page.evaluate("document.activeElement.ariaLabel") == f"Show {first.lower()}"
    assert "message=" not in page.evaluate("location.hash")
    page.open("about:blank")
    page.open(address)
    page.until(f"{heading} === {second!r}")
    assert page.evaluate("document.title") == f"{HOSTILE} – sparkstore"
    assert page.troubles == []


def test_back_finds_a_list_with_its_filter_and_an_address_of_nothing_is_told(
    house: HttpHouse, page: Page
) -> None:
    at(page, house, "ada", "queues?match=grav", 1)
    assert page.evaluate("document.getElementById('filter').value") == "grav"
    page.evaluate("document.getElementById('filter').select()")
    page.write("asid")
    page.until("document.querySelector('tbody a')?.textContent === 'aside'")
    page.evaluate("document.querySelector('tbody a').click()")
    page.until("document.querySelector('h1')?.textContent === 'aside'")
    page.evaluate("history.back()")
    page.until("document.getElementById('filter')?.value === 'asid'")
    page.until("document.querySelectorAll('tbody tr').length === 1")
    page.evaluate("location.hash = '#/queue/%zz'")
    problem = "document.getElementById('problem').textContent"
    assert page.until(problem) == "no view has the address #/queue/%zz: choose one above"
    page.evaluate("location.hash = '#/constructor'")
    page.until("document.querySelector('h1')?.textContent === 'Overview'")
    assert page.evaluate(problem) == ""
    assert page.troubles == []


def test_what_an_order_complained_of_goes_when_the_next_one_begins(
    house: HttpHouse, page: Page
) -> None:
    at(page, house, "ada", "queue/aside?message=x", 0)
    problem = "document.getElementById('problem').textContent"
    page.until(f"{problem}.includes('named by its id')")
    press(page, "Purge")
    page.until("document.querySelector('dialog').open")
    assert page.evaluate(problem) == ""
    page.key("Escape")
    (refusal,) = page.troubles
    assert "400" in refusal
    page.events.clear()  # the next tests have no trouble


def test_who_may_only_look_is_offered_no_order(house: HttpHouse, page: Page) -> None:
    open_hostile(page, house, "mia")
    page.until("document.querySelectorAll('tbody tr').length === 2")
    text = page.evaluate("document.body.innerText")
    assert "mia, monitor" in text
    assert "Purge" not in text
    assert "Move" not in text
    page.evaluate("location.hash = '#/sql'")
    page.until("document.querySelector('main').innerText.includes('needs the role operator')")
    assert page.evaluate("document.querySelectorAll('main textarea, main button').length") == 0


def test_what_sql_finds_is_shown_and_drawn_as_text(house: HttpHouse, page: Page) -> None:
    """Names of columns, too; a body, a property and a queue's name that are markup."""
    at(page, house, "ada", "sql", 0)
    page.until("document.getElementById('statement') !== null")
    page.evaluate("document.getElementById('statement').select()")
    page.write(
        'SELECT queue, 7 AS "<img src=y>", 9007199254740993 AS exact, decode(body) AS body,'
        " properties FROM queue_messages ORDER BY message_id"
    )
    page.key("Enter", ctrl=True)
    page.until("document.querySelectorAll('.chart rect').length === 4")
    cells = page.evaluate(
        "[...document.querySelector('tbody tr').cells].map((it) => it.textContent)"
    )
    assert cells[:4] == [HOSTILE, "7", "9007199254740993", BODY.decode()]
    assert json.loads(cells[4]) == {HOSTILE: HOSTILE}
    assert page.evaluate("document.querySelector('figcaption').textContent").startswith(
        "<img src=y>"
    )
    words = page.evaluate("document.querySelector('.chart desc').textContent")
    assert HOSTILE in words
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert page.troubles == []


def test_dead_letters_lead_to_their_queue(house: HttpHouse, page: Page) -> None:
    at(page, house, "mia", "dead-letters", 1)
    told = page.evaluate("document.querySelector('tbody').innerText")
    assert told.split() == ["grave", "0", "orders"]
    assert (
        page.evaluate("document.querySelector('nav [aria-current]').textContent") == "Dead letters"
    )


def test_a_question_tells_how_many_and_its_first_answer_changes_nothing(
    house: HttpHouse, page: Page
) -> None:
    """By the keyboard: what has the focus is Cancel; the next one does it."""
    open_hostile(page, house, "ada")
    asked = "document.querySelector('dialog').open && document.querySelector('dialog').innerText"
    press(page, "Move")
    page.until(asked)
    page.evaluate("document.getElementById('target').value = 'aside'")
    page.key("Enter")
    page.until(f"({asked}).includes('2 messages go from')")
    page.key("Enter")
    page.until("!document.querySelector('dialog').open")
    assert house.ask("GET", path_of("aside"), "ada").body["depth"] == 0
    press(page, "Purge")
    assert "2 messages are taken off" in page.until(asked)
    page.key("Tab")
    page.key("Enter")
    assert "2 messages were purged" in page.until("document.getElementById('status').textContent")
    assert house.ask("GET", path_of(HOSTILE), "ada").body["depth"] == 0
    assert page.troubles == []


def test_a_history_is_a_line_of_time_and_an_operation_is_undone(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Of a broker on a root: what is in memory alone has no history."""
    broker = start_broker(str(tmp_path / "root"), "--http", "127.0.0.1:0", "--queue", "orders")
    found = re.search(r" http=(\S+)", broker.ready_line)
    assert found is not None
    client = BlockingConnection(broker.url, timeout=20)
    client.create_sender("orders").send(proton.Message("x", durable=True))
    client.close()
    with browser(tmp_path / "profile") as page:  # the other one logs in, and nobody does here
        page.open("about:blank")
        page.open(f"{found[1]}/#/queue/orders")
        page.until("document.querySelectorAll('tbody tr').length === 1")
        page.evaluate("document.querySelector('tbody button').click()")
        events = "document.querySelector('ol.history')?.innerText"
        assert "enqueued on orders" in page.until(events)
        press(page, "Purge")
        page.until("document.querySelector('dialog').open")
        page.evaluate("document.getElementById('dialog-go').click()")
        page.until(
            "document.getElementById('status').textContent.includes('1 messages were purged')"
        )
        page.open(f"{found[1]}/#/operations")
        page.until("document.querySelectorAll('tbody tr').length === 1")
        press(page, "Undo")
        page.until("document.querySelector('dialog').open")
        page.evaluate("document.getElementById('dialog-go').click()")
        page.until(
            "document.getElementById('status').textContent.includes('1 messages were put back')"
        )
        page.open(f"{found[1]}/#/upkeep")
        page.until("document.querySelector('main').innerText.includes('No job has run yet')")
        assert page.troubles == []
        broker.terminate()
        page.evaluate("location.hash = '#/queues'")
        problem = "document.getElementById('problem').textContent"
        page.until(f"{problem}.startsWith('the broker does not answer')")
        again = found[1].removeprefix("http://")  # the page asks again by itself
        start_broker(str(tmp_path / "root"), "--http", again)
        page.until(f"{problem} === '' && document.querySelectorAll('tbody tr').length === 1")
