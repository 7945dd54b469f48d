"""Look at a machine for `sparkstore doctor`: versions, Java, Delta's jar, the clock, limits."""

from __future__ import annotations

import re
import resource
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec

from sparkstore.cli.health.clock_health import of_clock
from sparkstore.cli.health.diagnosis import Diagnosis, of_open_files, of_version
from sparkstore.errors import StoreError

_REQUIREMENT = re.compile(r"([A-Za-z0-9_-]+)\s*([<>=!~][^;]*)?(?:;.*)?")


def of_machine() -> Iterator[Diagnosis]:
    """Look at all that is the same for every root on this machine."""
    yield Diagnosis("python", "ok", python_build())
    yield from _packages()
    yield from _spark()
    yield of_clock()
    yield of_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def python_build() -> str:
    """Name this Python, and whether it was built with profile-guided optimisation.

    The loop takes 0.57 to 0.83 of the time on one that was. Distributions build theirs so, but not
    all of their builds say so; their prefix is /usr.
    """
    flags = sysconfig.get_config_var("CONFIG_ARGS") or ""
    is_profiled = "--enable-optimizations" in flags or sys.base_prefix == "/usr"
    how = "with" if is_profiled else "without"
    advice = "" if is_profiled else ": the distribution's own is faster"
    return f"{sys.version.split()[0]}, {how} profile-guided optimisation{advice}"


def _packages() -> Iterator[Diagnosis]:
    """Versions of what sparkstore needs; of an extra only if it is installed."""
    for line in metadata.requires("sparkstore") or ():
        requirement = _REQUIREMENT.match(line)
        if requirement is None:
            continue
        package, wanted = requirement[1], (requirement[2] or "").strip()
        is_extra = "extra ==" in line
        if is_extra and not re.search("extra == .(spark|s3).", line):
            continue  # those of the demo are not the product's
        try:
            version: str | None = metadata.version(package)
        except metadata.PackageNotFoundError:
            version = None
        if version is not None or not is_extra:
            yield of_version(package, version, wanted)


def _spark() -> Iterator[Diagnosis]:
    """Java and Delta's jar, which the jobs and Spark SQL need."""
    if find_spec("pyspark") is None:
        text = "compact, reconcile and sql need it: pip install 'sparkstore[spark]'"
        yield Diagnosis("spark", "warn", "not installed", text)
        return
    from sparkstore.session import DELTA_PACKAGE, check_java
    from sparkstore.session_cache import known_jars

    try:
        java = check_java().splitlines()[0]
    except StoreError as reason:
        yield Diagnosis("java", "warn", "the jobs and Spark SQL will not start", str(reason))
        return
    yield Diagnosis("java", "ok", java)
    if known_jars(DELTA_PACKAGE):
        yield Diagnosis("delta jar", "ok", DELTA_PACKAGE)
    else:
        text = "the first start of Spark fetches it: let the network reach Maven's repository"
        yield Diagnosis("delta jar", "warn", f"{DELTA_PACKAGE} is not here yet", text)
