"""SIGKILL of a server under load, restart, and comparison with what its clients know.

Each worker is a process with one connection. Before it asks for a commit it writes the operation into its journal, and
after the acknowledgement it writes that too. After the restart:
- every acknowledged transaction is there, every rolled-back one is not; of the last, unacknowledged one of each
  worker all or nothing is there;
- balances equal the sum of the transfers; all rows of a batch have the same version;
- CHECK TABLE EXTENDED reports OK for every table, and each index returns as many rows as the table;
- with a binary log: its events, applied to an empty copy, give the same checksums (with --ddl, and definitions);
- prepared XA transactions are listed if their prepare was acknowledged and no decision was asked for.
"""

import argparse
import glob
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import time

from mariadb_client import Error, LOST, RETRY
from mariadb_server import Server

ACCOUNTS = 100
START_BALANCE = 1000
BATCH_ROWS = 20
BATCHES = 6

SCHEMA = [
    "CREATE DATABASE IF NOT EXISTS crash",
    "USE crash",
    "CREATE TABLE accounts (id INT PRIMARY KEY, branch INT NOT NULL, balance BIGINT NOT NULL, note VARCHAR(100), "
    "KEY (branch, balance), KEY (note))",
    "CREATE TABLE transfers (worker INT, seq INT, src INT NOT NULL, dst INT NOT NULL, amount INT NOT NULL, "
    "PRIMARY KEY (worker, seq), KEY (src), KEY (dst, amount DESC))",
    "CREATE TABLE batches (id INT, n INT, version INT NOT NULL, u VARCHAR(40) NOT NULL, payload LONGBLOB, PRIMARY KEY (id, n), "
    "UNIQUE KEY (u), KEY (version), KEY (payload(8)))",
    "CREATE TABLE counters (id BIGINT AUTO_INCREMENT PRIMARY KEY, worker INT, seq INT, UNIQUE KEY (worker, seq))",
    "CREATE TABLE parts (a INT, b INT, PRIMARY KEY (a, b), KEY (b)) PARTITION BY HASH (a) PARTITIONS 3",
    "CREATE TABLE xa_left (gid VARCHAR(40) PRIMARY KEY, v INT, KEY (v))",
    "CREATE TABLE xa_right (gid VARCHAR(40) PRIMARY KEY, v INT, KEY (v))",
]


class Journal:
    """One file for each worker, in the order of its operations."""

    def __init__(self, path):
        self.file = open(path, "a", buffering=1)

    def write(self, *words):
        self.file.write(" ".join(str(word) for word in words) + "\n")


