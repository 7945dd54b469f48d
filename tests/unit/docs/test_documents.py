"""README and docs/: what they name is there, and what they say to type is taken."""

from __future__ import annotations

import re
import shlex
import tomllib
from itertools import takewhile
from pathlib import Path

import pytest

from broker_shim.broker.settings import BrokerSettings, read_settings
from broker_shim.handlers.add_ons import read_handlers
from broker_shim.security import passwd
from broker_shim.security.security_settings import SecuritySettings, read_security
from broker_shim.serve.options import parser as serve_parser
from sparkstore.cli import command_line
from sparkstore.cli.parsing import with_url_as_root
from sparkstore.config import StoreConfig, read_config
from tests.support.checkout import CHECKOUT
from tests.support.documents import DOCUMENTS, PAGES, blocks, prose, text_of

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CRON = re.compile(r"^(?:[\d*/]+\s+){5}")
LINKING = [*DOCUMENTS, CHECKOUT / "CONTRIBUTING.md", CHECKOUT / "ARCHITECTURE.md"]
ABOVE = {"serve": serve_parser, "passwd": passwd._parser}
"""The parsers of the commands that live above `sparkstore`."""
ALL = "".join(page.read_text() for page in DOCUMENTS)


def links(page: Path) -> list[str]:
    return [link for link in LINK.findall(prose(page.read_text())) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """What a link may name in a page: its headings, as a web page spells them."""
    headings = re.findall(r"^#+ (.+)$", prose(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def is_broken(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return not target.is_file() or bool(anchor and anchor not in anchors(target))


def typed_lines() -> list[str]:
    """Each line of a code block that calls a command, without the times of cron."""
    lines = (CRON.sub("", line) for block in blocks(ALL) for line in block.splitlines())
    return [line for line in lines if re.match(r"sparkstore [a-z]", line)]


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.name)
def test_every_link_to_a_file_or_a_heading_finds_it(page: Path) -> None:
    assert [link for link in links(page) if is_broken(page, link)] == []


def test_the_readme_leads_to_every_page() -> None:
    linked = {link.partition("#")[0] for link in links(CHECKOUT / "README.md")}
    pages = {str(page.relative_to(CHECKOUT)) for page in PAGES}
    assert len(pages) == 18
    assert {*pages, "ARCHITECTURE.md", "CONTRIBUTING.md"} - linked == set()


def test_the_readme_is_read_in_ten_minutes() -> None:
    lines = text_of("README.md").splitlines()
    assert len(lines) <= 170
    assert len(text_of("README.md").split()) <= 900
    wide = [line for line in prose("\n".join(lines)).splitlines() if len(line) > 110]
    assert [line for line in wide if not line.startswith("|")] == []


def test_every_file_that_the_documents_name_is_there() -> None:
    tops = "sparkstore|broker_shim|conf|jobs|tests|notebooks"
    named = set(re.findall(rf"`((?:{tops})/[\w./-]*\w)`", prose(ALL)))
    assert len(named) > 5
    assert {path for path in named if not (CHECKOUT / path).exists()} == set()


@pytest.mark.parametrize("line", typed_lines())
def test_every_command_line_of_the_documents_is_taken(line: str) -> None:
    words = [*takewhile(lambda word: word != ">", shlex.split(line, comments=True)[1:])]
    command, *arguments = words
    if command in ABOVE:
        ABOVE[command]().parse_args(arguments)
    else:
        parser = command_line._parser({})
        parser.parse_args(with_url_as_root(parser, words))


def test_every_settings_file_of_the_documents_is_read(tmp_path: Path) -> None:
    files = blocks(ALL, "toml")
    assert len(files) == 10
    (empty := tmp_path / "empty.toml").touch()
    for text in files:
        (file := tmp_path / "sparkstore.toml").write_text(text)
        read = (read_settings(file), read_security(file), read_config(file), read_handlers(file))
        defaults = (BrokerSettings(), SecuritySettings(), StoreConfig(), read_handlers(empty))
        assert read != defaults


def test_every_command_that_the_documents_name_is_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    named = set(re.findall(r"`sparkstore ([a-z]+)", ALL))
    with pytest.raises(SystemExit):
        command_line.main(["--help"])
    offered = set(re.findall(r"^    ([a-z]+)\b", capsys.readouterr().out, re.MULTILINE))
    assert {"queues", "serve"} <= named
    assert named - offered == set()


def test_every_make_target_that_the_documents_name_is_there() -> None:
    documents = ALL + text_of("CONTRIBUTING.md")
    named = set(re.findall(r"(?:`|^)make ([a-z0-9-]+)", documents, re.MULTILINE))
    targets = set(re.findall(r"^([a-z0-9-]+):", text_of("Makefile"), re.MULTILINE))
    assert {"demo", "test", "bench"} <= named
    assert named - targets == set()


def test_the_dependencies_of_the_package_are_those_of_the_lock() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    locked = text_of("requirements.lock")
    for requirement in project["dependencies"]:
        name = re.split(r"[=<>]", requirement)[0]
        assert f"\n{name}==" in f"\n{locked}"
