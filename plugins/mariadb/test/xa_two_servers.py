"""Transfers between two servers by XA, with SIGKILL of one or both.

Workers are coordinators: each moves an amount from an account of one server to an account of the other in a transaction with
two branches, writes the decision to a synced log between the two phases, and ends when it loses a connection. After the
restart the branches that XA RECOVER lists are decided by the logs; a branch without a decision is rolled back. Then:
- no branch is left;
- a transfer is on both servers if its commit was decided, and on none otherwise;
- each balance equals the sum of the account's transfers, and the total of both servers is constant.
"""

import argparse
import multiprocessing
import os
import random
import subprocess
import time

from mariadb_client import Connection, Error, LOST
from mariadb_server import Server, run

ACCOUNTS = 40
START_BALANCE = 1000
# Lock wait timeout, deadlock, and the end of a branch that the server has rolled back.
FAILED = {1205, 1213, 1402, 1613, 1614}
UNKNOWN_XID = 1397


class DecisionLog:
    def __init__(self, path):
        self.file = open(path, "a")

    def commit(self, gid):
        self.file.write(gid + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())


def read_decisions(directory):
    decisions = set()
    for name in os.listdir(directory):
        if name.startswith("decisions."):
            with open(os.path.join(directory, name)) as file:
                decisions.update(line.strip() for line in file if line.endswith("\n"))
    return decisions


def roll_back(connection, gid):
    for statement in ("XA END '%s'", "XA ROLLBACK '%s'"):
        try:
            connection.query(statement % gid)
        except Error as error:
            if error.number in LOST:
                raise
            # The branch has already ended, or was rolled back after a deadlock.


def transfer(connections, log, rng, gid):
    source = rng.randrange(2)
    amount = rng.randint(1, 20)
    order = [0, 1]
    rng.shuffle(order)
    started = []
    try:
        for server in order:
            account = rng.randrange(ACCOUNTS)
            change = -amount if server == source else amount
            connection = connections[server]
            connection.query("XA START '%s'" % gid)
            started.append(server)
            connection.query("UPDATE accounts SET balance = balance + %d WHERE id = %d" % (change, account))
            connection.query("INSERT INTO transfers VALUES ('%s', %d, %d)" % (gid, account, change))
        for server in order:
            connections[server].query("XA END '%s'" % gid)
            connections[server].query("XA PREPARE '%s'" % gid)
    except Error as error:
        if error.number not in FAILED:
            raise
        for server in started:
            roll_back(connections[server], gid)
        return
    if rng.random() < 0.1:  # the coordinator may also decide against a prepared transaction
        for server in order:
            connections[server].query("XA ROLLBACK '%s'" % gid)
        return
    log.commit(gid)
    for server in order:
        connections[server].query("XA COMMIT '%s'" % gid)


def run_worker(sockets, directory, worker, round_number, seed, commits):
    rng = random.Random(seed)
    log = DecisionLog(os.path.join(directory, "decisions.%d" % worker))
    number = 0
    try:
        connections = [Connection(socket, "bank") for socket in sockets]
        while True:
            number += 1
            transfer(connections, log, rng, "r%d_w%d_n%d" % (round_number, worker, number))
            with commits.get_lock():
                commits.value += 1
    except Error as error:
        if error.number not in LOST:
            with open(os.path.join(directory, "errors"), "a") as file:
                file.write("worker %d: %s\n" % (worker, error))
    os._exit(0)


def resolve(connection, decisions, name, problems):
    """Decides the prepared branches of a server. Returns their number."""
    gids = [row[3] for row in connection.query("XA RECOVER")]
    for gid in gids:
        statement = "XA %s '%s'" % ("COMMIT" if gid in decisions else "ROLLBACK", gid)
        deadline = time.time() + 20
        while True:
            try:
                connection.query(statement)
                break
            except Error as error:
                # The server has not yet noticed that the connection of the branch is closed.
                if error.number != UNKNOWN_XID or time.time() > deadline:
                    problems.append("%s: %s: %s" % (name, statement, error))
                    break
                time.sleep(0.05)
    return len(gids)


