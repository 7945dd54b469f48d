"""The console in a real Chromium over a broker with a shop: charts, SQL, keyboard, and pictures.

`make pictures` has it write `docs/pictures`, with minutes in the charts. Else they are looked at
and thrown away.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import proton
import pytest
from proton.reactor import DurableSubscription
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

from broker_shim.amqp_0_10.commands import MessageSubscribe
from broker_shim.amqp_0_10.controls import SessionAttach
from tests.support.checkout import CHECKOUT
from tests.support.system.chromium import CHROMIUM, Page, browser
from tests.support.system.old_client import OldClient
from tests.support.system.page_rules import axe_violations, broken_rules, unreached_or_unseen
from tests.support.system.processes import BrokerProcess

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
PICTURES = os.environ.get("SPARKSTORE_PICTURES")
MOST_PICTURE_BYTES = 150_000
CONFIG = """\
[broker]
idle_timeout_s = 600.0
[[broker.policies]]
name = "shops"
match = "orders"
arguments = {max_delivery_count = 5, max_bytes = 1000000}
[[broker.queues]]
name = "orders"
arguments = {dead_letter_queue = "dead", max_delivery_count = 3}
[[broker.queues]]
name = "parcels"
arguments = {max_depth = 10000}
[[broker.queues]]
name = "returns"
[[broker.queues]]
name = "dead"
"""
WORDS = "[...document.querySelectorAll('.chart desc')].map((each) => each.textContent)"
PRODUCTS = ("eggs", "bread", "milk", "apples")
TITLES = {"dead-letters": "Dead letters", "sql": "SQL"}
VIEWS = (
    "overview",
    "queues",
    "queue/orders",
    "exchanges",
    "subscriptions",
    "streams",
    "policies",
    "users",
    "dead-letters",
    "connections",
    "operations",
    "upkeep",
    "sql",
)


class Shop:
    """A broker on a root, and what sends to it and takes from it."""

    def __init__(self, folder: Path) -> None:
        config = folder / "sparkstore.toml"
        config.write_text(CONFIG)
        words = ("--http", "127.0.0.1:0", "--amqp-0-10=same", "--config", str(config))
        self.broker = BrokerProcess("--listen", "127.0.0.1:0", str(folder / "root"), *words)
        found = re.search(r" http=(\S+)", self.broker.ready_line)
        assert found is not None
        self.url = found[1]
        self._random = random.Random(31)
        self._client = BlockingConnection(self.broker.url, timeout=20)
        self.container = self._client.container.container_id
        self._senders = {name: self._sender(name) for name in ("orders", "parcels", "returns")}
        self._orders: BlockingReceiver = self._client.create_receiver("orders", credit=8)
        self._client.create_receiver("amq.topic", name="news", options=[DurableSubscription()])
        self.sell("orders", 24)
        self.sell("parcels", 12)
        self.sell("returns", 2)
        for _ in range(4):
            self._orders.receive(timeout=20)
            self._orders.reject()

    def _sender(self, queue: str) -> BlockingSender:
        return self._client.create_sender(queue)

    def sell(self, queue: str, count: int) -> None:
        """Send so many messages."""
        for _ in range(count):
            product = self._random.choices(PRODUCTS, (6, 4, 3, 1))[0]
            body = {"product": product, "count": self._random.randint(1, 12)}
            message = proton.Message(
                body, subject=product, durable=True, properties={"shop": "north"}
            )
            self._senders[queue].send(message)

    def trade(self) -> None:
        """Send some, and take some."""
        self.sell("orders", self._random.randint(1, 8))
        self.sell("parcels", self._random.randint(0, 3))
        for _ in range(self._random.randint(0, 8)):
            self._orders.receive(timeout=20)
            self._orders.accept()

    def close(self) -> None:
        """End the broker, too."""
        self._client.close()
        self.broker.terminate()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    it = Shop(tmp_path_factory.mktemp("shop"))
    yield it
    it.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as it:
        yield it


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return CHECKOUT / PICTURES if PICTURES else tmp_path


def open_view(shop: Shop, page: Page, view: str) -> None:
    if not page.evaluate("location.href").startswith(shop.url):
        page.open(f"{shop.url}/#/{view}")
    page.evaluate(f"location.hash = '#/{view}'")
    name = view.removeprefix("queue/")
    title = TITLES.get(view, name if view != name else name.title())
    page.until(f"document.querySelector('main h1')?.textContent === {title!r}")
    rows = {
        "queues": 4,
        "queue/orders": 10,
        "dead-letters": 1,
        "connections": 1,
        "exchanges": 4,
    }.get(view, 0)
    page.until(f"document.querySelectorAll('tbody tr').length >= {rows}")


def take(page: Page, file: Path, scheme: str, most_height: int = 760) -> None:
    """Take a picture, a small one; the other of `light` and `dark` is not the same."""
    taken = {}
    for each in ("dark", "light"):
        page.looks(each, 1100)
        taken[each] = page.picture(most_height)
    assert taken["dark"] != taken["light"]
    assert max(map(len, taken.values())) < MOST_PICTURE_BYTES
    file.write_bytes(taken[scheme])


def test_charts_tell_in_words_what_they_show_of_the_last_minutes(
    shop: Shop, page: Page, pictures: Path
) -> None:
    open_view(shop, page, "queues")
    for _ in range(40 if PICTURES else 1):
        shop.trade()
        seen = page.evaluate("document.querySelector('.spark polyline').getAttribute('points')")
        points = "document.querySelector('.spark polyline').getAttribute('points')"
        page.until(f"{points} !== {seen!r}")  # the page has looked again
    take(page, pictures / "queues.png", "dark")
    open_view(shop, page, "queue/orders")
    page.until("document.querySelectorAll('.chart').length === 3")
    words = page.evaluate(WORDS)
    assert re.match(r"messages: least \d+, most \d+, last \d+ from \d\d:\d\d:\d\d to ", words[0])
    assert re.match(r"in: least [\d.]+, most [\d.]+, last [\d.]+; out: least ", words[1])
    assert "broker started" in page.evaluate("document.querySelector('main').innerText")
    take(page, pictures / "queue.png", "light")
    open_view(shop, page, "queue/dead")
    page.until("document.querySelectorAll('tbody tr').length === 4")
    page.evaluate("document.querySelector('tbody button').click()")
    page.until("document.querySelector('ol.history')")
    take(page, pictures / "dead-letter.png", "dark", 600)
    assert page.troubles == []


def test_the_first_page_tells_how_the_broker_is_on_one_screen(
    shop: Shop, page: Page, pictures: Path
) -> None:
    open_view(shop, page, "overview")
    page.until("document.querySelectorAll('.tiles li').length > 10")
    page.looks("light", 1100)
    assert page.evaluate("document.querySelector('main').getBoundingClientRect().bottom") < 800
    text = page.evaluate("document.querySelector('main').innerText")
    for name in ("Waiting", "Oldest", "Dead letters", "Log sync", "Last compaction"):
        assert name in text
    links = page.evaluate("[...document.querySelectorAll('.tiles a')].map((it) => it.hash)")
    assert any(link.startswith("#/queue/") for link in links)
    take(page, pictures / "overview.png", "light")
    assert page.troubles == []


def test_a_queue_tells_where_each_argument_is_from(shop: Shop, page: Page) -> None:
    open_view(shop, page, "queue/orders")
    page.until("document.querySelector('dl dt')")
    terms = "[...document.querySelectorAll('dl dt')].map((it) => it.textContent)"
    values = "[...document.querySelectorAll('dl dd')].map((it) => it.textContent)"
    told = dict(zip(page.evaluate(terms), page.evaluate(values), strict=True))
    assert told["max_delivery_count"] == "3"  # the queue's own wins
    assert told["max_bytes"] == "1000000 (policy shops)"
    assert told["delayed"] == "0"


def test_charts_are_zoomed_by_mouse_and_keys_and_the_address_has_it(shop: Shop, page: Page) -> None:
    open_view(shop, page, "queue/parcels")
    page.until("document.querySelectorAll('.chart').length === 3")
    press = "[...document.querySelectorAll('main button')].find((it) => it.textContent === 'a day')"
    page.evaluate(f"{press}.click()")
    page.until("location.hash.endsWith('?range=a+day')")
    page.until("document.querySelector('[aria-pressed=true]').textContent === 'a day'")
    page.drag(".chart", 0.5, 0.8)
    page.until("location.hash.includes('from=')")
    zoomed = page.until("location.hash")
    page.until("!document.querySelector('[aria-pressed=true]')")
    page.evaluate("document.querySelector('[role=group]').focus()")
    page.key("+")
    page.until(f"location.hash !== {zoomed!r}")
    page.key("Escape")
    page.until("location.hash.endsWith('?range=a+day')")
    assert page.troubles == []


def test_charts_of_times_that_cannot_be_say_why(shop: Shop, page: Page) -> None:
    """Before history: what is missing; in the future: what to give."""
    notes = "document.querySelector('section p.soft').textContent"
    for year, text in ((2001, "left out: all before"), (2999, "No charts: query: from is in the")):
        query = f"from={year}-01-01T00:00:00Z&to={year}-01-02T00:00:00Z"
        page.open("about:blank")
        page.open(f"{shop.url}/#/queue/orders?{query}")
        page.until(f"{notes}.includes({text!r})")
    page.events.clear()  # a status of 400 is an error to the browser


def test_times_are_utc_or_local_as_chosen_also_after_a_reload_and_by_an_address(
    shop: Shop, page: Page
) -> None:
    """An address of another's page changes what is shown, and not what this browser keeps."""
    open_view(shop, page, "queue/orders")
    heads = "[...document.querySelectorAll('th')].map((it) => it.textContent)"
    assert "Came (UTC)" in page.evaluate(heads)
    local = page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
    chosen = "document.getElementById('zone').value"
    is_local = f"{chosen} === 'local' && ({heads}).includes('Came ({local})')"
    choose = "form.value = 'local'; form.dispatchEvent(new Event('change'))"
    choose = f"{{ const form = document.getElementById('zone'); {choose}; }}"
    page.evaluate(choose)
    page.until(is_local)
    assert page.evaluate("location.hash") == "#/queue/orders?zone=local"
    page.evaluate("location.hash = '#/queue/parcels'")  # a link to another view
    page.until(f"document.querySelector('h1')?.textContent === 'parcels' && {is_local}")
    assert page.evaluate("location.hash").endswith("zone=local")
    page.evaluate(choose.replace("local", "utc"))
    page.until(f"({heads}).includes('Came (UTC)')")
    page.evaluate("history.back()")  # to an address that has the zone of before
    page.until("document.querySelector('h1')?.textContent === 'orders'")
    page.until(f"({heads}).includes('Came (UTC)') && location.hash === '#/queue/orders'")
    page.evaluate(choose)
    page.until(is_local)
    page.open("about:blank")
    page.open(f"{shop.url}/#/queue/orders?zone=utc")
    page.until(f"({heads}).includes('Came (UTC)')")
    page.open("about:blank")
    page.open(f"{shop.url}/#/queue/orders")
    page.until(is_local)
    page.evaluate(choose.replace("local", "utc"))
    page.until(f"({heads}).includes('Came (UTC)')")
    assert page.evaluate("location.hash") == "#/queue/orders"


