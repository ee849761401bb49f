"""Transactions, conflicts, locks, savepoints, snapshots, batches."""

from __future__ import annotations

import threading
from datetime import timedelta

import perigeedb
import pytest
from perigeedb import Database, Transaction


def test_commits_at_the_end_of_the_block(db: Database) -> None:
    with db.transaction() as txn:
        txn["moon"] = "full"
        txn.on(db.family("tides"))["06:12"] = "high"
        assert txn["moon"] == b"full" and "moon" not in db
        assert list(txn) == [b"moon"] and txn.operations == 2 and txn.bytes > 0
    assert txn.state == "committed"
    assert db["moon"] == b"full" and db.family("tides")["06:12"] == b"high"
    with pytest.raises(perigeedb.InvalidArgument):
        txn["moon"] = "new"


def test_rolls_back_after_an_exception(db: Database) -> None:
    with pytest.raises(ZeroDivisionError), db.transaction() as txn:
        txn["moon"] = "full"
        1 / 0
    assert txn.state == "rolled back" and not db
    with db.transaction() as txn:
        txn["moon"] = "full"
        txn.rollback()
    assert not db
    txn.rollback()
    with db.transaction() as txn:
        txn["moon"] = "full"
        assert txn.commit() == db.sequence
    assert db["moon"] == b"full"


def test_is_a_mapping_over_its_own_writes(db: Database) -> None:
    db.update({"a": "1", "b": "2", "c": "3"})
    with db.transaction() as txn:
        assert txn.pop("a") == b"1" and txn.setdefault("b", "x") == b"2"
        assert txn.setdefault("d", "4") == b"4"
        txn.update({"e": "5"}, f="6")
        del txn["b"]
        with pytest.raises(KeyError):
            del txn["b"]
        txn.delete_prefix("f")
        assert list(txn.items()) == [(b"c", b"3"), (b"d", b"4"), (b"e", b"5")]
        assert list(txn["c":"e":-1]) == [(b"d", b"4"), (b"c", b"3")]
        assert txn.popitem() == (b"e", b"5") and len(txn) == 2
        assert txn.get_many(["a", "c"]) == [None, b"3"]
        assert dict(db) == {b"a": b"1", b"b": b"2", b"c": b"3"}
    assert dict(db) == {b"c": b"3", b"d": b"4"}


def test_iterator_ignores_later_writes(db: Database) -> None:
    db.update({f"{i:04}": "" for i in range(500)})
    with db.transaction() as txn:
        seen = 0
        for key in txn:
            seen += 1
            del txn[key]
            txn[b"later" + key] = b""
        assert seen == 500 and len(txn) == 500


def test_second_writer_gets_a_conflict(db: Database) -> None:
    db["n"] = "1"
    txn = db.transaction()
    txn["n"] = str(int(txn["n"]) + 1)
    db["n"] = "10"
    with pytest.raises(perigeedb.Conflict) as raised:
        txn.commit()
    assert raised.value.key == b"n" and raised.value.family == "default"
    assert raised.value.retryable and raised.value.kind == "conflict"
    assert txn.state == "rolled back" and db["n"] == b"10"


def test_isolation_levels(db: Database) -> None:
    db.update({"x": "1", "y": "1"})

    def write_skew(isolation: str) -> None:
        a, b = (db.transaction(isolation=isolation) for _ in range(2))  # type: ignore[arg-type]
        a["x"] = str(int(a["y"]) - 1)
        b["y"] = str(int(b["x"]) - 1)
        a.commit()
        b.commit()

    write_skew("snapshot")
    assert (db["x"], db["y"]) == (b"0", b"0")
    db.update({"x": "1", "y": "1"})
    with pytest.raises(perigeedb.Conflict):
        write_skew("serializable")
    assert db.transaction(isolation="read_committed").isolation == "read committed"
    with pytest.raises(ValueError, match="is not one of"):
        db.transaction(isolation="sloppy")  # type: ignore[arg-type]


