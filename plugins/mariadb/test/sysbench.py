"""sysbench over InnoDB, Perigee and MyRocks: interleaved runs, medians and ratios to InnoDB.

Each engine has its own server with the same memory and synced commits. The servers run all the time; only one of them
is under load at a time, and each round visits every engine for every workload.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys

from mariadb_server import Server

WORKLOADS = {
    "point select": ["oltp_point_select"],
    "read only": ["oltp_read_only"],
    "read write": ["oltp_read_write"],
    "write only": ["oltp_write_only"],
    "update index": ["oltp_update_index"],
    "update non-index": ["oltp_update_non_index"],
    "delete": ["oltp_delete"],
    "insert": ["oltp_insert"],
}


def sysbench(server, script, command, rows, tables, threads, seconds):
    run = subprocess.run(
        ["sysbench", script, "--db-driver=mysql", "--mysql-socket=" + server.socket, "--mysql-user=root", "--mysql-db=sbtest",
         "--mysql-storage-engine=" + server.engine, "--mysql-ignore-errors=1213,1205,1020,1180,1062", "--rand-type=uniform",
         "--table-size=%d" % rows, "--tables=%d" % tables, "--threads=%d" % threads, "--time=%d" % seconds, "--report-interval=0",
         command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    if run.returncode:
        raise SystemExit("sysbench %s %s with %s failed:\n%s" % (script, command, server.engine, run.stdout))
    return run.stdout


def measure(server, script, arguments):
    output = sysbench(server, script, "run", arguments.rows, arguments.tables, arguments.threads, arguments.seconds)
    transactions = float(re.search(r"transactions:\s+\d+\s+\(([\d.]+) per sec", output).group(1))
    p95 = float(re.search(r"95th percentile:\s+([\d.]+)", output).group(1))
    return transactions, p95


def disk_bytes(server):
    total = 0
    for directory, _, files in os.walk(server.data):
        if "binlog" in directory:
            continue
        for name in files:
            # Redo logs of fixed size and binary logs are no part of the tables.
            if name.startswith(("ib_logfile", "binlog", "ibtmp", "undo")):
                continue
            try:
                total += os.stat(os.path.join(directory, name)).st_blocks * 512
            except OSError:
                pass
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("threads", type=int)
    parser.add_argument("seconds", type=int)
    parser.add_argument("rows", type=int)
    parser.add_argument("engines", nargs="*", default=["InnoDB", "PERIGEE"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tables", type=int, default=1)
    parser.add_argument("--memory", type=int, default=256, help="MiB for each engine")
    parser.add_argument("--binlog", action="store_true")
    parser.add_argument("--workloads", help="comma-separated, default: all")
    parser.add_argument("--json", dest="output")
    parser.add_argument("--directory", default="/tmp/perigee-sysbench-%d" % os.getpid())
    arguments = parser.parse_args()
    workloads = arguments.workloads.split(",") if arguments.workloads else list(WORKLOADS)
    for workload in workloads:
        if workload not in WORKLOADS:
            raise SystemExit("unknown workload %s; known: %s" % (workload, ", ".join(WORKLOADS)))

    servers = {}
    disk = {}
    results = {workload: {engine: [] for engine in arguments.engines} for workload in workloads}
    try:
        for engine in arguments.engines:
            options = ["--innodb-flush-log-at-trx-commit=1", "--max-connections=200", "--table-open-cache=2000"]
            if engine.upper() == "INNODB":
                options += ["--innodb-log-file-size=512M"]
            server = Server(os.path.join(arguments.directory, engine), engine, memory_mb=arguments.memory, binlog=arguments.binlog, options=options)
            server.install()
            server.start()
            servers[engine] = server
            connection = server.connect()
            connection.query("CREATE DATABASE sbtest")
            connection.close()
            sysbench(server, "oltp_read_write", "prepare", arguments.rows, arguments.tables, min(arguments.tables, 4), 0)
            connection = server.connect("sbtest")
            for table in range(1, arguments.tables + 1):
                connection.query("ANALYZE TABLE sbtest%d" % table)
            connection.close()
            disk[engine] = disk_bytes(server)
            print("%s: loaded, %.1f MB" % (engine, disk[engine] / 1e6), file=sys.stderr)
        for workload in workloads: # warm up
            if workload in ("point select", "read only"):
                for engine in arguments.engines:
                    sysbench(servers[engine], WORKLOADS[workload][0], "run", arguments.rows, arguments.tables, arguments.threads, 2)
        for round_number in range(arguments.rounds):
            for workload in workloads:
                order = arguments.engines if round_number % 2 == 0 else arguments.engines[::-1]
                for engine in order:
                    rate, p95 = measure(servers[engine], WORKLOADS[workload][0], arguments)
                    results[workload][engine].append((rate, p95))
                    print("round %d, %s, %s: %.0f/s, p95 %.2f ms" % (round_number + 1, workload, engine, rate, p95), file=sys.stderr)
        final_disk = {engine: disk_bytes(server) for engine, server in servers.items()}
    finally:
        for server in servers.values():
            server.kill()

    print("%d threads, %d s, %d table(s) of %d rows, %d MiB, commits synced, binary log %s, median of %d rounds, transactions/s (p95 ms)"
          % (arguments.threads, arguments.seconds, arguments.tables, arguments.rows, arguments.memory, "on" if arguments.binlog else "off", arguments.rounds))
    others = [engine for engine in arguments.engines if engine.upper() != "INNODB"]
    base = next((engine for engine in arguments.engines if engine.upper() == "INNODB"), None)
    header = ["workload"] + arguments.engines + ([engine + "/InnoDB" for engine in others] if base else [])
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    summary = {}
    for workload in workloads:
        medians = {engine: (statistics.median(r for r, _ in runs), statistics.median(p for _, p in runs)) for engine, runs in results[workload].items()}
        summary[workload] = {engine: {"per_second": rate, "p95_ms": p95, "runs": [r for r, _ in results[workload][engine]]} for engine, (rate, p95) in medians.items()}
        cells = [workload] + ["%.0f (%.2f)" % medians[engine] for engine in arguments.engines]
        if base:
            cells += ["%.2f" % (medians[engine][0] / medians[base][0]) for engine in others]
        print("| " + " | ".join(cells) + " |")
    cells = ["disk after load, MB"] + ["%.1f" % (disk[engine] / 1e6) for engine in arguments.engines]
    if base:
        cells += ["%.2f" % (disk[engine] / disk[base]) for engine in others]
    print("| " + " | ".join(cells) + " |")
    if arguments.output:
        with open(arguments.output, "w") as file:
            json.dump({"arguments": vars(arguments), "results": summary, "disk_after_load": disk, "disk_at_end": final_disk}, file, indent=1)
    subprocess.run(["rm", "-rf", arguments.directory])


if __name__ == "__main__":
    main()