def test_a_queue_shows_its_consumers_with_what_they_hold(shop: Shop, page: Page) -> None:
    open_view(shop, page, "queue/orders")
    table = "document.querySelector('table[aria-label=Consumers]')"
    page.until(f"{table}.checkVisibility() && {table}.tBodies[0].rows.length === 1")
    cells = page.evaluate(f"[...{table}.tBodies[0].rows[0].cells].map((it) => it.textContent)")
    assert cells[1] == shop.container
    assert int(cells[2]) > 0


def test_links_of_a_connection_are_beside_the_list_and_the_address_has_them(
    shop: Shop, page: Page
) -> None:
    open_view(shop, page, "connections")
    page.evaluate("document.querySelector('tbody button').click()")
    heading = "document.querySelector('aside:not([hidden]) h2')?.textContent"
    title = page.until(heading)
    rows = "[...document.querySelectorAll('table[aria-label=Links] tbody tr')]"
    texts = f"{rows}.map((row) => [...row.cells].slice(1, 3).map((it) => it.textContent).join(' '))"
    page.until(f"{rows}.length === 5")
    assert sorted(page.evaluate(texts)) == [
        "receives from amq.topic",
        "receives from orders",
        *(f"sends to {queue}" for queue in ("orders", "parcels", "returns")),
    ]
    address = page.evaluate("location.href")
    page.key("Escape")
    page.until("document.querySelector('aside').hidden")
    assert page.evaluate("document.activeElement.ariaLabel") == f"Show {title.lower()}"
    assert "links=" not in page.evaluate("location.hash")
    page.open("about:blank")
    page.open(address)
    page.until(f"{heading} === {title!r}")
    page.key("Escape")
    assert page.troubles == []


