"""Index builds while other connections write.

Writers insert, update, delete, replace, change primary keys, exchange unique values and roll back, also to savepoints. The
main process adds and drops indexes, kills some of the statements, and verifies after each:
- CHECK TABLE EXTENDED reports OK;
- a scan of the new index and a scan of the table return the same rows, in one read view;
- an ADD UNIQUE of values that are unique at any time succeeds, and one of values that are not is refused or, if it
  succeeds, there are no duplicates.
With --kills the server is killed (SIGKILL) during builds and restarted: an index is there as a whole or not at all, and the
same index can be added again.
"""

import argparse
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time

from mariadb_client import Connection, Error, LOST, RETRY
from mariadb_server import Server

DUPLICATE, KILLED, OLD_READ_VIEW = 1062, 1317, 1412

COLUMNS = "a INT NOT NULL, b INT, c VARCHAR(60) CHARACTER SET utf8mb4, d INT NOT NULL, u BIGINT NOT NULL, p TEXT"
TABLES = {
    "t_int": "CREATE TABLE t_int (id INT PRIMARY KEY, %s, KEY old (a))" % COLUMNS,
    "t_text": "CREATE TABLE t_text (id INT, name VARCHAR(20) CHARACTER SET utf8mb4, %s, PRIMARY KEY (name, id))" % COLUMNS,
    # A unique index without nullable columns would be promoted to the primary key, which needs a copy.
    "t_hidden": "CREATE TABLE t_hidden (id INT NOT NULL, %s, KEY (id))" % COLUMNS.replace("u BIGINT NOT NULL", "u BIGINT"),
    "t_part": "CREATE TABLE t_part (id INT PRIMARY KEY, %s) PARTITION BY HASH (id) PARTITIONS 3" % COLUMNS,
}
# Definitions of the index `k`, and the columns that its entries have.
INDEXES = [
    ("KEY k (c)", "c"),
    ("KEY k (b, a)", "b, a"),
    ("KEY k (b DESC, c(10), d)", "b, d"),
    ("KEY k (p(12))", ""),
    ("KEY k (u, c)", "u, c"),
    ("UNIQUE KEY k (u)", "u"),
    ("UNIQUE KEY k (u, d)", "u, d"),
    ("UNIQUE KEY k (d, b)", "d, b"),
    ("KEY k (a), ADD KEY k2 (c, u)", "a"),
]


def random_values(rng):
    text = "".join(rng.choice("abAB äß") for _ in range(rng.randrange(12)))
    return "%d, %s, %s, %d" % (
        rng.randrange(1000), rng.choice(["NULL", str(rng.randrange(50))]),
        rng.choice(["NULL", "'%s'" % text, "'%s'" % text]), rng.randrange(1000000))


