"""Demonstration on a private server: real data, EXPLAIN, space, SIGKILL under load."""

import argparse
import os
import subprocess
import sys
import time

from mariadb_server import Server

HERE = os.path.dirname(os.path.abspath(__file__))


def write_listing(path, roots, limit):
    """Files of the machine: path, directory, name, extension, size, time of modification."""
    count = 0
    with open(path, "w", encoding="utf-8", errors="replace") as out:
        for root in roots:
            for directory, _, names in os.walk(root):
                for name in names:
                    full = os.path.join(directory, name)
                    try:
                        info = os.lstat(full)
                    except OSError:
                        continue
                    if any(c in full for c in "\t\n\\"):
                        continue
                    extension = name.rsplit(".", 1)[1][:20] if "." in name[1:] else ""
                    out.write("%d\t%s\t%s\t%s\t%d\t%s\n" % (count + 1, directory, name, extension, info.st_size,
                                                            time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(info.st_mtime))))
                    count += 1
                    if count == limit:
                        return count
    return count


def show(connection, sql):
    print("\nmysql> %s;" % sql)
    rows = connection.query(sql)
    if isinstance(rows, list):
        for row in rows[:12]:
            print("  " + " | ".join("NULL" if value is None else value[:100] for value in row))
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", default="/tmp/perigee-demo-%d" % os.getpid())
    parser.add_argument("--files", type=int, default=300000)
    parser.add_argument("--kills", type=int, default=3)
    arguments = parser.parse_args()
    server = Server(os.path.join(arguments.directory, "server"), "PERIGEE", options=["--innodb-file-per-table=1"])
    server.install()
    listing = os.path.join(arguments.directory, "files.tsv")
    count = write_listing(listing, ["/usr", "/lib", "/etc", "/var", "/opt", "/root"], arguments.files)
    server.start()
    connection = server.connect()
    print("A private server with PERIGEE tables; socket %s" % server.socket)
    print("Data: %d files of this machine" % count)
    connection.query("CREATE DATABASE demo")
    connection.query("USE demo")
    definition = ("CREATE TABLE %s (id INT PRIMARY KEY, directory VARCHAR(700), name VARCHAR(255), extension VARCHAR(20), "
                  "size BIGINT, modified DATETIME, KEY (extension, size), KEY (modified), KEY (name(20))) ENGINE=%s")
    for engine in ("PERIGEE", "InnoDB"):
        table = "files" if engine == "PERIGEE" else "files_innodb"
        connection.query(definition % (table, engine))
        started = time.time()
        connection.query("LOAD DATA INFILE '%s' INTO TABLE %s CHARACTER SET utf8mb4" % (listing, table))
        print("LOAD DATA into %s: %.1f s" % (engine, time.time() - started))
    connection.query("ANALYZE TABLE files")
    sums = connection.query("CHECKSUM TABLE files, files_innodb")
    print("checksums: %s" % ("equal" if sums[0][1] == sums[1][1] else "DIFFERENT"))
    failed = sums[0][1] != sums[1][1]
    show(connection, "SELECT extension, COUNT(*), SUM(size) FROM files GROUP BY extension ORDER BY 3 DESC LIMIT 5")
    show(connection, "EXPLAIN SELECT extension, MAX(size) FROM files WHERE extension = 'so' GROUP BY extension")
    show(connection, "EXPLAIN SELECT name, size FROM files WHERE extension = 'h' AND size > 100000 ORDER BY size DESC")
    show(connection, "SELECT name, size FROM files WHERE extension = 'h' ORDER BY size DESC LIMIT 3")
    show(connection, "EXPLAIN SELECT * FROM files WHERE modified > NOW() - INTERVAL 1 HOUR")
    connection.query("ALTER TABLE files ADD checked BOOL NOT NULL DEFAULT 0, ALGORITHM=INSTANT")
    show(connection, "SELECT table_name, entries, ROUND(disk_bytes / 1e6, 1) AS disk_mb, files FROM information_schema.perigee_tables WHERE table_schema = 'demo'")
    # Data that was loaded in one piece is on disk; the InnoDB file is closed by FLUSH TABLES.
    connection.query("FLUSH TABLES")
    innodb = os.stat(os.path.join(server.data, "demo", "files_innodb.ibd")).st_blocks * 512
    print("\nInnoDB's file of the same rows: %.1f MB" % (innodb / 1e6))
    connection.close()
    status = server.stop()
    print("orderly shutdown: status %s" % status)
    print("\nSIGKILL under load, %d times: clients journal each acknowledged commit, and compare after the restart" % arguments.kills)
    crash = subprocess.run([sys.executable, os.path.join(HERE, "crash.py"), str(arguments.kills), "binlog"])
    subprocess.run(["rm", "-rf", arguments.directory])
    return 1 if failed or crash.returncode or status else 0


if __name__ == "__main__":
    sys.exit(main())