def test_run_repeats_after_conflicts(db: Database) -> None:
    db["n"] = "0"
    attempts = 0

    def increment(txn: Transaction) -> int:
        nonlocal attempts
        attempts += 1
        n = int(txn["n"]) + 1
        if attempts <= 2:
            db["n"] = str(n)  # another commit comes first
        txn["n"] = str(n)
        return n

    assert db.run(increment) == 3 and attempts == 3 and db["n"] == b"3"
    attempts = -10
    with pytest.raises(perigeedb.Conflict):
        db.run(increment, retries=2)
    assert attempts == -7

    def refuse(txn: Transaction) -> None:
        txn["n"] = "-1"
        raise LookupError("refused")

    with pytest.raises(LookupError):
        db.run(refuse)
    assert db["n"] != b"-1"
    with pytest.raises(TypeError, match="function"):
        db.run(5)  # type: ignore[arg-type]


def test_run_in_many_threads_loses_no_update(db: Database) -> None:
    def increment(txn: Transaction) -> None:
        txn["n"] = str(int(txn.get("n", b"0")) + 1)

    def work() -> None:
        for _ in range(100):
            db.run(increment, retries=10_000)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert db["n"] == b"400"


def test_locks(db: Database) -> None:
    db["seats"] = "5"
    first = db.transaction(lock=True)
    assert first.get_for_update("seats") == b"5"
    assert first.get_for_update("none", b"-") == b"-"
    second = db.transaction(lock=True, lock_timeout=0)
    with pytest.raises(perigeedb.Busy) as raised:
        second["seats"] = "4"
    assert raised.value.retryable
    first.lock("other", shared=True)
    second.lock("other", shared=True)
    first["seats"] = "4"
    first.commit()
    second.rollback()
    third = db.transaction(lock=True)
    third["seats"] = "3"
    third.commit()
    assert db["seats"] == b"3"


def test_lock_wait_releases_the_interpreter(db: Database) -> None:
    holder = db.transaction(lock=True)
    holder["k"] = "1"
    began = threading.Event()
    done: list[str] = []

    def wait() -> None:
        txn = db.transaction(lock=True, lock_timeout=300, isolation="read_committed")
        with txn:
            began.set()
            txn["k"] = "2"
            done.append("waiter")

    thread = threading.Thread(target=wait)
    thread.start()
    began.wait()
    done.append("holder")  # this thread runs while the other one waits
    holder.commit()
    thread.join()
    assert done == ["holder", "waiter"] and db["k"] == b"2"


