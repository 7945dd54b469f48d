"""Keep what one start of Spark learns for the next: Delta's jars, and the classes that it loads.

    jars     where Ivy put the jars that Spark does not bring: the next start names them by path,
             and asks no resolver (1.5 s of processor time, and no network)
    archive  classes in the form that the JVM maps into memory (class data sharing): the next
             start neither parses nor verifies some 15,000 of them (4 s of processor time)

All of it is in `$XDG_CACHE_HOME/sparkstore`, else `~/.cache/sparkstore`, which only its owner may
write. Nothing depends on it: what is missing, of another version, or not ours is passed over.

A JVM writes its archive while it ends, when nobody waits for it any more. So it writes to a name
with the process's number, and the first start that finds that process gone adopts the file. Two
that adopt at once rename one file, and one of them finds it gone. An empty file stands there from
the start of that JVM on, so that one makes it and not two. A JVM that is killed meanwhile leaves a
file that is empty, and is removed, or one without a header, which is written last: Java passes over
that.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pyspark

from sparkstore.user_cache import user_cache

_VERSION = re.compile(r"-\d[^-]*(-SNAPSHOT)?$")
_UNUSED_DAYS = 30


def cache_folder() -> Path | None:
    """Return the folder, made if it was not there; None if there can be none that is ours alone."""
    try:
        folder = user_cache()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, RuntimeError):  # of a user without a home
        return None
    is_ours = status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return folder if is_ours else None


def known_jars(package: str) -> list[str]:
    """Return the jars of a Maven package as an earlier start found them; [] if one is not there."""
    listed = _list_of(package)
    if listed is None:
        return []
    try:
        lines = listed.read_text(encoding="utf-8").splitlines()
        sizes = [line.split(" ", 1) for line in lines]
        whole = all(Path(path).stat().st_size == int(size) for size, path in sizes)
    except (OSError, ValueError):
        return []
    return [path for _, path in sizes] if whole else []


def remember_jars(package: str, resolved: Iterable[str]) -> None:
    """Keep where a package's jars are, but for what Spark brings itself: its own come first."""
    listed = _list_of(package)
    if listed is None:
        return
    own = {_artifact(jar.stem) for jar in _spark_jars().glob("*.jar")}
    paths = (Path(uri.removeprefix("file://")) for uri in resolved)
    added = [path for path in paths if _artifact(path.stem.partition("_")[2]) not in own]
    with suppress(OSError):
        text = "".join(f"{path.stat().st_size} {path}\n" for path in added)
        part = listed.with_suffix(f".{os.getpid()}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(listed)


def archive_option(java: str, *, makes: bool = True) -> str:
    """Return the JVM's option that uses the archive, or the one that makes it at the JVM's end.

    Args:
        java: What tells one Java from another: its path, and what it says of its version.
        makes: Whether to make it if there is none. It has the classes that this JVM has loaded by
            its end, so only one that answers a query is to make it.
    """
    folder = cache_folder()
    if folder is None or re.search(r"\s", str(folder)):  # options are separated by blanks
        return ""
    name = f"classes-{_digest(java, *_of_spark())}"
    archive = folder / f"{name}.jsa"
    with suppress(OSError):
        _adopt(folder, name, archive)
    if archive.exists():
        return f"-XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"
    if not makes or any(folder.glob(f"{name}.*.part")):  # another JVM is making it
        return ""
    part = folder / f"{name}.{os.getpid()}.part"
    part.touch()
    return f"-XX:ArchiveClassesAtExit={part} -Xlog:cds=off -Xlog:cds+dynamic=off"


def _adopt(folder: Path, name: str, archive: Path) -> None:
    """Take over the archive of a JVM that has ended, and remove those that nobody uses."""
    for part in folder.glob(f"{name}.*.part"):
        if _is_running(int(part.suffixes[-2][1:])):
            continue
        if part.stat().st_size:
            part.replace(archive)
        else:
            part.unlink()
    if archive.exists():
        os.utime(archive)
    for other in folder.glob("classes-*"):
        if time.time() - other.stat().st_mtime > _UNUSED_DAYS * 86_400:
            other.unlink()


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _list_of(package: str) -> Path | None:
    folder = cache_folder()
    return folder and folder / f"jars-{_digest(package, *_of_spark())}.txt"


@cache
def _of_spark() -> tuple[str, ...]:
    """Which Spark this is: the JVM takes an archive only with the very same files."""
    jars = [(jar.name, jar.stat()) for jar in sorted(_spark_jars().glob("*.jar"))]
    return (
        str(_spark_jars()),
        *(f"{name} {jar.st_size} {jar.st_mtime_ns}" for name, jar in jars),
    )


def _spark_jars() -> Path:
    return Path(pyspark.__file__).parent / "jars"


def _artifact(stem: str) -> str:
    return _VERSION.sub("", stem)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
