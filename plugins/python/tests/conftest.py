from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import perigeedb
import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A directory for databases that does not exist yet."""
    return tmp_path / "db"


@pytest.fixture
def db(path: Path) -> Iterator[perigeedb.Database]:
    """An empty database. Writes are not synced: the tests do not depend on a power failure."""
    with perigeedb.open(path, durability="none", memory_budget="64 MiB") as db:
        yield db
