"""A workload like TPC-C over InnoDB, PERIGEE, ROCKSDB and TIDESDB: interleaved rounds, then checks of consistency.

The transactions are in lua/tpcc.lua. Figures are comparable between the engines of one run only: the warehouses are
scaled down and the terminals do not wait.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

import benchmark_report as report
import benchmark_server as servers_of
from mariadb_client import Error

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lua", "tpcc.lua")
KINDS = ["new_order", "payment", "order_status", "delivery", "stock_level"]
ERRORS = {"1205": "lock wait timeouts", "1213": "deadlocks", "1020": "conflicts", "1180": "failed commits"}

# Each query returns the rows that violate a condition of consistency.
CHECKS = {
    "W_YTD is the sum of D_YTD":
        "SELECT w_id, w_ytd, SUM(d_ytd) s FROM warehouse JOIN district ON d_w_id = w_id GROUP BY w_id, w_ytd HAVING w_ytd <> s",
    "D_NEXT_O_ID - 1 is the newest O_ID":
        "SELECT d_w_id, d_id, d_next_o_id, MAX(o_id) m FROM district LEFT JOIN orders ON o_w_id = d_w_id AND o_d_id = d_id "
        "GROUP BY d_w_id, d_id, d_next_o_id HAVING m IS NULL OR d_next_o_id - 1 <> m",
    "D_NEXT_O_ID - 1 is the newest NO_O_ID":
        "SELECT d_w_id, d_id, d_next_o_id, MAX(no_o_id) m FROM district JOIN new_order ON no_w_id = d_w_id AND no_d_id = d_id "
        "GROUP BY d_w_id, d_id, d_next_o_id HAVING d_next_o_id - 1 <> m",
    "NEW_ORDER has no gaps":
        "SELECT no_w_id, no_d_id, MAX(no_o_id) - MIN(no_o_id) + 1 wanted, COUNT(*) c FROM new_order GROUP BY no_w_id, no_d_id HAVING wanted <> c",
    "orders have no gaps":
        "SELECT o_w_id, o_d_id, MAX(o_id) m, COUNT(*) c FROM orders GROUP BY o_w_id, o_d_id HAVING m <> c",
    "O_OL_CNT is the number of lines":
        "SELECT o_w_id, o_d_id, o_id, o_ol_cnt, COUNT(ol_number) c FROM orders LEFT JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id "
        "AND ol_o_id = o_id GROUP BY o_w_id, o_d_id, o_id, o_ol_cnt HAVING o_ol_cnt <> c LIMIT 5",
    "the sum of O_OL_CNT is the number of lines of the district":
        "SELECT * FROM (SELECT o_w_id w, o_d_id d, SUM(o_ol_cnt) s FROM orders GROUP BY 1, 2) o JOIN (SELECT ol_w_id w, ol_d_id d, COUNT(*) c "
        "FROM order_line GROUP BY 1, 2) l USING (w, d) WHERE s <> c",
    "an order without carrier is in NEW_ORDER, and no other":
        "SELECT o_w_id, o_d_id, o_id, o_carrier_id, no_o_id FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id "
        "WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL) LIMIT 5",
    "a line has a delivery date if its order has a carrier":
        "SELECT o_w_id, o_d_id, o_id, ol_number FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id "
        "WHERE (o_carrier_id IS NULL) <> (ol_delivery_d IS NULL) LIMIT 5",
    "W_YTD is the sum of H_AMOUNT":
        "SELECT w_id, w_ytd, s FROM warehouse LEFT JOIN (SELECT h_w_id, SUM(h_amount) s FROM history GROUP BY h_w_id) h ON h_w_id = w_id "
        "WHERE s IS NULL OR w_ytd <> s",
    "D_YTD is the sum of H_AMOUNT":
        "SELECT d_w_id, d_id, d_ytd, s FROM district LEFT JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) s FROM history GROUP BY h_w_id, h_d_id) h "
        "ON h_w_id = d_w_id AND h_d_id = d_id WHERE s IS NULL OR d_ytd <> s",
    "C_BALANCE is what was delivered less what was paid":
        "SELECT c_w_id, c_d_id, c_id, c_balance, delivered, paid FROM customer "
        "LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) delivered FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id "
        "AND ol_o_id = o_id AND ol_delivery_d IS NOT NULL GROUP BY 1, 2, 3) o ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id "
        "LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) paid FROM history GROUP BY 1, 2, 3) h ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id "
        "AND h_c_id = c_id WHERE c_balance <> IFNULL(delivered, 0) - IFNULL(paid, 0) LIMIT 5",
    "C_YTD_PAYMENT and C_PAYMENT_CNT agree with HISTORY":
        "SELECT c_w_id, c_d_id, c_id, c_ytd_payment, paid, c_payment_cnt, payments FROM customer LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, "
        "SUM(h_amount) paid, COUNT(*) payments FROM history GROUP BY 1, 2, 3) h ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id "
        "WHERE paid IS NULL OR c_ytd_payment <> paid OR c_payment_cnt <> payments LIMIT 5",
    "S_YTD is the quantity of the lines that were ordered":
        "SELECT s_w_id, s_i_id, s_ytd, q, s_order_cnt, c FROM stock LEFT JOIN (SELECT ol_supply_w_id, ol_i_id, SUM(ol_quantity) q, COUNT(*) c FROM order_line "
        "WHERE ol_o_id > {customers} GROUP BY 1, 2) l ON ol_supply_w_id = s_w_id AND ol_i_id = s_i_id "
        "WHERE s_ytd <> IFNULL(q, 0) OR s_order_cnt <> IFNULL(c, 0) LIMIT 5",
    "the index of names has all customers":
        "SELECT a.c, b.c FROM (SELECT COUNT(*) c FROM customer FORCE INDEX (PRIMARY)) a, (SELECT COUNT(c_last) c FROM customer FORCE INDEX (by_name) "
        "WHERE c_w_id > 0) b WHERE a.c <> b.c",
    "the index of customers has all orders":
        "SELECT a.c, b.c FROM (SELECT COUNT(*) c FROM orders FORCE INDEX (PRIMARY)) a, (SELECT COUNT(o_c_id) c FROM orders FORCE INDEX (by_customer) "
        "WHERE o_w_id > 0) b WHERE a.c <> b.c",
}

# Changes that a check must report.
FAULTS = [
    "UPDATE warehouse SET w_ytd = w_ytd + 1 LIMIT 1", "UPDATE district SET d_next_o_id = d_next_o_id + 1 LIMIT 1",
    "UPDATE district SET d_ytd = d_ytd + 1 LIMIT 1", "DELETE FROM order_line LIMIT 1", "DELETE FROM history LIMIT 1",
    "DELETE FROM new_order ORDER BY no_w_id, no_d_id, no_o_id LIMIT 1", "UPDATE orders SET o_carrier_id = NULL WHERE o_id = 1 LIMIT 1",
    "UPDATE customer SET c_balance = c_balance + 0.01 LIMIT 1", "UPDATE customer SET c_payment_cnt = c_payment_cnt + 1 LIMIT 1",
    "UPDATE stock SET s_ytd = s_ytd + 1 LIMIT 1", "UPDATE order_line SET ol_delivery_d = NULL WHERE ol_o_id = 1 LIMIT 1",
]


def log(text):
    print(time.strftime("%H:%M:%S ") + text, file=sys.stderr, flush=True)


def sysbench(server, command, threads, seconds, arguments):
    run = subprocess.run(
        ["sysbench", SCRIPT, "--db-driver=mysql", "--mysql-socket=" + server.socket, "--mysql-user=root", "--mysql-db=tpcc",
         "--mysql-ignore-errors=" + ",".join(ERRORS), "--engine=" + server.engine, "--warehouses=%d" % arguments.warehouses, "--items=%d" % arguments.items,
         "--customers=%d" % arguments.customers, "--threads=%d" % threads, "--time=%d" % seconds, "--events=0", command],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    # Each thread prints its counts at its end; one that failed does not.
    if run.returncode or command == "run" and run.stdout.count("\nTPCC ") != threads:
        raise SystemExit("sysbench %s with %s failed:\n%s" % (command, server.engine, run.stdout[-4000:]))
    return run.stdout


def load(server, arguments):
    connection = server.connect()
    connection.query("CREATE DATABASE tpcc CHARACTER SET latin1 COLLATE latin1_bin")
    sysbench(server, "schema", 1, 0, arguments)
    sysbench(server, "load", min(2, arguments.warehouses), 0, arguments)
    connection.query("USE tpcc")
    connection.query("ANALYZE TABLE warehouse, district, customer, history, new_order, orders, order_line, item, stock")
    connection.close()


def quantile(buckets, share):
    """Milliseconds, from buckets of 5 % each."""
    wanted = sum(buckets.values()) * share
    seen = 0
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= wanted:
            return 1.05 ** (bucket + 0.5) / 1000
    return 0.0


def measure(server, arguments):
    server.resume()
    before = server.counters()
    output = sysbench(server, "run", arguments.threads, arguments.seconds, arguments)
    server.wait_idle(arguments.settle)
    after = server.counters()
    server.pause()
    counts, buckets = {}, {kind: {} for kind in KINDS}
    for line in output.splitlines():
        if line.startswith("TPCC "):
            for part in line.split()[1:]:
                name, value = part.split("=")
                if name.startswith("latency:"):
                    _, kind, bucket = name.split(":")
                    buckets[kind][int(bucket)] = buckets[kind].get(int(bucket), 0) + int(value)
                else:
                    counts[name] = counts.get(name, 0) + int(value)
    seconds = float(re.search(r"total time:\s+([\d.]+)s", output).group(1))
    transactions = sum(counts.get(kind, 0) for kind in KINDS) + counts.get("rolled_back", 0)
    return {"seconds": seconds, "transactions": transactions, "per_second": transactions / seconds, "counts": counts,
            "new_orders_per_minute": counts.get("new_order", 0) * 60 / seconds,
            "p95_ms": {kind: quantile(buckets[kind], 0.95) for kind in KINDS}, "p99_ms": {kind: quantile(buckets[kind], 0.99) for kind in KINDS},
            "cpu_per_1000": (after["cpu"] - before["cpu"]) * 1000 / max(1, transactions),
            "written_per_transaction": (after["written"] - before["written"]) / max(1, transactions)}


def check(connection, arguments, new_orders=None):
    """Returns the violations as texts."""
    violations = []
    for name, query in CHECKS.items():
        found = connection.query(query.replace("{customers}", str(arguments.customers)))
        if found:
            violations.append("%s: %s" % (name, found[:3]))
    if new_orders is not None:
        stored = int(connection.value("SELECT COUNT(*) FROM orders")) - arguments.warehouses * 10 * arguments.customers
        if stored != new_orders:
            violations.append("%d new orders were acknowledged, %d are stored" % (new_orders, stored))
    return violations


def self_test(connection, arguments):
    """Each seeded fault must be reported; returns the number of those that are not."""
    missed = 0
    for fault in FAULTS:
        connection.query("BEGIN")
        if not connection.query(fault):
            raise SystemExit("nothing to change: " + fault)
        found = check(connection, arguments)
        connection.query("ROLLBACK")
        print("%s: %s" % (fault, found[0] if found else "NOT REPORTED"))
        missed += not found
    return missed


def main():
    parser = argparse.ArgumentParser(prog="tpcc.sh")
    servers_of.add_common_arguments(parser, settle=5)
    parser.add_argument("--warehouses", type=int, default=4)
    parser.add_argument("--items", type=int, default=10000)
    parser.add_argument("--customers", type=int, default=300, help="of each district")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=30, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--binlog", action="store_true")
    parser.add_argument("--isolation", default="REPEATABLE-READ", choices=("READ-COMMITTED", "REPEATABLE-READ"))
    parser.add_argument("--keep", help="directory of loaded data directories, which later runs use again")
    parser.add_argument("--self-test", action="store_true", help="tests that the checks report seeded faults")
    arguments = servers_of.parse_arguments(parser)
    keep = os.path.abspath(arguments.keep or os.path.join(arguments.directory, "keep"))
    machine = servers_of.machine()
    count = arguments.rounds * len(arguments.engines)
    log("%d measurements of %d s: about %.0f minutes without the load" % (count, arguments.seconds, count * (arguments.seconds + 4) / 60))

    running, prepared, failed = {}, {}, 0
    results = {engine: [] for engine in arguments.engines}
    violations, disk = {}, {}
    try:
        for engine in arguments.engines:
            name = "tpcc_%d_%d_%d" % (arguments.warehouses, arguments.items, arguments.customers)
            prepared[engine] = servers_of.prepare(keep, name, engine, arguments.memory, lambda server: load(server, arguments))
            facts = prepared[engine][1]
            log("%s: loaded in %.1f s, %.1f MB on disk" % (engine, facts["load_seconds"], facts["bytes"] / 1e6))
            server = servers_of.copy_of(prepared[engine][0], os.path.join(arguments.directory, engine), engine, arguments.memory, arguments.binlog,
                                        arguments.limit, ["--transaction-isolation=" + arguments.isolation])
            running[engine] = server
            server.start()
            server.pause()
        for round_number in range(arguments.rounds):
            for engine in arguments.engines if round_number % 2 == 0 else arguments.engines[::-1]:
                result = measure(running[engine], arguments)
                results[engine].append(result)
                errors = ", ".join("%d %s" % (result["counts"].get("error_" + number, 0), text) for number, text in ERRORS.items())
                log("round %d, %s: %.0f transactions/s, %.0f new orders/min, p95 of new orders %.1f ms, %s"
                    % (round_number + 1, engine, result["per_second"], result["new_orders_per_minute"], result["p95_ms"]["new_order"], errors))
        for engine in arguments.engines:
            server = running[engine]
            server.resume()
            connection = server.connect("tpcc")
            new_orders = sum(result["counts"].get("new_order", 0) for result in results[engine])
            started = time.time()
            violations[engine] = check(connection, arguments, new_orders)
            log("%s: %d checks in %.1f s, %s" % (engine, len(CHECKS) + 1, time.time() - started, "; ".join(violations[engine]) or "consistent"))
            failed += len(violations[engine])
            if arguments.self_test:
                failed += self_test(connection, arguments)
            connection.close()
            server.wait_idle(60)
            server.stop()
            disk[engine] = server.disk_bytes() - prepared[engine][1]["empty_bytes"]
    except Error as error:
        raise SystemExit("failed: %s" % error)
    finally:
        for server in running.values():
            server.kill()
        shutil.rmtree(arguments.directory, ignore_errors=True)

    base = results.get("InnoDB")

    def median(engine, value):
        return statistics.median(value(result) for result in results[engine])

    def line(label, value, form="%.0f"):
        cells = {engine: median(engine, value) for engine in arguments.engines}
        return [label] + [form % cells[e] for e in arguments.engines] + \
            [("%.2f" % (cells[e] / cells["InnoDB"]) if cells["InnoDB"] else "-") for e in arguments.engines if base and e != "InnoDB"]

    rows = [line("transactions/s", lambda r: r["per_second"]), line("new orders/min", lambda r: r["new_orders_per_minute"]),
            line("CPU s for 1,000 transactions", lambda r: r["cpu_per_1000"], "%.3f"),
            line("KiB written for each", lambda r: r["written_per_transaction"] / 1024, "%.1f")]
    for kind in KINDS:
        rows.append(line("p95 of %s, ms" % kind, lambda r, kind=kind: r["p95_ms"][kind], "%.2f"))
        rows.append(line("p99 of %s, ms" % kind, lambda r, kind=kind: r["p99_ms"][kind], "%.2f"))
    for number, text in ERRORS.items():
        rows.append(line("%s (error %s) for 1,000" % (text, number), lambda r, n=number: r["counts"].get("error_" + n, 0) * 1000 / max(1, r["transactions"]), "%.2f"))
    extra = len([e for e in arguments.engines if base and e != "InnoDB"])
    rows.append(["disk after load, MB"] + ["%.1f" % (prepared[e][1]["bytes"] / 1e6) for e in arguments.engines] + [""] * extra)
    rows.append(["disk at the end, MB"] + ["%.1f" % (disk[e] / 1e6) for e in arguments.engines] + [""] * extra)
    rows.append(["%d checks" % (len(CHECKS) + 1)] + ["%d violations" % len(violations[e]) if violations[e] else "consistent" for e in arguments.engines] + [""] * extra)
    header = [""] + arguments.engines + [e + "/InnoDB" for e in arguments.engines if base and e != "InnoDB"]
    title = ("%d warehouses of %d items and 10 x %d customers, %d threads, %d s, %s, %d MiB%s, commits synced, binary log %s, median of %d rounds"
             % (arguments.warehouses, arguments.items, arguments.customers, arguments.threads, arguments.seconds, arguments.isolation, arguments.memory,
                " of %d MiB with the page cache" % arguments.limit if arguments.limit else "", "on" if arguments.binlog else "off", arguments.rounds))
    print("\n%s\n\n%s" % (title, report.markdown(header, rows)))
    if arguments.output:
        with open(arguments.output, "w") as file:
            json.dump({"machine": machine, "arguments": vars(arguments), "load": {e: facts for e, (_, facts) in prepared.items()},
                       "measurements": results, "disk_at_end": disk, "violations": violations}, file, indent=1)
    if arguments.html:
        with open(arguments.html, "w") as file:
            file.write(report.page("Like TPC-C: " + ", ".join(arguments.engines), machine, [title], [report.table(header, rows)]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