class Writer:
    """The values of `u` are unique in every state: each contains the id and a counter, or is exchanged between two rows."""

    def __init__(self, connection, number, writers, rows, rng):
        self.connection, self.number, self.writers, self.rows, self.rng = connection, number, writers, rows, rng
        self.inserts = self.rng.randrange(1000)

    def own_id(self):
        return self.rng.randrange(self.rows // self.writers) * self.writers + self.number

    def insert(self, table, identifier):
        name = "name, " if table == "t_text" else ""
        value = "'n%d', " % (identifier % 7) if name else ""
        if self.connection.query("SELECT 1 FROM %s WHERE id = %d FOR UPDATE" % (table, identifier)):
            return
        self.inserts += 1
        self.connection.query("INSERT INTO %s (id, %sa, b, c, d, u, p) VALUES (%d, %s%s, %d, REPEAT('%s', %d))" % (
            table, name, identifier, value, random_values(self.rng), identifier * 1000000 + self.inserts % 999999,
            self.rng.choice("xyz"), self.rng.randrange(40)))

    def statement(self, table):
        rng, query = self.rng, self.connection.query
        identifier = self.own_id()
        kind = rng.randrange(9)
        if kind < 2:
            self.insert(table, identifier)
        elif kind == 2:
            query("DELETE FROM %s WHERE id = %d" % (table, identifier))
        elif kind == 3:
            query("UPDATE %s SET a = a + 1, b = NULLIF(%d, 3), p = CONCAT('q', p) WHERE id = %d" % (table, rng.randrange(50), identifier))
        elif kind == 4:
            query("UPDATE %s SET c = UPPER(c), d = %d WHERE id = %d" % (table, rng.randrange(1000000), identifier))
        elif kind == 5:
            # The key of a row changes, and back later.
            query("UPDATE %s SET id = %d - id WHERE id IN (%d, %d)" % (table, identifier * 2 + 1000000000, identifier, identifier + 1000000000))
        elif kind == 6:
            self.exchange(table, identifier, self.own_id())
        elif kind == 7:
            query("UPDATE %s SET b = %d WHERE id BETWEEN %d AND %d AND MOD(id, %d) = %d" % (
                table, rng.randrange(50), identifier, identifier + 20 * self.writers, self.writers, self.number))
        else:
            query("DELETE FROM %s WHERE id = %d" % (table, identifier))
            self.insert(table, identifier)

    def exchange(self, table, one, two):
        rows = self.connection.query("SELECT id, u FROM %s WHERE id IN (%d, %d) ORDER BY id FOR UPDATE" % (table, one, two))
        if len(rows) != 2 or rows[0][0] == rows[1][0]:
            return
        (one, u), (two, v) = rows
        self.connection.query("UPDATE %s SET u = -%d WHERE id = %s" % (table, self.number + 1, one))
        self.connection.query("UPDATE %s SET u = %s WHERE id = %s" % (table, u, two))
        self.connection.query("UPDATE %s SET u = %s WHERE id = %s" % (table, v, one))

    def transaction(self, table):
        query = self.connection.query
        query("BEGIN")
        for _ in range(self.rng.randrange(1, 5)):
            self.statement(table)
        if self.rng.random() < 0.2:
            query("SAVEPOINT s")
            self.statement(table)
            query("ROLLBACK TO SAVEPOINT s")
        if self.rng.random() < 0.1:
            self.statement(table)
        query("ROLLBACK" if self.rng.random() < 0.15 else "COMMIT")


def run_writer(socket, number, arguments, seed, committed, longest, target):
    rng = random.Random(seed)
    tables = list(TABLES)
    try:
        connection = Connection(socket, "online")
        connection.query("SET SESSION %s_lock_wait_timeout = 2" % arguments.engine.lower())
        connection.query("SET SESSION tx_isolation = '%s'" % ("READ-COMMITTED" if number % 2 else "REPEATABLE-READ"))
        writer = Writer(connection, number, arguments.writers, arguments.rows, rng)
        while True:
            table = tables[target.value] if rng.random() < 0.9 else rng.choice(tables)
            started = time.time()
            try:
                writer.transaction(table)
                committed[number] += 1
                longest[number] = max(longest[number], time.time() - started)
            except Error as error:
                # DUPLICATE: primary keys, or `d, b` in a unique index
                if error.number == DUPLICATE:
                    connection.query("ROLLBACK")
                elif error.number in RETRY or error.number == OLD_READ_VIEW:
                    connection.query("ROLLBACK")
                else:
                    raise
    except Error as error:
        if error.number not in LOST:
            print("VIOLATION writer %d: %s" % (number, error), flush=True)
            committed[number] = -10**9
    os._exit(0)


class Test:
    def __init__(self, arguments):
        self.arguments = arguments
        self.rng = random.Random(arguments.seed)
        self.directory = arguments.directory or "/tmp/perigee-online-%d" % os.getpid()
        self.server = Server(os.path.join(self.directory, "server"), arguments.engine)
        self.violations = 0
        self.target = multiprocessing.Value("i", 0)
        self.processes = []
        self.counts = {"added": 0, "refused": 0, "killed": 0, "SIGKILL": 0}
        self.during = [0, 0.0]
        self.outside = [0, 0.0]
        self.longest_wait = 0.0

    def violation(self, text):
        self.violations += 1
        print("VIOLATION %s" % text, flush=True)

    def create_tables(self):
        connection = self.server.connect()
        connection.query("CREATE DATABASE online")
        connection.query("USE online")
        for table, definition in TABLES.items():
            connection.query(definition)
            name = "name, " if table == "t_text" else ""
            value = "CONCAT('n', seq %% 7), " if name else ""
            connection.query(("INSERT INTO %s (id, " + name + "a, b, c, d, u, p) SELECT seq, " + value + "seq %% 1000, seq %% 50, "
                             "CONCAT('c', seq %% 500), seq, seq * 1000000 + 999999, REPEAT('p', seq %% 30) FROM seq_0_to_%d")
                             % (table, self.arguments.rows - 1))
        connection.close()

    def start_writers(self):
        self.committed = multiprocessing.Array("q", self.arguments.writers)
        self.longest = multiprocessing.Array("d", self.arguments.writers)
        self.processes = []
        for number in range(self.arguments.writers):
            process = multiprocessing.Process(target=run_writer, args=(
                self.server.socket, number, self.arguments, self.rng.random(), self.committed, self.longest, self.target))
            process.start()
            self.processes.append(process)

    def stop_writers(self):
        for process in self.processes:
            if process.is_alive():
                process.terminate()
            process.join()
        if any(count < 0 for count in self.committed):
            self.violations += 1
        self.processes = []

    def verify(self, connection, table, covered):
        rows = connection.query("CHECK TABLE %s EXTENDED" % table)
        if rows[-1][3] != "OK":
            self.violation("CHECK TABLE %s: %s" % (table, rows))
        names = [row[2] for row in connection.query("SHOW INDEX FROM %s" % table)]
        connection.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        for columns in [covered, "id, a, b, c, d, u, p"]:
            if not columns:
                continue
            query = "SELECT COUNT(*), SUM(CRC32(CONCAT_WS('|', id, %s))) FROM %s %%s" % (columns, table)
            scan = connection.query(query % "USE INDEX ()")
            for name in ("k", "k2"):
                if name in names and connection.query(query % ("FORCE INDEX (%s)" % name)) != scan:
                    self.violation("%s: a scan of %s and one of the table differ" % (table, name))
        connection.query("COMMIT")

    def drop_indexes(self, connection, table):
        names = {row[2] for row in connection.query("SHOW INDEX FROM %s" % table)} & {"k", "k2"}
        if names:
            connection.query("ALTER TABLE %s %s" % (table, ", ".join("DROP KEY " + name for name in sorted(names))))

    def kill_soon(self, thread, delay):
        def work():
            time.sleep(delay)
            try:
                connection = self.server.connect()
                connection.query("KILL QUERY %s" % thread)
                connection.close()
            except Error:
                pass
        timer = threading.Thread(target=work)
        timer.start()
        return timer

    def add_index(self, connection, table, definition):
        """Returns True if the index was added."""
        before, started = sum(self.committed), time.time()
        timer = None
        if self.rng.random() < 0.15:
            timer = self.kill_soon(connection.value("SELECT CONNECTION_ID()"), self.rng.random() * 0.5)
        for number in range(self.arguments.writers):
            self.longest[number] = 0
        result = True
        try:
            connection.query("ALTER TABLE %s ADD %s, ALGORITHM=INPLACE, LOCK=NONE" % (table, definition))
            self.counts["added"] += 1
        except Error as error:
            result = False
            if error.number == DUPLICATE:
                self.counts["refused"] += 1
                if "(u" in definition:
                    self.violation("%s ADD %s: %s, but the values are unique" % (table, definition, error))
            elif timer and error.number == KILLED:
                self.counts["killed"] += 1
            elif error.number not in RETRY:
                raise
        self.during[0] += sum(self.committed) - before
        self.during[1] += time.time() - started
        self.longest_wait = max([self.longest_wait] + list(self.longest))
        if timer:
            timer.join()
            try:
                connection.query("DO 0")  # takes a KILL that came late
            except Error:
                pass
        return result

    def round(self, connection):
        number = self.rng.randrange(len(TABLES))
        table = list(TABLES)[number]
        self.target.value = number
        before, started = sum(self.committed), time.time()
        time.sleep(0.3)
        self.outside[0] += sum(self.committed) - before
        self.outside[1] += time.time() - started
        definition, covered = self.rng.choice(INDEXES)
        if table == "t_part" and "UNIQUE" in definition:
            definition = definition.replace(")", ", id)")
        added = self.add_index(connection, table, definition)
        if added and "(d, b" in definition:
            duplicates = connection.value("SELECT COUNT(*) FROM (SELECT d, b FROM %s USE INDEX () WHERE b IS NOT NULL GROUP BY d, b%s "
                                          "HAVING COUNT(*) > 1) AS x" % (table, ", id" if table == "t_part" else ""))
            if duplicates != "0":
                self.violation("%s: a unique index has duplicates" % table)
        self.verify(connection, table, covered if added else "")
        self.drop_indexes(connection, table)

    def run(self):
        self.server.install()
        self.server.start()
        self.create_tables()
        self.start_writers()
        connection = self.server.connect("online")
        end = time.time() + self.arguments.seconds
        while time.time() < end and not self.violations:
            self.round(connection)
            if any(count < 0 for count in self.committed):
                break
        connection.close()
        for _ in range(self.arguments.kills):
            self.kill_round()
        self.stop_writers()
        connection = self.server.connect("online")
        for table in TABLES:
            self.verify(connection, table, "")
        connection.close()
        self.server.stop()

    def kill_round(self):
        """SIGKILL during a build, restart, verification, and the same build again."""
        connection = self.server.connect("online")
        self.target.value = self.rng.randrange(len(TABLES))
        table = list(TABLES)[self.target.value]
        definition, covered = self.rng.choice([entry for entry in INDEXES if "UNIQUE" not in entry[0]])
        time.sleep(0.3)
        died = threading.Event()

        def build():
            try:
                connection.query("ALTER TABLE %s ADD %s, LOCK=NONE" % (table, definition))
            except Error:
                died.set()
        builder = threading.Thread(target=build)
        builder.start()
        time.sleep(self.rng.random() * self.arguments.build_seconds)
        self.server.kill()
        builder.join()
        self.stop_writers()
        self.counts["SIGKILL"] += died.is_set()
        self.server.start()
        connection = self.server.connect("online")
        for each in TABLES:
            self.verify(connection, each, "")
        self.start_writers()
        self.drop_indexes(connection, table)
        if self.add_index(connection, table, definition):
            self.verify(connection, table, covered)
        self.drop_indexes(connection, table)
        connection.close()


def run_updates(socket, number, writers, rows, committed, longest):
    """Updates single rows of its own in autocommit."""
    rng = random.Random(number)
    connection = Connection(socket, "online")
    try:
        while True:
            started = time.time()
            connection.query("UPDATE big SET b = %d, c = 'w%d' WHERE id = %d" % (
                rng.randrange(1000000), number, rng.randrange(rows // writers) * writers + number))
            longest[number] = max(longest[number], time.time() - started)
            committed[number] += 1
    except Error:
        pass
    os._exit(0)


def measure(arguments):
    """A build without and one with writers."""
    directory = arguments.directory or "/tmp/perigee-online-%d" % os.getpid()
    server = Server(os.path.join(directory, "server"), arguments.engine)
    server.install()
    server.start()
    connection = server.connect()
    connection.query("CREATE DATABASE online")
    connection.query("USE online")
    connection.query("CREATE TABLE big (id INT PRIMARY KEY, b INT NOT NULL, c VARCHAR(60) NOT NULL, p VARCHAR(200) NOT NULL)")
    for first in range(0, arguments.measure, 100000):
        connection.query("INSERT INTO big SELECT seq, seq * 7919 %% 1000003, CONCAT('c', seq), REPEAT(MD5(seq), 3) FROM seq_%d_to_%d"
                         % (first, min(first + 100000, arguments.measure) - 1))
    started = time.time()
    connection.query("ALTER TABLE big ADD KEY quiet (b, c)")
    quiet = time.time() - started
    connection.query("ALTER TABLE big DROP KEY quiet")
    committed = multiprocessing.Array("q", arguments.writers)
    longest = multiprocessing.Array("d", arguments.writers)
    processes = [multiprocessing.Process(target=run_updates, args=(
        server.socket, number, arguments.writers, arguments.measure, committed, longest)) for number in range(arguments.writers)]
    for process in processes:
        process.start()
    time.sleep(2)

    def phase(work):
        for number in range(arguments.writers):
            longest[number] = 0
        before, started = sum(committed), time.time()
        work()
        seconds = time.time() - started
        return (sum(committed) - before) / seconds, seconds, max(longest)

    phases = [("before", phase(lambda: time.sleep(5))),
              ("during", phase(lambda: connection.query("ALTER TABLE big ADD KEY busy (b, c), ALGORITHM=INPLACE, LOCK=NONE"))),
              ("after", phase(lambda: time.sleep(5)))]
    for process in processes:
        process.terminate()
        process.join()
    result = connection.query("CHECK TABLE big EXTENDED")[-1][3]
    connection.close()
    server.stop()
    subprocess.run(["rm", "-rf", directory])
    print("%s, %d rows, %d writers: build without writers %.1f s" % (arguments.engine, arguments.measure, arguments.writers, quiet))
    for name, (rate, seconds, wait) in phases:
        print("  %s the build: %.0f updates per second for %.1f s, the longest %.3f s" % (name, rate, seconds, wait))
    print("  CHECK TABLE EXTENDED: %s" % result)
    return 0 if result == "OK" else 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30, help="time of the rounds without SIGKILL")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--rows", type=int, default=40000, help="of each table")
    parser.add_argument("--build-seconds", type=float, default=0.6, help="longest time from the begin of a build to SIGKILL")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", default=os.environ.get("ENGINE", "PERIGEE"))
    parser.add_argument("--directory", default=None)
    parser.add_argument("--measure", type=int, default=0, metavar="ROWS", help="measures one build of a table of this size instead")
    arguments = parser.parse_args()
    if arguments.measure:
        return measure(arguments)
    test = Test(arguments)
    test.run()
    rate = lambda pair: pair[0] / pair[1] if pair[1] else 0
    print("%s: %s; %d violations" % (arguments.engine, ", ".join("%d %s" % (n, what) for what, n in test.counts.items()), test.violations))
    print("transactions per second: %.0f during builds (%.1f s), %.0f outside; longest transaction during a build: %.2f s"
          % (rate(test.during), test.during[1], rate(test.outside), test.longest_wait))
    if test.violations:
        print("kept: %s" % test.directory)
        return 1
    if not arguments.directory:
        subprocess.run(["rm", "-rf", test.directory])
    return 0


if __name__ == "__main__":
    sys.exit(main())
