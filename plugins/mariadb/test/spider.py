"""A Spider head over three shards: reads, counts, updates and rollback, commits across shards, and a shard killed with SIGKILL.

The same statements run first over InnoDB shards: all results must be equal (Spider itself returns a few wrong ones, such as
the number of deleted rows). Each also changes an InnoDB table of the head, which must have the same rows in the end. Commits
across shards are XA transactions of Spider (spider_internal_xa) and of the client.
"""

import argparse
import multiprocessing
import os
import random
import socket as sockets
import subprocess
import time

from mariadb_client import Connection, Error, LOST
from mariadb_server import Server, run

SHARDS = 3
ACCOUNTS = 300
START_BALANCE = 100
COLUMNS = "id INT PRIMARY KEY, branch INT NOT NULL, balance BIGINT NOT NULL, note VARCHAR(60), KEY (branch), KEY (note)"
SERVERS = []


def address_of(number):
    """Each shard has an address of its own: Spider's log of transactions (mysql.spider_xa_member) tells hosts apart, not ports."""
    return "127.0.0.%d" % (number + 2)


def free_port(address):
    with sockets.socket() as s:
        s.bind((address, 0))
        return s.getsockname()[1]


class Check:
    def __init__(self):
        self.failures = 0
        self.passed = 0
        self.transcript = []  # statements over the shards with their results

    def equal(self, what, actual, expected):
        if actual == expected:
            self.passed += 1
            return
        self.failures += 1
        print("  WRONG: %s: %s, expected %s" % (what, str(actual)[:300], str(expected)[:300]), flush=True)


def both(connection, sql):
    """Runs a statement on the Spider table and on the table it is compared with. Returns both results."""
    results = []
    for table in ("accounts", "reference"):
        try:
            result = connection.query(sql.replace("@T", table))
            results.append(sorted(result, key=str) if isinstance(result, list) else result)
        except Error as error:
            results.append("error %d" % error.number)
    return results


def run_statements(check, connection, statements):
    for sql in statements:
        check.transcript.append((sql, both(connection, sql)[0]))


def compare_rows(check, connection, what):
    actual, expected = both(connection, "SELECT * FROM @T ORDER BY id")
    check.equal("rows after " + what, actual, expected)


def start_servers(arguments, engine):
    shards = []
    for number in range(SHARDS):
        options = ["--innodb-lock-wait-timeout=2", "--innodb-flush-log-at-trx-commit=1"]
        if engine.upper() == "PERIGEE":
            options.append("--perigee-lock-wait-timeout=2")
        shard = Server(os.path.join(arguments.directory, "shard%d" % number), engine, memory_mb=64, server_id=number + 2,
                       options=options)
        SERVERS.append(shard)
        shard.install()
        shard.start(free_port(address_of(number)), address=address_of(number))
        connection = shard.connect()
        for statement in ["CREATE DATABASE shop", "CREATE USER spider@'127.0.0.%' IDENTIFIED BY 'spider'",
                          "GRANT ALL ON *.* TO spider@'127.0.0.%'",
                          "CREATE TABLE shop.accounts (%s)" % COLUMNS, "CREATE TABLE shop.counters (id INT PRIMARY KEY, n INT NOT NULL)"]:
            connection.query(statement)
        check_engine = connection.value("SELECT engine FROM information_schema.tables WHERE table_schema = 'shop' AND table_name = 'accounts'")
        if check_engine.upper() != engine.upper():
            raise SystemExit("the shard's table is of engine %s" % check_engine)
        connection.close()
        shards.append(shard)
    head = Server(os.path.join(arguments.directory, "head"), "InnoDB", memory_mb=64,
                  options=["--plugin-load-add=ha_spider.so", "--spider-internal-xa=1", "--spider-remote-sql-log-off=0",
                           "--spider-connect-timeout=5", "--spider-net-read-timeout=30"])
    SERVERS.append(head)
    head.install()
    head.start()
    connection = head.connect()
    connection.query("CREATE DATABASE shop")
    connection.query("USE shop")
    for number, shard in enumerate(shards):
        connection.query("CREATE SERVER s%d FOREIGN DATA WRAPPER mysql OPTIONS (HOST '%s', PORT %d, DATABASE 'shop', USER 'spider', "
                         "PASSWORD 'spider')" % (number, address_of(number), shard.port))
    partitions = ", ".join("PARTITION p%d COMMENT = 'srv \"s%d\"'" % (number, number) for number in range(SHARDS))
    for table, columns in (("accounts", COLUMNS), ("counters", "id INT PRIMARY KEY, n INT NOT NULL")):
        connection.query("CREATE TABLE %s (%s) ENGINE=SPIDER COMMENT='wrapper \"mysql\", table \"%s\"' PARTITION BY KEY (id) (%s)"
                         % (table, columns, table, partitions))
    connection.query("CREATE TABLE reference (%s) ENGINE=InnoDB" % COLUMNS)
    return head, shards, connection


