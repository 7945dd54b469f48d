"""A witness in a folder: writers that are frozen or killed between any two of their steps."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path

import pytest

from sparkstore.errors import Unavailable
from sparkstore.witness.folder import FolderPlace

pytestmark = pytest.mark.slow
STEPS = {"open", "os.rename", "os.remove", "os.mkdir", "os.listdir", "os.scandir", "os.rmdir"}
MOST_STEPS = 40


class Writer:
    """A process that adds a word to the object, and gets a signal before one of its steps."""

    def __init__(self, folder: Path, step: int, number: int, word: bytes) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            left = [step]

            def at(event: str, arguments: tuple[object, ...]) -> None:
                if event in STEPS and str(folder) in str(arguments[0]):
                    left[0] -= 1
                    if left[0] == 0:
                        os.kill(os.getpid(), number)

            try:
                sys.addaudithook(at)
                os._exit(0 if append(FolderPlace(folder), word) else 1)
            finally:
                os._exit(2)
        _, self._status = os.waitpid(self.pid, os.WUNTRACED)
        self.is_stopped = os.WIFSTOPPED(self._status)
        self.is_killed = os.WIFSIGNALED(self._status)

    def won(self) -> bool:
        """Let it go on; True if it was told that it had replaced the object."""
        if self.is_stopped:
            os.kill(self.pid, signal.SIGCONT)
            _, self._status = os.waitpid(self.pid, 0)
        assert os.WEXITSTATUS(self._status) in {0, 1}
        return os.WEXITSTATUS(self._status) == 0


def append(place: FolderPlace, word: bytes) -> bool:
    """Add a word to the object that is seen, unless it is replaced meanwhile."""
    stored = place.read()
    if stored is None:
        return place.put_if_absent(word)
    return place.replace_if_unchanged(stored.content + b" " + word, stored.tag)


def words(place: FolderPlace) -> list[bytes]:
    stored = place.read()
    return [] if stored is None else stored.content.split()


@pytest.mark.parametrize("begun", [b"", b"first"], ids=["the first object", "a later one"])
def test_a_writer_frozen_anywhere_blocks_nobody_and_one_of_two_wins(
    tmp_path: Path, begun: bytes
) -> None:
    for step in range(1, MOST_STEPS):
        folder = tmp_path / str(step)
        folder.mkdir()
        place = FolderPlace(folder)
        if begun:
            place.put_if_absent(begun)
        frozen = Writer(folder, step, signal.SIGSTOP, b"slow")
        is_over = not frozen.is_stopped
        # It stands still: the others go on as if it were not there.
        assert [append(place, b"one"), append(place, b"two")] == [True, True]
        has_won = frozen.won()  # as one that looked late may
        assert [word for word in words(place) if word != b"slow"] == [
            *begun.split(),
            b"one",
            b"two",
        ]
        assert words(place).count(b"slow") == has_won
        assert append(place, b"end")
        assert len(list((folder / "primary").iterdir())) == 2  # nothing is left over
        if is_over:
            return
    pytest.fail("a write has more steps than are tried")


@pytest.mark.parametrize("begun", [b"", b"first"], ids=["the first object", "a later one"])
def test_a_writer_killed_anywhere_leaves_an_object_that_is_whole(
    tmp_path: Path, begun: bytes
) -> None:
    for step in range(1, MOST_STEPS):
        folder = tmp_path / str(step)
        folder.mkdir()
        place = FolderPlace(folder)
        if begun:
            place.put_if_absent(begun)
        writer = Writer(folder, step, signal.SIGKILL, b"dead")
        assert words(place) in ([*begun.split()], [*begun.split(), b"dead"])
        assert append(place, b"next")
        assert append(place, b"end")
        assert words(place)[-2:] == [b"next", b"end"]
        assert len(list((folder / "primary").iterdir())) == 2
        if not writer.is_killed:
            return
    pytest.fail("a write has more steps than are tried")


def test_two_frozen_at_all_pairs_of_their_steps_never_both_win(tmp_path: Path) -> None:
    for first in range(3, 9):  # from the first step after the look, to past the last
        for second in range(first, 9):
            folder = tmp_path / f"{first}-{second}"
            folder.mkdir()
            place = FolderPlace(folder)
            place.put_if_absent(b"0")
            one = Writer(folder, first, signal.SIGSTOP, b"one")
            two = Writer(folder, second, signal.SIGSTOP, b"two")
            won = {word for word, writer in ((b"one", one), (b"two", two)) if writer.won()}
            assert won == set(words(place)[1:])
            assert won


def test_what_an_older_version_wrote_is_the_object_until_it_is_replaced(tmp_path: Path) -> None:
    old = tmp_path / "primary.json"
    old.write_bytes(b"old")
    place = FolderPlace(tmp_path)
    seen = place.read()
    assert seen is not None
    assert seen.content == b"old"
    assert not place.put_if_absent(b"new")
    old.write_bytes(b"renewed")  # the older version is at work
    assert not place.replace_if_unchanged(b"new", seen.tag)
    seen = place.read()
    assert seen is not None
    with (tmp_path / "primary.json.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="held by an older sparkstore: install the same one"):
            place.replace_if_unchanged(b"new", seen.tag)
    assert place.replace_if_unchanged(b"new", seen.tag)
    assert not old.exists()  # an older version finds nothing, and pushes back
    assert not place.replace_if_unchanged(b"newer", seen.tag)
    assert words(place) == [b"new"]
    assert append(place, b"newer")


def test_a_folder_that_lost_the_content_of_its_name_is_not_taken_for_an_empty_one(
    tmp_path: Path,
) -> None:
    place = FolderPlace(tmp_path)
    place.put_if_absent(b"1")
    (content,) = (tmp_path / "primary").glob("*.json")
    content.unlink()
    with pytest.raises(Unavailable, match="no name with its content: restore it"):
        place.read()