def test_links_of_a_connection_that_has_ended_are_gone_and_the_panel_says_so(
    shop: Shop, page: Page
) -> None:
    open_view(shop, page, "connections")
    client = OldClient(shop.broker.url)
    client.say(SessionAttach(b"other"), 2)
    for channel in (1, 2):
        client.say(MessageSubscribe("orders", "d", 0, 0), channel)
    page.until("document.querySelectorAll('table[aria-label=Connections] tbody tr').length === 2")
    shower = "[...document.querySelectorAll('tbody button[aria-label^=Show]')].at(-1)"
    page.evaluate(f"{shower}.click()")
    rows = "document.querySelectorAll('table[aria-label=Links] tbody tr').length"
    page.until(f"{rows} === 2")  # both have the name that is unique in their sessions
    address = page.evaluate("location.href")
    client.close()
    panel = "document.querySelector('aside:not([hidden])')?.textContent"
    page.until(f"{panel}.includes('It has ended.') && {rows} === 0")
    assert "links=" not in page.evaluate("location.hash")
    page.open("about:blank")
    page.open(address)
    page.until(f"{panel}.includes('It has ended.') && {panel}.includes('Close')")
    assert page.evaluate("document.getElementById('problem').textContent") == ""
    page.key("Escape")
    page.events.clear()  # a status of 404 is an error to the browser


