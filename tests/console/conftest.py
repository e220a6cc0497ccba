"""The store of a company, made once for all that look at it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from tests.console.acme_store import kill, make
from tests.console.served import Served, store_in


@pytest.fixture(scope="session")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """It, served; it takes half a minute to make. HOLDFAST_ACME names one that is there."""
    given = os.environ.get("HOLDFAST_ACME")
    url = given or store_in(tmp_path_factory.mktemp("acme"))
    workers = [] if given else asyncio.run(make(url))
    try:
        with Served(url) as served:
            yield served
    finally:
        for each in workers:
            kill(each)