def read_journal(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [line.split() for line in file if line.endswith("\n")]


def journal_path(directory, kind, worker):
    return os.path.join(directory, "journal.%s.%d" % (kind, worker))


def transfer_worker(connection, journal, state, rng, worker):
    seq = state["seq"]
    while True:
        src, dst = rng.sample(range(ACCOUNTS), 2)
        amount = rng.randint(1, 50)
        rolled_back = rng.random() < 0.1
        try:
            connection.query("BEGIN")
            connection.query("UPDATE accounts SET balance = balance - %d, note = 'w%d s%d' WHERE id = %d" % (amount, worker, seq, src))
            connection.query("INSERT INTO transfers VALUES (%d, %d, %d, %d, %d)" % (worker, seq, src, dst, amount))
            connection.query("UPDATE accounts SET balance = balance + %d WHERE id = %d" % (amount, dst))
            connection.query("INSERT IGNORE INTO parts VALUES (%d, %d)" % (seq % 50, worker))
            if rolled_back:
                journal.write("rollback", seq)
                connection.query("ROLLBACK")
            else:
                journal.write("try", seq)
                connection.query("COMMIT")
                journal.write("ack", seq)
            seq += 1
        except Error as error:
            if error.number not in RETRY:
                raise
            connection.query("ROLLBACK")


def batch_worker(connection, journal, state, rng, worker):
    versions = state["versions"]
    while True:
        batch = worker * 1000 + rng.randrange(BATCHES)
        old = versions.get(batch, 0)
        new = 0 if old and rng.random() < 0.3 else state["version"]
        state["version"] += 1
        large = rng.random() < 0.2
        try:
            connection.query("BEGIN")
            if new == 0:
                connection.query("DELETE FROM batches WHERE id = %d" % batch)
            elif old == 0:
                size = rng.randint(5000, 40000) if large else rng.randint(0, 300)
                connection.query("INSERT INTO batches SELECT %d, seq, %d, CONCAT('u', %d, '-', seq, '-', %d), REPEAT(CHAR(97 + seq), %d) "
                                 "FROM seq_1_to_%d" % (batch, new, batch, new, size, BATCH_ROWS))
            else:
                connection.query("UPDATE batches SET version = %d, u = CONCAT('u', %d, '-', n, '-', %d) WHERE id = %d"
                                 % (new, batch, new, batch))
            journal.write("try", batch, new)
            connection.query("COMMIT")
            journal.write("ack", batch, new)
            versions[batch] = new
        except Error as error:
            if error.number not in RETRY:
                raise
            connection.query("ROLLBACK")


def counter_worker(connection, journal, state, rng, worker):
    seq = state["seq"]
    while True:
        journal.write("try", seq)
        try:
            connection.query("INSERT INTO counters (worker, seq) VALUES (%d, %d)" % (worker, seq))
        except Error as error:
            if error.number in RETRY:
                continue
            raise
        journal.write("ack", seq)
        seq += 1


def xa_worker(connection, journal, state, rng, worker):
    seq = state["seq"]
    while True:
        gid = "g%d_%d" % (worker, seq)
        seq += 1
        try:
            connection.query("XA START '%s'" % gid)
            connection.query("INSERT INTO xa_left VALUES ('%s', %d)" % (gid, seq))
            connection.query("INSERT INTO xa_right VALUES ('%s', %d)" % (gid, seq))
            connection.query("XA END '%s'" % gid)
        except Error as error:
            if error.number not in RETRY:
                raise
            connection.query("XA ROLLBACK '%s'" % gid)
            continue
        journal.write("prepare", gid)
        connection.query("XA PREPARE '%s'" % gid)
        journal.write("prepared", gid)
        if rng.random() < 0.5:
            time.sleep(rng.random() * 0.01)
        decision = "COMMIT" if rng.random() < 0.7 else "ROLLBACK"
        journal.write("decide", gid, decision)
        connection.query("XA %s '%s'" % (decision, gid))
        journal.write("decided", gid, decision)


def ddl_worker(connection, journal, state, rng, worker):
    """Tables that come, change and go; the verifier checks that what is listed can be used."""
    step = 0
    while True:
        name = "ddl%d" % rng.randrange(4)
        step += 1
        statements = rng.choice([
            ["CREATE OR REPLACE TABLE %s (a INT PRIMARY KEY, b INT, c VARCHAR(20), KEY (b))" % name,
             "INSERT INTO %s SELECT seq, seq %% 10, CONCAT('c', seq) FROM seq_1_to_300" % name],
            ["ALTER TABLE %s ADD KEY k%d (c, b)" % (name, step)],
            ["ALTER TABLE %s ADD COLUMN n%d INT DEFAULT %d" % (name, step, step)],
            ["TRUNCATE TABLE %s" % name],
            ["RENAME TABLE %s TO %s_x, %s_x TO %s" % (name, name, name, name)],
            ["DROP TABLE IF EXISTS %s" % name],
        ])
        for statement in statements:
            journal.write("try", statement.replace(" ", "_"))
            try:
                connection.query(statement)
                journal.write("ack")
            except Error as error:
                # no such table, table exists, too many keys, columns or rows of a racing change
                if error.number not in RETRY | {1146, 1050, 1069, 1060, 1061, 1062, 1051, 1118}:
                    raise
                journal.write("failed")


WORKERS = {"transfer": transfer_worker, "batch": batch_worker, "counter": counter_worker, "xa": xa_worker, "ddl": ddl_worker}


def run_worker(kind, socket, path, state, seed, worker):
    from mariadb_client import Connection
    journal = Journal(path)
    try:
        connection = Connection(socket, "crash")
        WORKERS[kind](connection, journal, state, random.Random(seed), worker)
    except Error as error:
        if error.number not in LOST:
            journal.write("unexpected", str(error).replace(" ", "_"))
    os._exit(0)


class Verifier:
    def __init__(self, connection, directory):
        self.connection = connection
        self.directory = directory
        self.violations = []

    def violation(self, text):
        self.violations.append(text)

    def journals(self, kind):
        prefix = journal_path(self.directory, kind, 0)[:-1]
        for path in sorted(glob.glob(prefix + "*")):
            entries = read_journal(path)
            for entry in entries:
                if entry[0] == "unexpected":
                    self.violation("%s worker: unexpected error %s" % (kind, " ".join(entry[1:])))
            yield int(path.rsplit(".", 1)[1]), [entry for entry in entries if entry[0] != "unexpected"]

    def check_sequences(self, kind, table):
        """Rows (worker, seq): acknowledged ones are there, rolled-back ones are not. Returns the acknowledged count."""
        present = {}
        for worker, seq in self.connection.query("SELECT worker, seq FROM crash.%s" % table):
            present.setdefault(int(worker), set()).add(int(seq))
        total = 0
        for worker, entries in self.journals(kind):
            rows = present.pop(worker, set())
            acknowledged = {int(e[1]) for e in entries if e[0] == "ack"}
            tried = {int(e[1]) for e in entries if e[0] == "try"}
            rolled_back = {int(e[1]) for e in entries if e[0] == "rollback"} - tried
            total += len(acknowledged)
            for seq in sorted(acknowledged - rows)[:5]:
                self.violation("%s: acknowledged row (%d, %d) is missing" % (table, worker, seq))
            for seq in sorted(rows & rolled_back)[:5]:
                self.violation("%s: rolled-back row (%d, %d) is there" % (table, worker, seq))
            for seq in sorted(rows - tried - rolled_back)[:5]:
                self.violation("%s: row (%d, %d) was never committed" % (table, worker, seq))
        for worker in present:
            self.violation("%s: rows of unknown worker %d" % (table, worker))
        return total

    def check_balances(self):
        expected = {i: START_BALANCE for i in range(ACCOUNTS)}
        for src, dst, amount in self.connection.query("SELECT src, dst, amount FROM crash.transfers"):
            expected[int(src)] -= int(amount)
            expected[int(dst)] += int(amount)
        actual = {int(i): int(b) for i, b in self.connection.query("SELECT id, balance FROM crash.accounts")}
        for account in sorted(set(expected) | set(actual)):
            if expected.get(account) != actual.get(account):
                self.violation("accounts: balance of %d is %s, the transfers give %s"
                               % (account, actual.get(account), expected.get(account)))

    def check_batches(self):
        actual = {}
        for batch, rows, low, high, wrong in self.connection.query(
                "SELECT id, COUNT(*), MIN(version), MAX(version), SUM(u <> CONCAT('u', id, '-', n, '-', version)) FROM crash.batches GROUP BY id"):
            if int(rows) != BATCH_ROWS or low != high or int(wrong):
                self.violation("batches: batch %s is half there: %s rows, versions %s to %s, %s wrong" % (batch, rows, low, high, wrong))
            actual[int(batch)] = int(high)
        total = 0
        for worker, entries in self.journals("batch"):
            allowed = {}
            for word, batch, version in entries:
                if word in ("ack", "state"):
                    allowed[int(batch)] = {int(version)}
                    total += word == "ack"
                else:
                    allowed.setdefault(int(batch), {0}).add(int(version))
            for batch, versions in allowed.items():
                # Failed attempts before an acknowledged one were rolled back by the client; only the last may be open.
                if actual.get(batch, 0) not in versions:
                    self.violation("batches: batch %d has version %d, allowed %s" % (batch, actual.get(batch, 0), sorted(versions)))
                else:
                    # What was found becomes the known state of the next round.
                    self.settled[batch] = actual.get(batch, 0)
        return total

    def check_xa(self):
        listed = {row[3] for row in self.connection.query("XA RECOVER")}
        decided = 0
        expected = {}
        for worker, entries in self.journals("xa"):
            last = {}
            for entry in entries:
                last[entry[1]] = entry
            for gid, entry in last.items():
                word = entry[0]
                if word == "decided":
                    decided += 1
                    expected[gid] = entry[2] == "COMMIT"
                    if gid in listed:
                        self.violation("xa: %s was decided and is still prepared" % gid)
                elif word == "prepared":
                    if gid not in listed:
                        self.violation("xa: prepared %s is not listed" % gid)
                    expected[gid] = None
                elif word == "decide":
                    expected[gid] = None if gid in listed else entry[2] == "COMMIT"
                else: # the prepare was not acknowledged
                    expected[gid] = None if gid in listed else False
        for gid in sorted(listed):
            commit = hash(gid) % 2 == 0
            self.connection.query("XA %s '%s'" % ("COMMIT" if commit else "ROLLBACK", gid))
            if gid not in expected:
                self.violation("xa: unknown %s is prepared" % gid)
            expected[gid] = commit
        # The result replaces the journal entries, so that the next round starts from a decided state.
        for gid, commit in expected.items():
            self.xa_settled[gid] = commit
        left = dict(self.connection.query("SELECT gid, v FROM crash.xa_left"))
        right = dict(self.connection.query("SELECT gid, v FROM crash.xa_right"))
        if left != right:
            self.violation("xa: the tables differ: %s" % sorted(set(left.items()) ^ set(right.items()))[:5])
        for gid, commit in expected.items():
            if commit is not None and (gid in left) != commit:
                self.violation("xa: %s should be %s" % (gid, "there" if commit else "absent"))
        return decided

    def check_tables(self):
        tables = [row[0] for row in self.connection.query("SHOW TABLES FROM crash")]
        for table in tables:
            rows = self.connection.query("CHECK TABLE crash.`%s` EXTENDED" % table)
            if rows[-1][3] != "OK":
                self.violation("CHECK TABLE %s: %s" % (table, rows))
            keys = sorted({row[2] for row in self.connection.query("SHOW INDEX FROM crash.`%s`" % table)})
            counts = {key: self.connection.value("SELECT COUNT(*) FROM crash.`%s` FORCE INDEX (`%s`)" % (table, key)) for key in keys}
            counts["rows"] = self.connection.value("SELECT COUNT(*) FROM crash.`%s` WHERE CRC32(CONCAT_WS(',', %s)) >= 0" % (
                table, ", ".join("`%s`" % row[0] for row in self.connection.query("SHOW COLUMNS FROM crash.`%s`" % table))))
            if len(set(counts.values())) > 1:
                self.violation("%s: indexes return different numbers of rows: %s" % (table, counts))


class BinlogReplay:
    """Applies the binary logs to a copy of the database and compares."""

    def __init__(self, server):
        self.server = server
        self.done = set()
        self.truncates = 0  # that emptied a table without an event

    def apply(self):
        connection = self.server.connect()
        connection.query("FLUSH BINARY LOGS")
        logs = [row[0] for row in connection.query("SHOW BINARY LOGS")][:-1]
        connection.query("SET sql_log_bin = 0")
        connection.query("CREATE DATABASE IF NOT EXISTS replay")
        new = [log for log in logs if log not in self.done]
        files = [os.path.join(self.server.data, log) for log in new]
        self.errors = ""
        # One at a time: the reader stops at the torn event at the end of a log that was open at the kill.
        for file in files:
            # GTIDs are left out: the events are applied to the server that wrote them.
            reader = subprocess.Popen(["mariadb-binlog", "--no-defaults", "--disable-log-bin", "--rewrite-db=crash->replay", file],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            writer = subprocess.run(["mariadb", "--no-defaults", "--user=root", "--socket=" + self.server.socket, "--init-command=SET sql_log_bin=0",
                                     "--binary-mode", "--force"], stdin=reader.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            message = reader.stderr.read().decode(errors="replace").strip()
            if reader.wait() and "Event truncated" not in message and "read error" not in message:
                self.errors += "ERROR: %s: %s\n" % (os.path.basename(file), message)
            self.errors += writer.stderr.decode(errors="replace")
        self.errors = self.errors.strip()
        self.done.update(new)
        return connection

    def compare(self, running_ddl):
        """`running_ddl`: the DDL statement that was running at the kill, or None."""
        connection = self.apply()
        # Tables of DDL workers come and go.
        names = {row[0] for database in ("crash", "replay") for row in connection.query("SHOW TABLES FROM " + database)}
        tables = sorted(name for name in names if not name.startswith("xa"))
        violations = []
        if self.errors:
            violations.append("binary log: replay fails: " + next((l for l in self.errors.splitlines() if l.startswith("ERROR")), self.errors))
        for table in tables:
            sums = connection.query("CHECKSUM TABLE crash.%s, replay.%s" % (table, table))
            if sums[0][1] != sums[1][1] and running_ddl == "TRUNCATE TABLE " + table and sums[0][1] == "0":
                # The server has no record of a TRUNCATE before its event: with every engine a crash may leave the table empty
                # without one.
                connection.query("TRUNCATE TABLE replay." + table)
                self.truncates += 1
                continue
            if sums[0][1] != sums[1][1]:
                counts = ["no" if rows is None else connection.value("SELECT COUNT(*) FROM %s" % name) for name, rows in sums]
                violations.append("binary log: %s differs from the replayed copy (%s and %s rows)" % (table, *counts))
            elif table.startswith("ddl"):
                texts = [connection.query("SHOW CREATE TABLE %s.%s" % (d, table))[0][1] for d in ("crash", "replay")]
                if texts[0] != texts[1]:
                    violations.append("binary log: %s has another definition than the replayed copy: %s" % (table, texts))
        connection.close()
        return violations


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", type=int)
    parser.add_argument("mode", nargs="?", default="nobinlog", choices=["binlog", "nobinlog", "xa"])
    parser.add_argument("--engine", default=os.environ.get("ENGINE", "PERIGEE"))
    parser.add_argument("--directory", default=None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.5, help="longest time under load before the kill")
    parser.add_argument("--break", dest="fault", choices=["row", "balance", "binlog", "none"], default="none",
                        help="damages the data before the last verification: it must report")
    parser.add_argument("--ddl", action="store_true", help="with concurrent DDL")
    arguments = parser.parse_args()

    rng = random.Random(arguments.seed)
    directory = arguments.directory or "/tmp/perigee-crash-%d" % os.getpid()
    binlog = arguments.mode == "binlog"
    shutil.rmtree(os.path.join(directory, "journals"), ignore_errors=True)
    server = Server(os.path.join(directory, "server"), arguments.engine, binlog=binlog,
                    options=["--innodb-flush-log-at-trx-commit=1"])
    server.install()
    server.start()
    connection = server.connect()
    for statement in SCHEMA:
        connection.query(statement)
    connection.query("INSERT INTO accounts SELECT seq, seq %% 7, %d, 'new' FROM seq_0_to_%d" % (START_BALANCE, ACCOUNTS - 1))
    connection.close()
    replay = BinlogReplay(server) if binlog else None

    kinds = ["transfer", "transfer", "transfer", "batch", "batch", "counter", "counter"]
    if arguments.mode == "xa":
        kinds += ["xa", "xa", "xa"]
    if arguments.ddl:
        kinds += ["ddl"]
    sequences = {}
    versions = {}
    total_violations = 0
    acknowledged = {"transfer": 0, "batch": 0, "counter": 0, "xa": 0}
    started = time.time()
    for round_number in range(1, arguments.rounds + 1):
        journals = os.path.join(directory, "journals")
        os.makedirs(journals, exist_ok=True)
        processes = []
        for worker, kind in enumerate(kinds):
            # xa journals are per round; the others go on
            path = journal_path(journals, kind, worker if kind != "xa" else round_number * 100 + worker)
            state = {"seq": sequences.get(worker, 1), "versions": {b: v for b, v in versions.items() if b // 1000 == worker},
                     "version": round_number * 100000 + worker * 10000 + 1}
            if kind == "xa":
                state["seq"] = round_number * 100000
            process = multiprocessing.Process(target=run_worker, args=(kind, server.socket, path, state, rng.random(), worker))
            process.start()
            processes.append(process)
        wait = rng.uniform(0.2, arguments.seconds)
        time.sleep(wait)
        server.kill()
        for process in processes:
            process.join(30)
            if process.is_alive():
                process.terminate()
        server.start()
        connection = server.connect()
        verifier = Verifier(connection, journals)
        verifier.settled = versions
        verifier.xa_settled = {}
        if round_number == arguments.rounds and arguments.fault != "none":
            connection.query("SET sql_log_bin = 0")
            connection.query({"row": "DELETE FROM crash.counters ORDER BY id LIMIT 1",
                              "balance": "UPDATE crash.accounts SET balance = balance + 1 WHERE id = 0",
                              "binlog": "INSERT INTO crash.parts VALUES (999, 999)"}[arguments.fault])
        counts = {}
        if arguments.mode == "xa":
            counts["xa"] = verifier.check_xa()
            # Decided branches are compared once; the next round has its own journals.
            for path in glob.glob(os.path.join(journals, "journal.xa.*")):
                os.remove(path)
        counts["transfer"] = verifier.check_sequences("transfer", "transfers")
        counts["counter"] = verifier.check_sequences("counter", "counters")
        counts["batch"] = verifier.check_batches()
        for _ in verifier.journals("ddl"):
            pass  # reports unexpected errors
        verifier.check_balances()
        verifier.check_tables()
        if replay:
            last = [read_journal(path)[-1:] for path in glob.glob(os.path.join(journals, "journal.ddl.*"))]
            running = [entries[0][1].replace("_", " ") for entries in last if entries and entries[0][0] == "try"]
            verifier.violations += replay.compare(running[0] if running else None)
        for path in glob.glob(os.path.join(journals, "journal.ddl.*")):
            os.remove(path)
        # Batches: the settled state is the first entry of the next journal.
        for worker, kind in enumerate(kinds):
            if kind == "batch":
                with open(journal_path(journals, kind, worker), "w") as file:
                    for batch, version in sorted(versions.items()):
                        if batch // 1000 == worker:
                            file.write("state %d %d\n" % (batch, version))
            if kind in ("transfer", "counter"):
                # An unacknowledged row may be there: it is used up either way.
                table = "transfers" if kind == "transfer" else "counters"
                last = max([int(e[1]) for e in read_journal(journal_path(journals, kind, worker)) if e[0] in ("try", "rollback", "ack")] or [0])
                sequences[worker] = last + 1
                highest = connection.value("SELECT COALESCE(MAX(seq), 0) FROM crash.%s WHERE worker = %d" % (table, worker))
                if int(highest) > last:
                    verifier.violation("%s: row %s of worker %d was never tried" % (table, highest, worker))
        acknowledged["transfer"] = counts["transfer"]
        acknowledged["counter"] = counts["counter"]
        acknowledged["batch"] += counts["batch"]
        acknowledged["xa"] += counts.get("xa", 0)
        total_violations += len(verifier.violations)
        print("round %d: killed after %.2f s, acknowledged so far: %s, violations: %d" % (
            round_number, wait, " ".join("%s %d" % item for item in acknowledged.items()), len(verifier.violations)), flush=True)
        for violation in verifier.violations[:20]:
            print("  " + violation, flush=True)
        connection.close()
    server.stop()
    print("%s, %s: %d SIGKILLs, %d acknowledged transactions, %d violations, %.0f s" % (
        arguments.engine, arguments.mode, arguments.rounds, sum(acknowledged.values()), total_violations, time.time() - started))
    if replay and replay.truncates:
        print("%d TRUNCATE statements that were running had emptied their table, without an event in the binary log" % replay.truncates)
    if arguments.fault != "none":
        print("seeded fault %s: %s" % (arguments.fault, "reported" if total_violations else "NOT REPORTED"))
        return 0 if total_violations else 1
    if total_violations == 0 and not arguments.directory:
        subprocess.run(["rm", "-rf", directory])
    else:
        print("kept: %s" % directory)
    return 1 if total_violations else 0


if __name__ == "__main__":
    sys.exit(main())