def test_messages_are_found_by_subject_or_property_and_a_property_tells_its_type(
    shop: Shop, page: Page
) -> None:
    """The list shows what fits, also for whoever gets the address; an empty search shows all."""
    open_view(shop, page, "queue/parcels")
    rows = "document.querySelectorAll('table[aria-label=Messages] tbody tr').length"
    subjects = (
        "[...document.querySelectorAll('table[aria-label=Messages] tbody tr')]"
        ".map((it) => it.cells[6].textContent)"
    )
    page.until(f"{rows} > 3")
    page.evaluate("document.getElementById('sought').focus()")
    page.write("EGG")
    page.key("Enter")
    status = "document.getElementById('status').textContent"
    answer = page.until(f"{status}.includes('found') && {status}")
    assert re.match(r"\d+ found in \d+\.\d\d s$", answer)
    assert set(page.evaluate(subjects)) == {"eggs"}
    assert page.evaluate("location.hash") == "#/queue/parcels?find=EGG"
    page.evaluate("document.getElementById('sought').value = 'shop=south'")
    page.key("Enter")
    page.until(f"{status}.startsWith('0 found in')")
    page.open("about:blank")
    page.open(f"{shop.url}/#/queue/parcels?find=shop%3Dnorth")
    page.until(f"{status}.includes('found in') && {rows} > 3")
    page.evaluate("document.querySelector('tbody button').click()")
    property_of = "[...document.querySelectorAll('aside dd')].map((it) => it.textContent)"
    page.until(f"{property_of}.includes('north string')")
    assert page.troubles == []


