"""Sessions that expire, a counter of visits, and an audit trail from the change feed.
Usage: python sessions.py [directory]"""

from __future__ import annotations

import secrets
import sys
from datetime import timedelta

import perigeedb
from perigeedb import Commit, Database


def log_in(db: Database, user: str) -> str:
    """Creates a session of half an hour and counts the visit, atomically."""
    token = secrets.token_hex(8)
    with db.batch() as batch:
        batch.on("sessions").put(token, user, ttl=timedelta(minutes=30))
        batch.on("visits").merge(user, 1)
    return token


def main() -> None:
    directory = sys.argv[1] if len(sys.argv) > 1 else "sessions.db"
    with perigeedb.open(directory, memory_budget="32 MiB", log_retention="64 MiB") as db:
        sessions = db.family("sessions")
        visits = db.family("visits", merge_operator="counter")
        start = db.sequence
        for user in ("ann", "bob", "ann"):
            token = log_in(db, user)
        print(sessions[token].decode(), "is logged in for", round(sessions.ttl(token) or 0), "s")
        for name, count in visits.items():
            print(name.decode(), "came", int.from_bytes(count, "little", signed=True), "times")
        for change in db.changes(start):
            if isinstance(change, Commit):
                print([f"{o.kind} {o.family}" for o in change.operations])


if __name__ == "__main__":
    main()
