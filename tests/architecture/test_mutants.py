"""The faults of `make mutants` follow the code that they are about."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import Fault, faults, misfit


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: f"{fault.group}: {fault.name}")
def test_a_fault_fits_the_code(fault: Fault) -> None:
    assert misfit(fault) is None
