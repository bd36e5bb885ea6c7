"""All cases, in the order of their ids' kinds."""

from __future__ import annotations

from tests.attacks import (
    exits,
    forge,
    honest,
    operations,
    optimizers,
    overfit,
    processes,
    resources,
    rules,
    shipped,
    stealing,
    tamper,
)
from tests.attacks.case import Case

CASES: list[Case] = [
    *exits.CASES,
    *tamper.CASES,
    *forge.CASES,
    *stealing.CASES,
    *processes.CASES,
    *resources.CASES,
    *rules.CASES,
    *optimizers.CASES,
    *overfit.CASES,
    *shipped.CASES,
    *honest.CASES,
    *operations.CASES,
]
