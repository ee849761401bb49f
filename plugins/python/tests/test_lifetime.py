"""Closing, garbage collection, threads, processes, forks, pickling."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import perigeedb
import pytest
from perigeedb import Database


def fill(db: Database, entries: int = 5000) -> None:
    db.update({f"{i:06}": str(i) for i in range(entries)})


def test_closing_while_iterating_raises_closed(path: Path) -> None:
    db = perigeedb.open(path)
    fill(db)
    iterators = [iter(db), iter(db.items()), iter(db.snapshot()), reversed(db.values())]
    feed = db.changes()
    for iterator in iterators:
        next(iterator)
    db.close()
    for open_iterator in [*iterators, feed]:
        for _ in range(2):
            with pytest.raises(perigeedb.Closed):
                next(open_iterator)
    db.close()
    assert db.closed


def test_every_call_on_a_closed_database_raises_closed(path: Path) -> None:
    db = perigeedb.open(path)
    family, txn, batch, snapshot = db.family("f"), db.transaction(), db.batch(), db.snapshot()
    keys = db.keys()
    batch["k"] = "v"
    db.close()
    calls: list[Callable[[], object]] = [
        lambda: db["k"],
        lambda: db.get("k"),
        lambda: "k" in db,
        lambda: len(db),
        lambda: bool(db),
        lambda: list(keys),
        lambda: db.update(k="v"),
        lambda: db.pop("k"),
        lambda: db.get_many(["k"]),
        lambda: db.clear(),
        lambda: family.put("k", "v"),
        lambda: family.stats(),
        lambda: txn.get("k"),
        lambda: txn.commit(),
        lambda: batch.commit(),
        lambda: snapshot["k"],
        lambda: db.transaction(),
        lambda: db.snapshot(),
        lambda: db.family("g"),
        lambda: db.families(),
        lambda: db.stats(),
        lambda: db.metrics(),
        lambda: db.counters(),
        lambda: db.files(),
        lambda: db.options(),
        lambda: db.flush(),
        lambda: db.compact(),
        lambda: db.sync(),
        lambda: db.sequence,
        lambda: db.changes(),
        lambda: db.backup(path.parent / "backup"),
        lambda: db.checkpoint(path.parent / "checkpoint"),
        lambda: db.verify(),
        lambda: db.run(lambda t: t.get("k")),
        lambda: db.named_snapshots(),
        lambda: db.bulk_load([]),
        lambda: db.compare_and_swap("k", None, "v"),
    ]
    for number, call in enumerate(calls):
        try:
            call()
        except perigeedb.Closed:
            continue
        pytest.fail(f"call {number} did not raise Closed")
    assert "closed" in repr(db) and db.path == path
    snapshot.close()
    txn.rollback()


def test_objects_keep_the_database_open(path: Path) -> None:
    iterator = iter(perigeedb.open(path, durability="none").family("f").items())
    gc.collect()
    assert list(iterator) == []
    with pytest.raises(perigeedb.Locked):
        perigeedb.open(path)
    del iterator
    gc.collect()
    perigeedb.open(path).close()


def test_dropping_the_last_reference_closes(path: Path) -> None:
    for i in range(3):
        db = perigeedb.open(path)
        db[str(i)] = "x"
        del db
    with perigeedb.open(path) as db:
        assert len(db) == 3


def test_iterators_can_be_dropped_in_any_state(db: Database) -> None:
    fill(db)
    for taken in (0, 1, 4, 5, 100, 5000):
        iterator = iter(db.items())
        for _ in range(taken):
            next(iterator)
        del iterator
    keys = iter(db)
    next(keys)
    keys.close()
    assert list(keys) == []
    exhausted = iter(db.keys(prefix="none"))
    assert next(exhausted, None) is None and next(exhausted, None) is None


def test_iterator_shows_the_state_at_its_start(db: Database) -> None:
    fill(db, 3000)
    iterator = iter(db)
    first = next(iterator)
    db.clear()
    db["later"] = "x"
    assert [first, *iterator] == [f"{i:06}".encode() for i in range(3000)]


def test_threads_share_an_iterator(db: Database) -> None:
    fill(db, 20_000)
    iterator = iter(db.keys())
    parts: list[list[bytes]] = [[] for _ in range(8)]

    def take(part: list[bytes]) -> None:
        for key in iterator:
            part.append(key)

    threads = [threading.Thread(target=take, args=(part,)) for part in parts]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(key for part in parts for key in part) == list(db)
    assert all(part == sorted(part) for part in parts)


def test_readers_and_writers_in_threads(db: Database) -> None:
    stop = threading.Event()
    errors: list[BaseException] = []

    def guard(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as e:
                errors.append(e)

        return run

    def write(name: str) -> Callable[[], None]:
        def work() -> None:
            for i in range(1500):
                # Both keys or none: a batch is atomic.
                db.update({f"a/{name}/{i % 50}": str(i), f"b/{name}/{i % 50}": str(i)})

        return work

    def read() -> None:
        while not stop.is_set():
            with db.snapshot() as snapshot:
                a = {k[2:]: v for k, v in snapshot.items(prefix="a/")}
                b = {k[2:]: v for k, v in snapshot.items(prefix="b/")}
                assert a == b

    writers = [threading.Thread(target=guard(write(str(i)))) for i in range(3)]
    readers = [threading.Thread(target=guard(read)) for _ in range(2)]
    for t in writers + readers:
        t.start()
    for t in writers:
        t.join()
    stop.set()
    for t in readers:
        t.join()
    assert errors == [] and len(db) == 300


def test_closing_while_other_threads_use_the_database(path: Path) -> None:
    for _ in range(5):
        db = perigeedb.open(path, durability="none")
        fill(db, 500)
        began = threading.Barrier(5)
        wrong: list[BaseException] = []

        def use() -> None:
            began.wait()
            try:
                while True:
                    db["k"] = "v"
                    list(db.items())
            except perigeedb.Closed:
                pass
            except BaseException as e:
                wrong.append(e)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for t in threads:
            t.start()
        began.wait()
        db.close()
        for t in threads:
            t.join()
        assert wrong == []


def test_a_second_open_is_refused(db: Database, path: Path) -> None:
    with pytest.raises(perigeedb.Locked):
        perigeedb.open(path)
    db["moon"] = "full"
    with perigeedb.open(path, read_only=True) as reader:
        assert reader["moon"] == b"full"
        with pytest.raises(perigeedb.ReadOnly):
            reader["moon"] = "new"


CHILD = """
import sys, perigeedb
path = sys.argv[1]
try:
    perigeedb.open(path)