def test_a_subscription_tells_who_has_it_and_exchanges_are_drawn(shop: Shop, page: Page) -> None:
    """A name in the picture leads to its page, by the keyboard too."""
    open_view(shop, page, "subscriptions")
    page.until("document.querySelectorAll('tbody tr').length === 1")
    cells = page.evaluate("[...document.querySelector('tbody tr').cells].map((it) => it.innerText)")
    queue = f"subscription.{shop.container}.news"
    subscriber = f"link 'news' of '{shop.container}'"
    assert cells[:5] == [queue, subscriber, "attached", "amq.topic #", "0"]
    open_view(shop, page, "exchanges")
    page.until("document.querySelectorAll('.topology path').length === 1")
    page.evaluate("[...document.querySelectorAll('.topology a')].at(-1).focus()")
    page.key("Enter")
    page.until(f"document.querySelector('h1').textContent === {queue!r}")
    assert page.troubles == []


def test_sql_is_typed_run_by_ctrl_enter_and_drawn(shop: Shop, page: Page, pictures: Path) -> None:
    open_view(shop, page, "sql")
    page.evaluate("document.getElementById('statement').select()")
    page.write(
        "SELECT subject, count(*) AS waiting, count(acquired_by) AS held\nFROM queue_messages\n"
        "WHERE queue <> 'dead'\nGROUP BY subject\nORDER BY waiting DESC"
    )
    page.key("Enter", ctrl=True)
    assert "4 rows; " in page.until(
        "document.querySelector('tbody tr') && document.getElementById('status').textContent"
    )
    assert page.evaluate("document.querySelectorAll('.chart rect').length") == 8
    words = page.evaluate("document.querySelector('.chart desc').textContent")
    assert re.match(r"waiting: least \d+, most \d+, last \d+; held: .* from eggs to apples$", words)
    take(page, pictures / "sql.png", "light")
    choose = "form.value = 'lines'; form.dispatchEvent(new Event('change'))"
    page.evaluate(f"{{ const form = document.getElementById('form'); {choose}; }}")
    assert page.evaluate("document.querySelectorAll('.chart path').length") == 2
    assert page.troubles == []


ODD = [
    "{xs: [], series: []}",
    "{xs: ['a'], series: [{name: 'n', values: [null]}], isBars: true}",
    "{xs: ['a', 'b'], series: [{name: 'n', values: [-3, 1e300]}], isBars: true}",
    "{xs: [5, 5], series: [{name: 'n', values: [0, 0]}]}",
    "{xs: [1], series: [{name: 'n', values: [-1e-9]}]}",
    "{xs: [1, 2], series: [{name: 'n', values: [null, 0.1]}, {name: 'm', values: [1, 2]}]}",
]


@pytest.mark.parametrize("said", ODD)
def test_a_chart_of_odd_values_has_no_number_that_is_none(
    shop: Shop, page: Page, said: str
) -> None:
    open_view(shop, page, "sql")
    made = page.evaluate(
        f"import('/console/chart.js').then((it) => it.chart('title', {said}).outerHTML)"
    )
    assert re.findall(r"NaN|Infinity|undefined|null", made) == []
    assert "<title" in made


def test_a_mark_of_a_time_that_a_chart_does_not_show_is_left_out(shop: Shop, page: Page) -> None:
    open_view(shop, page, "sql")
    given = "{xs: [5, 6], ends: [4, 6], series: [{name: 'n', values: [0, 1]}], marks: MARKS}"
    marks = "[1, 4, 6, 7].map((at) => ({at, text: `mark ${at}`}))"
    made = page.evaluate(
        f"import('/console/chart.js').then((it) => it.chart('title', "
        f"{given.replace('MARKS', marks)}).outerHTML)"
    )
    assert re.findall(r'data-what="(.*?)"', made) == ["mark 4", "mark 6"]


ODD_TIMES = """SELECT * FROM (VALUES (NULL, 1), (TIMESTAMP '2026-01-02 03:04:05', 2),
    (TIMESTAMP '2026-01-01 03:04:05', NULL)) AS odd(t, n)"""