def verify(connections, names, decisions, problems):
    present = []
    total = 0
    for connection, name in zip(connections, names):
        left = connection.query("XA RECOVER")
        if left:
            problems.append("%s: branches are left: %s" % (name, left[:5]))
        rows = connection.query("SELECT gid, account, amount FROM transfers")
        expected = {account: START_BALANCE for account in range(ACCOUNTS)}
        for _, account, amount in rows:
            expected[int(account)] += int(amount)
        balances = {int(a): int(b) for a, b in connection.query("SELECT id, balance FROM accounts")}
        if balances != expected:
            wrong = [(a, balances.get(a), expected[a]) for a in expected if balances.get(a) != expected[a]]
            problems.append("%s: balances differ from the transfers (account, is, should be): %s" % (name, wrong[:5]))
        total += sum(balances.values())
        present.append({row[0] for row in rows})
        for gid in sorted(decisions - present[-1])[:5]:
            problems.append("%s: the decided transfer %s is missing" % (name, gid))
        for gid in sorted(present[-1] - decisions)[:5]:
            problems.append("%s: the transfer %s was never decided" % (name, gid))
        checks = connection.query("CHECK TABLE accounts, transfers EXTENDED")
        if any(row[3] != "OK" for row in checks):
            problems.append("%s: %s" % (name, checks))
        counts = connection.query("SELECT (SELECT COUNT(*) FROM transfers FORCE INDEX (amount)), COUNT(*) FROM transfers FORCE INDEX (PRIMARY)")
        if counts[0][0] != counts[0][1]:
            problems.append("%s: indexes return different numbers of rows: %s" % (name, counts))
    if total != 2 * ACCOUNTS * START_BALANCE:
        problems.append("the total is %d, not %d" % (total, 2 * ACCOUNTS * START_BALANCE))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", type=int)
    parser.add_argument("--engines", default="PERIGEE,PERIGEE", help="of the two servers")
    parser.add_argument("--binlog", action="store_true")
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="longest time under load before the kill")
    parser.add_argument("--break", dest="fault", choices=["none", "decision", "forgotten", "balance"], default="none",
                        help="a fault in the last round, which must be reported")
    parser.add_argument("--directory", default="/tmp/perigee-xa-%d" % os.getpid())
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    engines = arguments.engines.split(",")
    names = ["server %d (%s)" % (number + 1, engine) for number, engine in enumerate(engines)]
    servers = []
    for number, engine in enumerate(engines):
        options = ["--innodb-flush-log-at-trx-commit=1", "--innodb-lock-wait-timeout=1", "--lock-wait-timeout=5"]
        if engine.upper() == "PERIGEE":
            options.append("--perigee-lock-wait-timeout=1")
        server = Server(os.path.join(arguments.directory, str(number + 1)), engine, memory_mb=64, server_id=number + 1,
                        binlog=arguments.binlog, options=options)
        server.install()
        server.start()
        servers.append(server)
        SERVERS.append(server)
        connection = server.connect()
        for statement in ["CREATE DATABASE bank", "USE bank",
                          "CREATE TABLE accounts (id INT PRIMARY KEY, balance BIGINT NOT NULL, KEY (balance))",
                          "CREATE TABLE transfers (gid VARCHAR(40) PRIMARY KEY, account INT, amount INT, KEY (account), KEY amount (amount))",
                          "INSERT INTO accounts SELECT seq, %d FROM seq_0_to_%d" % (START_BALANCE, ACCOUNTS - 1)]:
            connection.query(statement)
        connection.close()
    started = time.time()
    violations = branches = 0
    commits = multiprocessing.Value("L", 0)
    errors = os.path.join(arguments.directory, "errors")
    for round_number in range(1, arguments.rounds + 1):
        workers = [multiprocessing.Process(target=run_worker, args=([server.socket for server in servers], arguments.directory, worker,
                                                                    round_number, rng.random(), commits)) for worker in range(arguments.workers)]
        for worker in workers:
            worker.start()
        time.sleep(rng.uniform(0.3, arguments.seconds))
        killed = rng.choice([[0], [1], [0, 1]])
        for index in killed:
            servers[index].kill()
        for worker in workers:
            worker.join(60)
            if worker.is_alive():
                worker.terminate()
                worker.join()
        for index in killed:
            servers[index].start()
        problems = []
        if os.path.exists(errors):
            with open(errors) as file:
                problems += ["unexpected error of " + line.strip() for line in file]
            os.remove(errors)
        decisions = read_decisions(arguments.directory)
        connections = [server.connect("bank") for server in servers]
        fault = arguments.fault if round_number == arguments.rounds else "none"
        # A connection of a worker may end after the first look at its server.
        found = 0
        for _ in range(3):
            for connection, name in zip(connections, names):
                found += resolve(connection, decisions if fault != "forgotten" or name != names[1] else set(), name, problems)
            time.sleep(0.1)
        if fault == "decision":
            decisions.pop()
        elif fault == "balance":
            connections[0].query("UPDATE accounts SET balance = balance + 1 WHERE id = 3")
        elif fault == "forgotten":
            # A coordinator that forgets a decision after one server has committed.
            gid = connections[1].value("SELECT MIN(gid) FROM transfers")
            connections[1].query("DELETE FROM transfers WHERE gid = '%s'" % gid)
        verify(connections, names, decisions, problems)
        for connection in connections:
            connection.close()
        branches += found
        violations += len(problems)
        print("round %d: killed %s, %d transactions so far, %d branches decided after the restart, violations: %d" % (
            round_number, " and ".join(names[i] for i in killed), commits.value, found, len(problems)), flush=True)
        for problem in problems[:20]:
            print("  " + problem, flush=True)
    for server in servers:
        server.stop()
    print("XA between %s: %d kills, %d transactions, %d branches decided by the logs, %d violations, %.0f s" % (
        " and ".join(engines), arguments.rounds, commits.value, branches, violations, time.time() - started))
    if arguments.fault != "none":
        print("seeded fault %s: %s" % (arguments.fault, "reported" if violations else "NOT REPORTED"))
        subprocess.run(["rm", "-rf", arguments.directory])
        return 0 if violations else 1
    if branches == 0 and arguments.rounds >= 5:
        print("no branch was ever prepared at a kill: the test has verified nothing")
        return 1
    if not violations:
        subprocess.run(["rm", "-rf", arguments.directory])
    else:
        print("kept: %s" % arguments.directory)
    return 1 if violations else 0


SERVERS = []

if __name__ == "__main__":
    run(main, SERVERS)
