"""A primary and two replicas: GTID, row format, load, a replica killed with SIGKILL, promotion, checksums."""

import argparse
import multiprocessing
import os
import random
import socket as sockets
import subprocess
import sys
import time

from mariadb_client import Connection, Error, LOST, RETRY
from mariadb_server import Server

TABLES = ["accounts", "log", "blobs", "keyless"]
SERVERS = []


def free_port():
    with sockets.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def load(socket, seed, stop, rows):
    rng = random.Random(seed)
    try:
        connection = Connection(socket, "r")
    except Error:
        return
    n = 0
    while not stop.is_set():
        try:
            connection.query("BEGIN")
            a, b = rng.randrange(rows), rng.randrange(rows)
            connection.query("UPDATE accounts SET balance = balance - 1 WHERE id = %d" % a)
            connection.query("UPDATE accounts SET balance = balance + 1 WHERE id = %d" % b)
            connection.query("INSERT INTO log (worker, text) VALUES (%d, UUID())" % seed)
            if n % 5 == 0:
                connection.query("REPLACE INTO blobs VALUES ('Key%d', REPEAT('x', %d))" % (rng.randrange(200), rng.randrange(5000)))
                connection.query("DELETE FROM log WHERE worker = %d ORDER BY id LIMIT 1" % seed)
            if n % 7 == 0:
                connection.query("INSERT INTO keyless VALUES (%d, NULL), (%d, 'x')" % (rng.randrange(50), rng.randrange(50)))
                connection.query("UPDATE keyless SET b = 'y' WHERE a = %d LIMIT 1" % rng.randrange(50))
            connection.query("COMMIT")
        except Error as error:
            if error.number in LOST:
                return
            if error.number not in RETRY:
                raise
            connection.query("ROLLBACK")
        n += 1


def follow(replica, port):
    connection = replica.connect()
    connection.query("STOP SLAVE")
    connection.query("CHANGE MASTER TO master_host = '127.0.0.1', master_port = %d, master_user = 'repl', master_password = 'repl', "
                     "master_use_gtid = slave_pos, master_connect_retry = 1" % port)
    connection.query("START SLAVE")
    connection.close()


def status(server):
    connection = server.connect()
    row = subprocess.run(["mariadb", "--no-defaults", "--user=root", "--socket=" + server.socket, "-e", "SHOW SLAVE STATUS\\G"],
                         stdout=subprocess.PIPE, universal_newlines=True).stdout
    connection.close()
    return dict((line.split(":", 1)[0].strip(), line.split(":", 1)[1].strip()) for line in row.splitlines() if ":" in line)


def wait_for(replica, position, name):
    connection = replica.connect()
    result = connection.value("SELECT MASTER_GTID_WAIT('%s', 120)" % position)
    connection.close()
    if result != "0":
        fields = status(replica)
        raise SystemExit("%s does not reach %s: io %s, sql %s, %s %s" % (
            name, position, fields.get("Slave_IO_Running"), fields.get("Slave_SQL_Running"), fields.get("Last_SQL_Error"), fields.get("Last_IO_Error")))