def shard_rows(shards, table="accounts"):
    counts = []
    for shard in shards:
        connection = shard.connect()
        counts.append(int(connection.value("SELECT COUNT(*) FROM shop." + table)))
        connection.close()
    return counts


def check_statements(check, connection, shards):
    run_statements(check, connection, ["INSERT INTO @T SELECT seq, seq % 7, 100, CONCAT('note ', seq) FROM seq_0_to_299"])
    counts = shard_rows(shards)
    check.equal("every shard has rows", all(counts) and sum(counts) == ACCOUNTS, True)
    print("rows of the shards: %s" % counts)
    run_statements(check, connection, [
        "SELECT * FROM @T WHERE id = 17", "SELECT * FROM @T WHERE id = -1", "SELECT * FROM @T WHERE id IN (3, 100, 250, 999)",
        "SELECT * FROM @T WHERE id BETWEEN 20 AND 40", "SELECT COUNT(*) FROM @T", "SELECT COUNT(*), SUM(balance), MIN(note), MAX(note) FROM @T",
        "SELECT branch, COUNT(*), AVG(balance) FROM @T GROUP BY branch", "SELECT id FROM @T WHERE note LIKE 'note 1%' ORDER BY note LIMIT 20",
        "SELECT id FROM @T WHERE branch = 3 ORDER BY id DESC LIMIT 5", "SELECT a.id FROM @T a JOIN @T b ON a.id = b.id + 1 WHERE b.branch = 2",
        "UPDATE @T SET balance = balance + 5 WHERE id = 17", "UPDATE @T SET balance = balance * 2, note = CONCAT(note, '!') WHERE branch = 4",
        "UPDATE @T SET id = id + 1000 WHERE id = 33", "DELETE FROM @T WHERE id IN (5, 6, 7)", "DELETE FROM @T WHERE branch = 6 AND id > 200",
        "INSERT INTO @T VALUES (17, 0, 0, 'duplicate')", "INSERT IGNORE INTO @T VALUES (17, 0, 0, 'duplicate'), (2000, 1, 1, 'new')",
        "REPLACE INTO @T VALUES (18, 1, 1, 'replaced')", "INSERT INTO @T VALUES (19, 1, 1, 'x') ON DUPLICATE KEY UPDATE balance = balance + 1000"])
    compare_rows(check, connection, "statements")
    connection.query("BEGIN")
    run_statements(check, connection, ["UPDATE @T SET balance = -1 WHERE branch IN (0, 2)", "DELETE FROM @T WHERE branch = 1",
                                "INSERT INTO @T VALUES (3001, 0, 0, 'rolled back')", "SELECT COUNT(*), SUM(balance) FROM @T"])
    connection.query("ROLLBACK")
    compare_rows(check, connection, "ROLLBACK")
    connection.query("BEGIN")
    run_statements(check, connection, ["UPDATE @T SET balance = balance - 7 WHERE id IN (1, 2, 3, 4)", "UPDATE @T SET balance = balance + 7 WHERE id IN (11, 12, 13, 14)"])
    connection.query("COMMIT")
    compare_rows(check, connection, "COMMIT across shards")


