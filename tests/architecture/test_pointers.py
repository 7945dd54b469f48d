"""Whoever has only the repository can follow every pointer in it, and ARCHITECTURE.md is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker_shim.store.protocol import VERSION as PROTOCOL_VERSION
from sparkstore.core.records import Kind
from sparkstore.recovery.recovery import ALL_PARTS
from sparkstore.tables.schema import SCHEMA_VERSION
from tests.architecture.source import TOP, is_product, tracked_files

ARCHITECTURE = Path("ARCHITECTURE.md")
# Spelt so that this file does not match itself.
POINTER = re.compile(r"[A]RCHITECTURE:\s+(.{1,60})", re.DOTALL)
NUMBERED_RULE = re.compile(r"(?<![A]RCHITECTURE: )\b[R]ules? \d")
ELSEWHERE = re.compile(r"\b[D]ESIGN \d|\b[S]TYLE \d|\bdocument[ ]00\d|\b[F]ACTS-\w")
TICKET = re.compile(r"\b(?:QPID|ARTEMIS|PROTON|DISPATCH)-\d+")
TICKETS = {"QPID-2893", "ARTEMIS-1093"}
"""Of which the text is known: public ones of the brokers that this project learnt from."""
SECTION = re.compile(r"AMQP(?: 1\.0)?,?(?: section)? (?!1\.0)([1-5])\.(\d+)(?:\.(\d+))?")
CHAPTERS = {1: 6, 2: 8, 3: 5, 4: 5, 5: 3}
"""Of AMQP 1.0: how many numbered chapters each part has."""
SECTIONS = {(2, 6): 14, (2, 7): 9, (4, 4): 4}
"""And how many sections those chapters that are cited most."""


def text_of(path: Path) -> str:
    try:
        return (TOP / path).read_text()
    except UnicodeDecodeError:
        return ""


def found_by(pattern: re.Pattern[str], *, but: tuple[Path, ...] = ()) -> dict[str, list[str]]:
    found = {
        path.as_posix(): [match.group() for match in pattern.finditer(text_of(path))]
        for path in tracked_files()
        if path not in but
    }
    return {path: matches for path, matches in found.items() if matches}


def headings(text: str) -> list[str]:
    """What a pointer may name: a heading, up to its full stop if it has one."""
    return [line.partition(". ")[0] for line in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]


def resolves(pointer: str, names: list[str]) -> bool:
    words = re.sub(r"\W+", " ", pointer) + " "
    return any(words.startswith(re.sub(r"\W+", " ", name) + " ") for name in names)


def paths_in(text: str) -> set[str]:
    """Everything that is written as a path from the top: `sparkstore/log/wal.py`, `tests/unit`."""
    tops = {path.parts[0] for path in tracked_files() if len(path.parts) > 1}
    tops -= {name for name in tops if name.startswith(".")}
    words = re.findall(rf"(?<![\w/<>.-])(?:{'|'.join(sorted(tops))})/[\w./-]*\w", text)
    return set(words)


def listed_packages(text: str) -> dict[str, set[str]]:
    """The folders of the listing: `   core/ operations/    what they are` below ` sparkstore/`."""
    listed: dict[str, set[str]] = {}
    top = ""
    for line in text.splitlines():
        found = re.match(r"^( {1,3})((?:\w+/ +)+)", line)
        if found is None:
            continue
        names = found.group(2).replace("/", " ").split()
        if len(found.group(1)) == 1:
            top = names[0]
        else:
            listed.setdefault(top, set()).update(names)
    return listed


def test_every_path_that_the_architecture_names_is_there() -> None:
    named = paths_in(text_of(ARCHITECTURE))
    assert len(named) > 50
    assert {path for path in named if not (TOP / path).exists()} == set()


def test_every_function_that_the_architecture_names_is_in_its_file() -> None:
    named = re.findall(r"`([\w/]+\.py)`\s+\(`(\w+)`\)", text_of(ARCHITECTURE))
    assert len(named) > 5
    missing = [each for each in named if f"def {each[1]}(" not in text_of(Path(each[0]))]
    assert missing == []


def test_every_setting_that_the_architecture_names_is_one() -> None:
    settings = text_of(Path("conf/sparkstore.toml")) + text_of(Path("sparkstore/cli/jobs.py"))
    named = set(re.findall(r"`(\w+_(?:ms|s|days|bytes|interval|dir))`", text_of(ARCHITECTURE)))
    assert len(named) > 3
    known = settings.replace("-", "_")
    assert {name for name in named if name not in known} == set()


@pytest.mark.parametrize("top", ["sparkstore", "broker_shim"])
def test_the_architecture_lists_every_package(top: str) -> None:
    packages = {
        path.parts[1]
        for path in tracked_files()
        if path.parts[0] == top and len(path.parts) == 3 and path.name == "__init__.py"
    }
    listed = listed_packages(text_of(ARCHITECTURE))[top]
    assert packages <= listed
    assert {name for name in listed if not (TOP / top / name).is_dir()} == set()


def test_the_architecture_has_the_length_that_somebody_reads() -> None:
    assert 300 <= len(text_of(ARCHITECTURE).splitlines()) <= 450


def test_every_pointer_to_the_architecture_names_a_heading_of_it() -> None:
    names = headings(text_of(ARCHITECTURE))
    pointers = {
        f"{path}: {match.group(1)}"
        for path in tracked_files()
        for match in POINTER.finditer(text_of(path))
        if not resolves(match.group(1), names)
    }
    assert pointers == set()


def test_nothing_cites_a_document_that_is_not_in_the_repository() -> None:
    assert found_by(ELSEWHERE) == {}
    assert found_by(NUMBERED_RULE, but=(ARCHITECTURE,)) == {}


def test_every_ticket_that_is_cited_is_a_known_one() -> None:
    cited = {ticket for tickets in found_by(TICKET).values() for ticket in tickets}
    assert cited - TICKETS == set()


def test_every_section_of_amqp_that_is_cited_exists() -> None:
    cited = [
        (path.as_posix(), match.group())
        for path in tracked_files()
        for match in SECTION.finditer(text_of(path))
        if not is_section(match)
    ]
    assert cited == []


def is_section(match: re.Match[str]) -> bool:
    part, chapter, section = int(match[1]), int(match[2]), int(match[3] or 1)
    return 1 <= chapter <= CHAPTERS[part] and 1 <= section <= SECTIONS.get((part, chapter), 24)


def test_the_patterns_find_what_they_are_for() -> None:
    names = headings("# Architecture\n## Rule" + " 3. One writer per root\n### A start\n")
    assert resolves("Rule" + " 3).", names)
    assert resolves("A start, in", names)
    assert not resolves("Rule" + " 31", names)
    assert not resolves("Rule" + " 4", names)
    assert NUMBERED_RULE.search("see Rule" + " 3")
    assert not NUMBERED_RULE.search("ARCHITECTURE: Rule" + " 3")
    assert ELSEWHERE.search("DESIGN" + " 8")
    assert ELSEWHERE.search("design document" + " 004")
    assert paths_in("`sparkstore/log/nothing.py`, <root>/journal") == {"sparkstore/log/nothing.py"}
    section = SECTION.search("AMQP 1.0 section" + " 2.6.15")
    assert section is not None
    assert not is_section(section)


PROSE = re.compile(r'""".*?"""|(?<=\s)# .*?$', re.DOTALL | re.MULTILINE)
"""Docstrings, those of attributes too, and comments."""
FOREIGN = {
    *("antlr4", "parsimonious", "pyparsing"),  # rejected libraries
    *("IDENTIFIER", "createTempView", "ignoreMissingFiles", "persist"),  # of Spark: not used
    *("AF_INET", "SSLSocket", "getpeercert", "on_disconnected"),  # of Python and of proton
    *("_RECEIVED", "_total"),  # ends of names
    *("a_2", "eu", "orders"),  # names that a user may have given
}
"""What stands in backquotes though nothing here is called so."""


def test_every_name_in_backquotes_is_that_of_something_here() -> None:
    files = tracked_files()
    names = {part for path in files for part in (*path.parts, path.stem)} | FOREIGN | {""}
    product = names.union(*(words_of(path) for path in files if is_product(path)))
    tests = product.union(*(words_of(path) for path in files if not is_product(path)))
    unknown = [
        f"{path}: {name}"
        for path in files
        if path.suffix == ".py"
        for prose in PROSE.findall(text_of(path))
        for name in re.findall(r"`([A-Za-z_][\w.]*)`", prose)
        if not {*name.split(".")} <= (product if is_product(path) else tests)
    ]
    assert unknown == []


NO_MODULES = {"broker.xml", "sparkstore.audit", "sparkstore.commands", "sparkstore.decoders"}
"""A file of Artemis, a logger, and groups of entry points."""


def test_every_module_that_prose_names_by_its_rooms_is_there() -> None:
    modules = {path.stem for path in tracked_files() if path.suffix == ".py"}
    rooms = {"": TOP, **{top: TOP / top for top in ("sparkstore", "broker_shim")}}
    for top in ("sparkstore", "broker_shim"):
        rooms |= {path.name: path for path in (TOP / top).iterdir() if path.name not in modules}
    named = {
        (path.as_posix(), name)
        for path in tracked_files()
        if path.suffix == ".py"
        for prose in PROSE.findall(text_of(path))
        for name in re.findall(r"`([a-z]\w+(?:\.\w+)+)`", prose)
        if name.partition(".")[0] in rooms and not name.endswith(".toml")
    }
    assert len(named) > 50
    missing = [(path, name) for path, name in named if not _is_in(rooms, name)]
    assert [(path, name) for path, name in missing if name not in NO_MODULES] == []


def _is_in(rooms: dict[str, Path], name: str) -> bool:
    """Follow a dotted name from room to room, to a module or to what one has."""
    first, *parts = name.split(".")
    place = rooms[first]
    for part in parts:
        if not (place / part).is_dir():
            module = place / f"{part}.py"
            return module.exists() or part in words_of(place / "__init__.py")
        place /= part
    return True


def words_of(path: Path) -> set[str]:
    """What its code is made of: of Python without the prose, of documents nothing."""
    text = "" if path.suffix == ".md" else text_of(path)
    return set(re.findall(r"\w+", PROSE.sub("", text) if path.suffix == ".py" else text))


def test_the_architecture_lists_every_kind_of_record_and_part_of_state() -> None:
    text = text_of(ARCHITECTURE)
    row = next(line for line in text.splitlines() if line.startswith("| `kind`"))
    kinds = row.rpartition(": ")[2].strip(" |").split(", ")
    assert sorted(kinds) == sorted(kind.column for kind in Kind)
    parts = text.partition("It is partitioned by `part`")[2].partition("\n\n")[0]
    assert set(ALL_PARTS) <= set(re.findall(r"`(\w+)`", parts))


def test_the_architecture_tells_the_versions_of_the_formats() -> None:
    told = dict(re.findall(r"^\| ([\w ]+) \| (\d) \|", text_of(ARCHITECTURE), re.MULTILINE))
    assert told["records and tables"] == str(SCHEMA_VERSION)
    assert told["store protocol"] == str(PROTOCOL_VERSION)