def checksums(server):
    connection = server.connect()
    rows = connection.query("CHECKSUM TABLE " + ", ".join("r." + table for table in TABLES))
    problems = [row for row in connection.query("CHECK TABLE " + ", ".join("r." + table for table in TABLES) + " EXTENDED") if row[3] != "OK"]
    connection.close()
    return [row[1] for row in rows], problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", default=os.environ.get("ENGINE", "PERIGEE"))
    parser.add_argument("--rounds", type=int, default=3, help="replica kills")
    parser.add_argument("--parallel", type=int, default=4, help="slave_parallel_threads")
    parser.add_argument("--mode", default="optimistic", help="slave_parallel_mode: optimistic, aggressive, conservative")
    parser.add_argument("--hot-rows", type=int, default=500, help="accounts that the transactions update: fewer conflict more often")
    parser.add_argument("--directory", default="/tmp/perigee-repl-%d" % os.getpid())
    arguments = parser.parse_args()
    options = ["--gtid-strict-mode=1", "--slave-parallel-threads=%d" % arguments.parallel, "--slave-parallel-mode=%s" % arguments.mode, "--relay-log=relay",
               "--skip-slave-start", "--innodb-flush-log-at-trx-commit=1", "--relay-log-recovery=1"]
    servers = []
    for number in (1, 2, 3):
        server = Server(os.path.join(arguments.directory, str(number)), arguments.engine, memory_mb=128, server_id=number, binlog=True, options=options)
        server.install()
        server.start(free_port())
        connection = server.connect()
        connection.query("SET sql_log_bin = 0")
        # A replica is crash-safe if its position is in a table of the engine.
        connection.query("ALTER TABLE mysql.gtid_slave_pos ENGINE = " + arguments.engine)
        connection.query("CREATE USER repl@'127.0.0.1' IDENTIFIED BY 'repl'")
        connection.query("GRANT REPLICATION SLAVE ON *.* TO repl@'127.0.0.1'")
        connection.close()
        servers.append(server)
        SERVERS.append(server)
    primary, first, second = servers
    for replica in (first, second):
        follow(replica, primary.port)
    connection = primary.connect()
    for statement in ["CREATE DATABASE r", "USE r",
                      "CREATE TABLE accounts (id INT PRIMARY KEY, balance BIGINT, KEY (balance))",
                      "CREATE TABLE log (id BIGINT AUTO_INCREMENT PRIMARY KEY, worker INT, text VARCHAR(50), KEY (worker), KEY (text(10)))",
                      "CREATE TABLE blobs (k VARCHAR(20) COLLATE utf8mb4_unicode_ci PRIMARY KEY, v LONGBLOB)",
                      "CREATE TABLE keyless (a INT, b VARCHAR(10), KEY (a))",
                      "INSERT INTO accounts SELECT seq, 1000 FROM seq_0_to_499"]:
        connection.query(statement)
    connection.close()

    failed = 0
    rng = random.Random(1)
    for round_number in range(arguments.rounds + 1):
        stop = multiprocessing.Event()
        workers = [multiprocessing.Process(target=load, args=(primary.socket, round_number * 10 + w, stop, arguments.hot_rows)) for w in range(4)]
        for worker in workers:
            worker.start()
        time.sleep(rng.uniform(1, 3))
        if round_number == 1:
            connection = primary.connect("r")
            connection.query("ALTER TABLE log ADD extra INT DEFAULT 3, ADD KEY (extra)")
            connection.close()
        if round_number < arguments.rounds:
            first.kill()
            time.sleep(rng.uniform(0, 1))
            first.start(first.port)
            connection = first.connect()
            connection.query("START SLAVE")
            connection.close()
            time.sleep(1)
        stop.set()
        for worker in workers:
            worker.join()
        connection = primary.connect()
        position = connection.value("SELECT @@gtid_current_pos")
        connection.close()
        wait_for(first, position, "replica 1")
        wait_for(second, position, "replica 2")
        results = [checksums(server) for server in (primary, first, second)]
        same = results[0][0] == results[1][0] == results[2][0] and not any(problems for _, problems in results)
        failed += not same
        what = "replica killed" if round_number < arguments.rounds else "no kill"
        print("round %d (%s): position %s, checksums %s" % (round_number + 1, what, position, "agree" if same else "DIFFER: %s" % results), flush=True)

    # Promotion: the primary dies, replica 1 takes over, replica 2 and the old primary follow it.
    stop = multiprocessing.Event()
    workers = [multiprocessing.Process(target=load, args=(primary.socket, 100 + w, stop, arguments.hot_rows)) for w in range(4)]
    for worker in workers:
        worker.start()
    time.sleep(1.5)
    stop.set()
    for worker in workers:
        worker.join()
    connection = primary.connect()
    position = connection.value("SELECT @@gtid_current_pos")
    connection.close()
    wait_for(first, position, "replica 1")
    wait_for(second, position, "replica 2")
    primary.kill()
    connection = first.connect()
    connection.query("STOP SLAVE")
    connection.query("RESET SLAVE ALL")
    connection.close()
    follow(second, first.port)
    workers = [multiprocessing.Process(target=load, args=(first.socket, 200 + w, stop, arguments.hot_rows)) for w in range(4)]
    stop.clear()
    for worker in workers:
        worker.start()
    time.sleep(2)
    stop.set()
    for worker in workers:
        worker.join()
    primary.start(primary.port)
    connection = primary.connect()
    connection.query("SET GLOBAL gtid_slave_pos = @@gtid_current_pos")
    connection.close()
    follow(primary, first.port)
    connection = first.connect()
    position = connection.value("SELECT @@gtid_current_pos")
    connection.close()
    wait_for(second, position, "replica 2")
    wait_for(primary, position, "the old primary")
    results = [checksums(server) for server in (first, second, primary)]
    same = results[0][0] == results[1][0] == results[2][0] and not any(problems for _, problems in results)
    failed += not same
    print("promotion: position %s, checksums %s" % (position, "agree" if same else "DIFFER: %s" % results))
    retried = [row[1] for server in servers for row in server.connect().query("SHOW GLOBAL STATUS LIKE 'Slave_retried_transactions'")]
    print("transactions retried on each server since its start: %s" % ", ".join(retried))
    for server in servers:
        server.stop()
    print("replication with %s: %s" % (arguments.engine, "%d failures" % failed if failed else "all agree"))
    if not failed:
        subprocess.run(["rm", "-rf", arguments.directory])
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        for server in SERVERS:
            server.kill()