def test_times_are_drawn_in_their_order_and_those_that_are_none_are_left_out(
    shop: Shop, page: Page
) -> None:
    open_view(shop, page, "sql")
    page.evaluate("document.getElementById('statement').select()")
    page.write(ODD_TIMES)
    page.key("Enter", ctrl=True)
    page.until("document.querySelector('figcaption').textContent === 'n by t'")
    words = page.evaluate("document.querySelector('.chart desc').textContent")
    assert words == "n: least 2, most 2, last 2 from 01-01 03:04 to 01-02 03:04"
    assert page.troubles == []


def test_a_wrong_statement_is_one_line_that_stays(shop: Shop, page: Page) -> None:
    open_view(shop, page, "sql")
    page.evaluate("document.getElementById('statement').select()")
    page.write("COPY queues TO '/tmp/x'")
    page.key("Enter", ctrl=True)
    page.until("document.getElementById('problem').textContent")
    assert page.until("!document.querySelector('main button').disabled")
    told = page.evaluate("document.getElementById('problem').textContent")
    assert told == "only one SELECT is answered here (or EXPLAIN or DESCRIBE of one)"
    page.events.clear()  # a status of 400 is an error to the browser


def test_what_an_order_complained_of_stays(shop: Shop, page: Page) -> None:
    """The page looks again meanwhile, and that goes well."""
    open_view(shop, page, "queue/returns")
    buttons = "[...document.querySelectorAll('main button')]"
    page.evaluate(f"{buttons}.find((it) => it.textContent === 'Move…').click()")
    page.until("document.getElementById('dialog').open")
    page.evaluate("document.getElementById('target').value = 'nowhere'")
    page.key("Enter")
    told = page.until("document.getElementById('problem').textContent")
    assert told.startswith("unknown queue 'nowhere'")
    names = "performance.getEntriesByType('resource').map((each) => new URL(each.name).pathname)"
    looks = f"{names}.filter((each) => each.endsWith('/queues/returns')).length"
    page.until(f"{looks} > {page.evaluate(looks)}")
    assert page.evaluate("document.getElementById('problem').textContent") == told
    page.events.clear()  # a status of 404 is an error to the browser


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_keeps_the_rules_for_eyes_and_screen_readers(
    shop: Shop, page: Page, view: str
) -> None:
    """Every control is reached by Tab, too, and its focus is seen."""
    open_view(shop, page, view)
    title = page.evaluate("document.querySelector('h1').textContent")
    assert page.evaluate("document.title") == f"{title} – sparkstore"
    for scheme, width in (("light", 1100), ("dark", 2560), ("light", 700), ("dark", 360)):
        page.looks(scheme, width)
        assert broken_rules(page) == []
    assert unreached_or_unseen(page) == []


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_wrong_with_a_view(shop: Shop, page: Page, view: str) -> None:
    open_view(shop, page, view)
    for scheme, width in (("light", 1100), ("dark", 1100), ("light", 500), ("dark", 360)):
        page.looks(scheme, width)
        assert axe_violations(page) == []


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_axe_finds_nothing_wrong_with_a_message_and_a_form(shop: Shop, page: Page) -> None:
    """And it does find what is wrong: a picture without words."""
    shop.trade()  # what was rejected before goes to the broker by then
    open_view(shop, page, "queue/dead")
    page.until("document.querySelectorAll('tbody tr').length === 4")
    page.evaluate("document.querySelector('tbody button').click()")
    page.until("document.querySelector('ol.history')")
    assert axe_violations(page) == []
    page.key("Escape")
    open_view(shop, page, "connections")
    page.evaluate("document.querySelector('tbody button').click()")
    page.until("document.querySelector('aside:not([hidden])')")
    assert axe_violations(page) == []
    page.key("Escape")
    open_view(shop, page, "queue/dead")
    buttons = "[...document.querySelectorAll('main button')]"
    page.evaluate(f"{buttons}.find((it) => it.textContent === 'Send…').click()")
    page.until("document.getElementById('dialog').open")
    assert axe_violations(page) == []
    page.key("Escape")
    page.evaluate("document.querySelector('main').append(document.createElement('img'))")
    assert [line.partition(":")[0] for line in axe_violations(page)] == ["image-alt"]