except perigeedb.Locked as e:
    print("locked", e.kind)
with perigeedb.open(path, read_only=True) as db:
    print(db["moon"].decode(), len(db))
"""


def test_two_processes(db: Database, path: Path) -> None:
    db["moon"] = "full"
    out = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=True
    )
    assert out.stdout.split("\n")[:2] == ["locked locked", "full 1"]


KILLED = """
import os, sys, perigeedb
db = perigeedb.open(sys.argv[1])
for i in range(1000):
    db[f"{i:04}"] = "x"
    print(i, flush=True)
os._exit(9)
"""


def test_acknowledged_writes_survive_a_crash(path: Path) -> None:
    out = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, text=True)
    assert out.returncode == 9
    with perigeedb.open(path) as db:
        assert len(db) == len(out.stdout.split()) == 1000


AT_EXIT = """
import sys, perigeedb
db = perigeedb.open(sys.argv[1])
db.update({str(i): "x" for i in range(10000)})
rows, feed, txn = iter(db.items()), db.changes(), db.transaction()
next(rows), next(feed)
txn["late"] = "x"
cycle = [db, rows, feed, txn]
cycle.append(cycle)
"""


def test_objects_alive_at_exit_are_no_problem(path: Path) -> None:
    out = subprocess.run([sys.executable, "-c", AT_EXIT, str(path)], capture_output=True, text=True)
    assert (out.returncode, out.stderr) == (0, "")
    with perigeedb.open(path) as db:
        assert len(db) == 10000


DAEMON = """
import sys, threading, time, perigeedb
db = perigeedb.open(sys.argv[1], durability="none")
def work():
    i = 0
    while True:
        db[str(i % 1000)] = "x"
        list(db.items(end="2"))
        i += 1
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
"""


def test_daemon_threads_at_exit_are_no_problem(path: Path) -> None:
    out = subprocess.run([sys.executable, "-c", DAEMON, str(path)], capture_output=True, text=True)
    assert (out.returncode, out.stderr) == (0, "")
    perigeedb.open(path).close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_gets_an_error(path: Path) -> None:
    code = """
import os, sys, perigeedb
db = perigeedb.open(sys.argv[1])
db["moon"] = "full"
rows = iter(db.items())
pid = os.fork()
if pid == 0:
    try:
        db["moon"] = "new"
    except perigeedb.Closed as e:
        assert "forked" in str(e)
        sys.exit(7)
    sys.exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
db["tide"] = "high"
db.close()
print(dict(perigeedb.open(sys.argv[1])))
"""
    out = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(path)], capture_output=True, text=True
    )
    assert (out.stdout, out.stderr) == ("{b'moon': b'full', b'tide': b'high'}\n", "")


def test_pickling_and_copying_are_refused(db: Database) -> None:
    batch = db.batch()
    for thing in (
        db,
        db.family("f"),
        db.snapshot(),
        db.transaction(),
        batch,
        db.keys(),
        iter(db),
        db.changes(),
    ):
        for act in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled or copied"):
                act(thing)


def test_errors_can_be_pickled(db: Database) -> None:
    with pytest.raises(perigeedb.NotFound) as raised:
        db.family("nowhere", create=False)
    again = pickle.loads(pickle.dumps(raised.value))
    assert type(again) is perigeedb.NotFound and str(again) == str(raised.value)
    assert again.retryable is False


def test_classes_cannot_be_made_directly() -> None:
    for cls in (perigeedb.Database, perigeedb.Family, perigeedb.Transaction, perigeedb.Range):
        with pytest.raises(TypeError):
            cls()


def test_interrupt_ends_a_wait_for_changes(path: Path) -> None:
    code = """
import signal, sys, perigeedb
db = perigeedb.open(sys.argv[1])
def interrupt(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    for change in db.changes(timeout=None):
        pass
except KeyboardInterrupt:
    print("interrupted")
"""
    out = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert (out.stdout, out.stderr) == ("interrupted\n", "")


def test_interrupt_ends_a_scan_by_c_code(path: Path) -> None:
    code = """
import collections, itertools, signal, sys, perigeedb
db = perigeedb.open(sys.argv[1])
db.update({str(i): "" for i in range(5000)})
def interrupt(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    collections.deque(itertools.chain.from_iterable(itertools.repeat(db.keys())), maxlen=0)
except KeyboardInterrupt:
    print("interrupted")
"""
    out = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=300
    )
    assert (out.stdout, out.stderr) == ("interrupted\n", "")


def test_finalizer_may_use_the_iterator_that_runs_it(db: Database) -> None:
    fill(db, 2000)
    iterator = iter(db.items())
    taken: list[object] = []

    class Node:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            taken.append(next(iterator, None))

    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        rows = []
        for row in iterator:
            rows.append(row)
            Node()
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    seen = [row for row in [*rows, *taken] if row is not None]
    assert sorted(seen) == list(db.items())  # type: ignore[type-var]
