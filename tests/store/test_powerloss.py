"""What was acknowledged survives power loss, whatever the disk kept of what was not synced."""

from __future__ import annotations

import logging
import os

import pytest

from holdfast.testing.powerloss import Trial, sweep

log = logging.getLogger(__name__)


def test_nothing_acknowledged_is_lost_to_power_loss() -> None:
    trials = sweep(int(os.environ.get("HOLDFAST_POWERLOSS_TRIALS", "40")), seed=1000)
    assert [trial for trial in trials if trial.problem] == []
    assert sum(trial.acknowledged for trial in trials) > 0


def test_a_disk_that_lies_about_syncing_is_found_out() -> None:
    assert any(trial.problem for trial in sweep(15, seed=2000, lying=True))


@pytest.mark.prove
def test_nothing_acknowledged_is_lost_to_many_power_losses() -> None:
    def report(trial: Trial) -> None:
        if trial.problem or trial.seed % 50 == 0:
            log.info("power loss %s", trial)

    assert [trial for trial in sweep(400, seed=5000, report=report) if trial.problem] == []