def test_threads_share_a_transaction(db: Database) -> None:
    with db.transaction() as txn:

        def put(name: int) -> None:
            for i in range(200):
                txn[f"{name}/{i:03}"] = str(i)
                assert txn[f"{name}/{i:03}"] == str(i).encode()

        threads = [threading.Thread(target=put, args=(name,)) for name in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert txn.operations == 800 and len(txn) == 800 and not db
    assert len(db) == 800


def test_savepoints(db: Database) -> None:
    with db.transaction() as txn:
        txn["a"] = "1"
        txn.savepoint("s")
        txn["a"] = "2"
        txn["b"] = "2"
        txn.rollback_to("s")
        assert dict(txn) == {b"a": b"1"}
        txn.savepoint("t")
        txn["c"] = "3"
        txn.release_savepoint("t")
        with pytest.raises(perigeedb.NotFound):
            txn.rollback_to("t")
    assert dict(db) == {b"a": b"1", b"c": b"3"}


def test_read_only_and_limits(db: Database) -> None:
    with db.transaction(read_only=True) as txn, pytest.raises(perigeedb.Error):
        txn["a"] = "1"
    with db.transaction(max_bytes=100) as txn:
        with pytest.raises(perigeedb.InvalidArgument):
            txn["a"] = b"x" * 1000
    with pytest.raises(perigeedb.InvalidArgument, match="durability"):
        with db.transaction() as txn:
            txn.put("a", "1", durability="full")
    with db.transaction(durability=timedelta(milliseconds=5)) as txn:
        txn["a"] = "1"
    assert db["a"] == b"1"
    txn = db.transaction(timeout=timedelta(microseconds=1))
    with pytest.raises(perigeedb.Aborted):
        while True:
            txn["a"] = "2"


def test_dropped_transaction_releases_its_locks(db: Database) -> None:
    txn = db.transaction(lock=True)
    txn["k"] = "1"
    del txn
    with db.transaction(lock=True, lock_timeout=0) as txn:
        txn["k"] = "2"
    assert db["k"] == b"2"


def test_snapshots(db: Database) -> None:
    tides = db.family("tides")
    db["moon"] = "new"
    tides["06:12"] = "high"
    with db.snapshot() as snapshot:
        db["moon"] = "full"
        del tides["06:12"]
        assert snapshot["moon"] == b"new" and len(snapshot) == 1
        on_tides = snapshot.on(tides)
        assert dict(on_tides) == {b"06:12": b"high"} and not tides
        assert snapshot.on("tides").first() == (b"06:12", b"high")
        assert snapshot.sequence < db.sequence and "closed" not in repr(snapshot)
        rows = iter(snapshot.items())
    assert snapshot.closed
    for call in (lambda: snapshot["moon"], lambda: on_tides.get("x"), lambda: snapshot.sequence):
        with pytest.raises(perigeedb.Closed):
            call()
    assert list(rows) == [(b"moon", b"new")], "an iterator keeps what it reads"
    for name in ("put", "delete", "update", "__setitem__", "__delitem__"):
        assert name not in dir(snapshot)
    with pytest.raises(TypeError):
        snapshot["a"] = "b"  # type: ignore[index]


def test_named_and_past_snapshots(db: Database) -> None:
    db["moon"] = "new"
    at = db.create_snapshot("before")
    db["moon"] = "full"
    assert db.named_snapshots() == {"before": at}
    assert db.snapshot(name="before")["moon"] == b"new"
    assert db.snapshot(at=at)["moon"] == b"new"
    with pytest.raises(perigeedb.AlreadyExists):
        db.create_snapshot("before")
    db.drop_snapshot("before")
    with pytest.raises(perigeedb.NotFound):
        db.snapshot(name="before")
    with pytest.raises(ValueError):
        db.snapshot(name="before", at=1)


def test_batches(db: Database) -> None:
    tides = db.family("tides", merge_operator="append:,")
    db.update({"a": "1", "b": "2", "x/1": "", "x/2": ""})
    with db.batch(durability="full") as batch:
        batch["moon"] = "full"
        batch.put("tide", "high", ttl=3600)
        del batch["a"]
        batch.delete("not there")
        batch.delete_prefix("x/")
        on_tides = batch.on(tides)
        on_tides.merge("log", "one")
        on_tides.merge("log", "two")
        batch.delete_range("b", "c")
        assert len(batch) == 8 and batch.bytes > 0 and "moon" not in db
    assert dict(db) == {b"moon": b"full", b"tide": b"high"}
    assert tides["log"] == b"one,two"
    assert db.ttl("tide") is not None
    with pytest.raises(perigeedb.Closed):
        batch["late"] = "1"
    with pytest.raises(perigeedb.Closed):
        on_tides["late"] = "1"
    with pytest.raises(ZeroDivisionError), db.batch() as batch:
        batch["moon"] = "new"
        1 / 0
    assert db["moon"] == b"full" and len(batch) == 0
    batch = db.batch()
    del batch["a":"z"]
    assert batch.commit() == db.sequence and not db
    with pytest.raises(perigeedb.Closed):
        batch.commit()


def test_handles_of_another_database_are_refused(db: Database, tmp_path: object) -> None:
    with perigeedb.open(f"{tmp_path}/other") as other:
        family = other.family("f")
        with pytest.raises(perigeedb.InvalidArgument, match="another open database"):
            db.transaction().on(family)["k"] = "v"
        with pytest.raises(perigeedb.InvalidArgument):
            db.snapshot().on(family).get("k")
        with pytest.raises(perigeedb.InvalidArgument):
            with db.batch() as batch:
                batch["k"] = "v"
                batch.on(family)["k"] = "v"
        with pytest.raises(TypeError):
            db.transaction().on(5)  # type: ignore[arg-type]
        with pytest.raises(perigeedb.NotFound):
            db.transaction().on("nowhere")
    assert not db
