"""Python clients (psycopg, pg8000: those that are installed) against a server at the port given."""
import sys
from datetime import datetime, timezone

port = int(sys.argv[1])


def with_psycopg(psycopg):
    url = f"host=127.0.0.1 port={port} dbname=perigee user=any"
    with psycopg.connect(url, autocommit=True) as connection:
        run = connection.execute
        run("DROP TABLE IF EXISTS py")
        run("CREATE TABLE py (id BIGINT PRIMARY KEY, name TEXT, at TIMESTAMP, v DOUBLE PRECISION, b BYTEA, ok BOOLEAN)")
        at = datetime(2026, 1, 1, 12, 30, 0, 5, tzinfo=timezone.utc)
        row = (1, "änn", at, 2.5, b"\x00\xff", True)
        run("INSERT INTO py VALUES (%s, %s, %s, %s, %s, %s)", row)
        run("INSERT INTO py VALUES (%s, %s, %s, %s, %s, %s)", (2, None, None, None, None, None))
        for binary in (False, True):
            got = connection.cursor(binary=binary).execute("SELECT * FROM py WHERE id = %s", (1,)).fetchone()
            assert got == row, (binary, got)
        assert run("SELECT count(*) FROM py WHERE name IS NULL").fetchone() == (1,)
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO py (id, name) VALUES (%s, %s)", [(i, f"n{i}") for i in range(10, 60)])
        assert run("SELECT count(*) FROM py").fetchone() == (52,)
        # RETURNING, prepared and as text.
        for prepare in (True, False):
            got = run("INSERT INTO py (id, name) VALUES (%s, %s) RETURNING id, upper(name)", (100, "ret"), prepare=prepare)
            assert got.fetchone() == (100, "RET") and got.statusmessage == "INSERT 0 1", got.statusmessage
            got = run("DELETE FROM py WHERE id = %s RETURNING *", (100,), prepare=prepare)
            assert got.fetchone()[:2] == (100, "ret") and got.rowcount == 1
        # Types by name, as for adapters of types that the client does not know.
        info = psycopg.types.TypeInfo.fetch(connection, "int8")
        assert (info.name, info.oid, info.array_oid) == ("int8", 20, 1016), info
        assert psycopg.types.TypeInfo.fetch(connection, "hstore") is None
        try:
            run("INSERT INTO py (id) VALUES (1)")
            raise AssertionError("no error")
        except psycopg.errors.UniqueViolation as error:
            assert error.diag.constraint_name == "py_pkey", error.diag.constraint_name
    # A transaction for each connection, and conflicts.
    with psycopg.connect(url) as one, psycopg.connect(url) as two:
        for connection in (one, two):
            connection.execute("UPDATE py SET v = 1 WHERE id = 1")
        one.commit()
        try:
            two.commit()
            raise AssertionError("no conflict")
        except psycopg.errors.SerializationFailure:
            pass
        two.rollback()
        one.execute("DELETE FROM py")
        one.rollback()
        assert one.execute("SELECT count(*) FROM py").fetchone() == (52,)
    print("psycopg: passed")


def with_pg8000(pg8000):
    connection = pg8000.connect(user="any", host="127.0.0.1", port=port, database="perigee")
    # Changes of the schema run outside of transactions.
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE IF NOT EXISTS py8 (id BIGINT PRIMARY KEY, name TEXT, v DOUBLE PRECISION)")
    cursor.execute("DELETE FROM py8")
    connection.autocommit = False
    cursor.execute("INSERT INTO py8 VALUES (%s, %s, %s)", (1, "ann", 0.5))
    connection.commit()
    cursor.execute("SELECT id, name, v FROM py8 WHERE id = %s", (1,))
    assert list(cursor.fetchone()) == [1, "ann", 0.5]
    connection.close()
    print("pg8000: passed")


try:
    import psycopg
except ImportError:
    psycopg = None
try:
    import pg8000.dbapi as pg8000
except ImportError:
    pg8000 = None
if psycopg:
    with_psycopg(psycopg)
if pg8000:
    with_pg8000(pg8000)
