"""How long properties are searched, and how Java compiles.

`local` is bounded and tries something else each time; `ci` is `local` with the same tries each
time, so that a submission is judged by its own change; `soak` takes as long as it takes.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

if os.environ.get("SPARKSTORE_SPARK") != "shipped":
    # A job on few rows ends before code that Java compiled well pays: a third less time.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile("local", deadline=None, max_examples=60, suppress_health_check=_SLOW)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.register_profile("soak", deadline=None, max_examples=3_000, suppress_health_check=_SLOW)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "soak" if "SPARKSTORE_SOAK" in os.environ else "local")
)
