"""The files of the console: what they must not have, and that they are found."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_shim.serve.http.console import console_files
from broker_shim.serve.http.console.console_files import FILES
from tests.support.stores.http_houses import HttpHouse

FOLDER = Path(console_files.__file__).parent
SCRIPTS, NODE = [each for each in FILES if each.endswith(".js")], shutil.which("node")
AS_MARKUP = (
    *("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "createContextualFragment"),
    *("DOMParser", "setHTML", "srcdoc", "eval(", "Function(", "localStorage", "cookie"),
)
"""Words of ways to have a text taken for markup or a program, or to keep something."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpHouse]:
    it = HttpHouse(tmp_path_factory.mktemp("users"), {"mia": ("monitor",)})
    yield it
    it.stop()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_takes_no_text_for_markup_and_names_no_other_host(name: str) -> None:
    text = (FOLDER / name).read_text()
    kept = ["localStorage"] if name == "times.js" else []  # whether UTC or local time was chosen
    assert [word for word in AS_MARKUP if word in text] == kept
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg\b)", text) == []


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
def test_times_among_annotations_are_shown_as_times(tmp_path: Path) -> None:
    """A sender's may be any text or number: what is no time stays as it is."""
    for name in SCRIPTS:
        (tmp_path / name).write_text((FOLDER / name).read_text())
    (tmp_path / "package.json").write_text('{"type": "module"}')
    said = [["x-opt-death-time", "1764262120123"], ["x-opt-delivery-time", "9" * 20], ["x", "5"]]
    script = f"import('./message.js').then((it) => {json.dumps(said)}.map(it.annotation))"
    words = [str(NODE), "-e", f"{script}.then((told) => console.log(JSON.stringify(told)))"]
    told = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert json.loads(told) == [
        ["x-opt-death-time (UTC)", "2025-11-27 16:48:40.123"],
        *said[1:],
    ]


def test_the_page_has_nothing_inline() -> None:
    page = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|javascript:", page) == []


def test_a_browser_without_scripts_gets_a_sentence_that_says_what_to_do() -> None:
    (sentence,) = re.findall(r"<noscript>(.*?)</noscript>", (FOLDER / "index.html").read_text())
    assert sentence.startswith("This page needs JavaScript: allow it")


def test_what_the_page_and_its_scripts_load_is_served(house: HttpHouse) -> None:
    page = house.ask("GET", "/", "mia")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    loaded = set(re.findall(r'(?:src|href)="(/[^"]+)"', page.body))
    for name in FILES:
        reply = house.ask("GET", f"/console/{name}", "mia")
        assert reply.status == 200
        loaded |= {f"/console/{each}" for each in re.findall(r'from "\./([^"]+)"', reply.body)}
    assert loaded == {f"/console/{name}" for name in FILES if name != "index.html"}


@pytest.mark.parametrize(
    "path", ["/console/", "/console/console_files.py", "/console/../door.py", "/console/%2e%2e"]
)
def test_no_other_file_is_served(house: HttpHouse, path: str) -> None:
    assert house.ask("GET", path, "mia").status == 404
