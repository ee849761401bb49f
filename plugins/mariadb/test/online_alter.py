"""ALTER TABLE ... ALGORITHM=COPY, LOCK=NONE (MariaDB 11.2 and later) while other connections write.

Each transaction changes a table and its journal in the same way; after the ALTER statements both must have the same rows.
"""

import argparse
import os
import random
import subprocess
import sys
import threading
import time

from mariadb_client import Error, RETRY
from mariadb_server import Server

KEYS = ["id INT AUTO_INCREMENT PRIMARY KEY", "id INT, KEY (id)"]
ISOLATION = ["REPEATABLE READ", "READ COMMITTED"]
ALTERS = ["MODIFY a BIGINT", "ADD COLUMN z INT DEFAULT 3, DROP INDEX a, ADD INDEX (b, a), FORCE, MODIFY a INT UNSIGNED"]
ROWS = 40000


class Writers:
    def __init__(self, server, isolation):
        self.stopped = False
        self.transactions = 0
        self.errors = []
        self.threads = [threading.Thread(target=self.write, args=(server, isolation, number)) for number in range(3)]
        for thread in self.threads:
            thread.start()

    def write(self, server, isolation, number):
        connection = server.connect("online")
        connection.query("SET SESSION TRANSACTION ISOLATION LEVEL " + isolation)
        rng = random.Random(number)
        while not self.stopped:
            row, value, kind = rng.randrange(ROWS + 10000), self.transactions, rng.random()
            try:
                connection.query("BEGIN")
                for table in ("t", "journal"):
                    if kind < 0.4:
                        connection.query("UPDATE %s SET a = %d WHERE id = %d" % (table, value, row))
                    elif kind < 0.7:
                        connection.query("DELETE FROM %s WHERE id = %d" % (table, row))
                    else:
                        connection.query("INSERT IGNORE INTO %s (id, a, b) VALUES (%d, %d, 'b%d')" % (table, row, value, row))
                connection.query("ROLLBACK" if rng.random() < 0.1 else "COMMIT")
                self.transactions += 1
            except Error as error:
                if error.number not in RETRY | {1412}:
                    self.errors.append(str(error))
                    return
                connection.query("ROLLBACK")
        connection.close()

    def stop(self):
        self.stopped = True
        for thread in self.threads:
            thread.join()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", default=os.environ.get("ENGINE", "PERIGEE"))
    parser.add_argument("--directory", default="/tmp/perigee-online-%d" % os.getpid())
    arguments = parser.parse_args()
    server = Server(arguments.directory, arguments.engine, memory_mb=64,
                    options=["--loose-innodb-snapshot-isolation=0"])
    server.install()
    server.start()
    failures = 0
    try:
        connection = server.connect()
        version = connection.value("SELECT VERSION()")
        if tuple(int(part) for part in version.split("-")[0].split(".")[:2]) < (11, 2):
            print("skipped: MariaDB %s has no LOCK=NONE for copies" % version)
            return 0
        connection.query("CREATE DATABASE online")
        connection.query("USE online")
        for key in KEYS:
            for isolation in ISOLATION:
                connection.query("DROP TABLE IF EXISTS t, journal")
                connection.query("CREATE TABLE t (%s, a INT, b VARCHAR(50), KEY (a), UNIQUE KEY (b))" % key)
                connection.query("CREATE TABLE journal LIKE t")
                connection.query("INSERT INTO t SELECT seq, seq %% 100, CONCAT('b', seq) FROM seq_1_to_%d" % ROWS)
                connection.query("INSERT INTO journal SELECT * FROM t")
                connection.query("SET SESSION TRANSACTION ISOLATION LEVEL " + isolation)
                writers = Writers(server, isolation)
                time.sleep(0.3)
                during = []
                problems = []
                for alter in ALTERS:
                    before = writers.transactions
                    try:
                        connection.query("ALTER TABLE t %s, ALGORITHM=COPY, LOCK=NONE" % alter)
                    except Error as error:
                        problems.append("%s: %s" % (alter, error))
                    during.append(writers.transactions - before)
                writers.stop()
                problems += writers.errors
                for one, other in (("t", "journal"), ("journal", "t")):
                    rows = connection.value("SELECT COUNT(*) FROM (SELECT id, a, b FROM %s EXCEPT ALL SELECT id, a, b FROM %s) x" % (one, other))
                    if rows != "0":
                        problems.append("%s rows of %s are not in %s" % (rows, one, other))
                status = connection.query("CHECK TABLE t EXTENDED")
                if status[0][3] != "OK":
                    problems.append(str(status))
                failures += len(problems)
                print("%s, %s: transactions during the copies: %s, problems: %d" % (key, isolation, during, len(problems)), flush=True)
                for problem in problems:
                    print("  " + problem, flush=True)
        connection.close()
        server.stop()
    finally:
        server.kill()
    if not failures:
        subprocess.run(["rm", "-rf", arguments.directory])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