def check_isolation(check, head, connection):
    other = head.connect("shop")
    connection.query("BEGIN")
    connection.query("UPDATE accounts SET balance = 777 WHERE id IN (1, 2, 3, 4)")
    check.equal("uncommitted rows that another connection sees", other.value("SELECT COUNT(*) FROM accounts WHERE balance = 777"), "0")
    try:
        other.query("UPDATE accounts SET balance = 1 WHERE id = 2")
        check.equal("a second writer of a locked row", "succeeds", "lock wait timeout")
    except Error as error:
        check.equal("error of a second writer of a locked row", error.number, 1205)
    connection.query("ROLLBACK")
    check.equal("rows after the rollback", other.value("SELECT COUNT(*) FROM accounts WHERE balance = 777"), "0")
    other.close()


def check_client_xa(check, connection, shards):
    connection.query("XA START 'client'")
    connection.query("INSERT INTO counters SELECT seq, 1 FROM seq_1_to_30")
    connection.query("XA END 'client'")
    connection.query("XA PREPARE 'client'")
    prepared = []
    for shard in shards:
        shard_connection = shard.connect()
        prepared.append(len(shard_connection.query("XA RECOVER")))
        shard_connection.close()
    check.equal("branches of a prepared transaction on the shards", prepared, [1] * SHARDS)
    check.equal("rows before XA COMMIT", shard_rows(shards, "counters"), [0] * SHARDS)
    connection.query("XA COMMIT 'client'")
    check.equal("rows after XA COMMIT", sum(shard_rows(shards, "counters")), 30)
    connection.query("XA START 'client2'")
    connection.query("UPDATE counters SET n = 2")
    connection.query("XA END 'client2'")
    connection.query("XA PREPARE 'client2'")
    connection.query("XA ROLLBACK 'client2'")
    check.equal("sum after XA ROLLBACK", connection.value("SELECT SUM(n) FROM counters"), "30")


def move_money(socket, seed, acknowledged):
    rng = random.Random(seed)
    try:
        connection = Connection(socket, "shop")
    except Error:
        os._exit(0)
    while True:
        a, b = rng.sample(range(10, 200), 2)
        try:
            connection.query("BEGIN")
            for account, change in sorted(((a, -3), (b, 3))):
                if connection.query("UPDATE accounts SET balance = balance + %d WHERE id = %d" % (change, account)) != 1:
                    raise Error(0, "no such account")
            connection.query("COMMIT")
            with acknowledged.get_lock():
                acknowledged.value += 1
        except Error as error:
            # A dead shard is an error of the statement: 1429, 2013, 12701 and others of Spider.
            if error.number in LOST - {2013, 2006}:
                os._exit(0)
            try:
                connection.query("ROLLBACK")
            except Error:
                try:
                    connection = Connection(socket, "shop")
                except Error:
                    os._exit(0)
            time.sleep(0.05)


def recover_shards(check, head, shards):
    """Decides what Spider left prepared, by its log of transactions, as its manual describes."""
    head_connection = head.connect()
    committing = {row[0] for row in head_connection.query("SELECT HEX(LEFT(data, gtrid_length)) FROM mysql.spider_xa WHERE status = 'COMMIT'")}
    decided = 0
    for shard in shards:
        connection = shard.connect()
        for _, gtrid_length, bqual_length, data in connection.query("XA RECOVER FORMAT='SQL'"):
            parts = data.split(",")  # X'gtrid',X'bqual',format
            gtrid = parts[0][2:-1].upper() if parts[0].upper().startswith("X'") else parts[0].strip("'").encode().hex().upper()
            connection.query("XA %s %s" % ("COMMIT" if gtrid in committing else "ROLLBACK", data))
            decided += 1
        check.equal("prepared transactions that are left", connection.query("XA RECOVER"), [])
        connection.close()
    head_connection.close()
    return decided


