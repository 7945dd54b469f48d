"""What a process that only serves a store loads."""

import subprocess
import sys
from pathlib import Path

import pytest

_OPEN = """
import sys
from sparkstore.log.tuning import import_arrow_without
import_arrow_without("numpy", "pandas")
from broker_shim.store.delta import DeltaMessageStore
for _ in range(2):
    store = DeltaMessageStore(sys.argv[1])
    store.close()
print({"numpy", "pandas"} & {*sys.modules})
import numpy
"""


@pytest.mark.slow
def test_a_store_is_opened_without_numpy_and_pandas_which_can_be_imported_later(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", _OPEN, str(tmp_path / "root")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