def check_kills(check, head, shards, rounds, seed):
    rng = random.Random(seed)
    connection = head.connect("shop")
    accounts = connection.value("SELECT COUNT(*) FROM accounts WHERE id BETWEEN 10 AND 199")
    total = connection.value("SELECT SUM(balance) FROM accounts")
    acknowledged = multiprocessing.Value("L", 0)
    for round_number in range(1, rounds + 1):
        workers = [multiprocessing.Process(target=move_money, args=(head.socket, rng.random(), acknowledged)) for _ in range(4)]
        for worker in workers:
            worker.start()
        time.sleep(rng.uniform(0.5, 2))
        victim = rng.randrange(SHARDS)
        shards[victim].kill()
        time.sleep(0.3)
        for worker in workers:
            worker.terminate()
            worker.join()
        shards[victim].start(shards[victim].port, address=address_of(victim))
        # The head rolls back the transactions of its closed connections.
        deadline = time.time() + 30
        while time.time() < deadline and int(connection.value(
                "SELECT COUNT(*) FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'root'")):
            time.sleep(0.1)
        decided = recover_shards(check, head, shards)
        connection.close()
        connection = head.connect("shop")
        for attempt in range(20):  # the head may first have to notice its dead connections
            try:
                actual = [connection.value("SELECT SUM(balance) FROM accounts"), connection.value("SELECT COUNT(*) FROM accounts WHERE id BETWEEN 10 AND 199")]
                break
            except Error as error:
                actual = str(error)
                time.sleep(0.2)
        check.equal("sum of the balances, accounts", actual, [total, accounts])
        for shard in shards:
            shard_connection = shard.connect()
            status = shard_connection.query("CHECK TABLE shop.accounts EXTENDED")
            check.equal("CHECK TABLE", [row[3] for row in status], ["OK"])
            shard_connection.close()
        print("kill %d: shard %d; %d transfers acknowledged so far, %d branches decided after the restart" % (
            round_number, victim, acknowledged.value, decided), flush=True)
    if acknowledged.value == 0:
        check.equal("acknowledged transfers", 0, "more")
    connection.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", default=os.environ.get("ENGINE", "PERIGEE"), help="of the tables of the shards")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", default="/tmp/perigee-spider-%d" % os.getpid())
    arguments = parser.parse_args()
    if not any(os.path.exists(d + "/ha_spider.so") for d in ("/usr/lib/mysql/plugin", "/usr/lib64/mysql/plugin")):
        raise SystemExit("the Spider engine is missing: plugins/mariadb/install.sh mariadb-plugin-spider")
    expected = None
    if arguments.engine.upper() != "INNODB":
        expected = Check()
        servers = start_servers(arguments, "InnoDB")
        check_statements(expected, servers[2], servers[1])
        for server in [servers[0]] + servers[1]:
            server.stop()
    check = Check()
    head, shards, connection = start_servers(arguments, arguments.engine)
    check_statements(check, connection, shards)
    if expected:
        for (sql, actual), (_, of_innodb) in zip(check.transcript, expected.transcript):
            check.equal(sql, actual, of_innodb)
        check.failures += expected.failures
    check_isolation(check, head, connection)
    check_client_xa(check, connection, shards)
    connection.close()
    check_kills(check, head, shards, arguments.kills, arguments.seed)
    for server in [head] + shards:
        server.stop()
    print("Spider over %d shards with %s: %d checks, %d wrong" % (SHARDS, arguments.engine, check.passed + check.failures, check.failures))
    if not check.failures:
        subprocess.run(["rm", "-rf", arguments.directory])
    return 1 if check.failures else 0


if __name__ == "__main__":
    run(main, SERVERS)
