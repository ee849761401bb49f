#!/bin/sh
# Runs the tests with clients of PostgreSQL against `perigee serve --pg`: psql, Python (psycopg or pg8000), JDBC. A client
# that is not installed is skipped with a message.
#
# usage: run.sh PERIGEE    the program, built with the feature `sql`
set -eu
perigee=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
server=
stop() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -z "$server" ] || wait "$server" 2>/dev/null || true
    server=
}
trap 'stop; rm -rf "$dir"' EXIT

# Starts a server with the arguments; sets PORT.
start() {
    : > "$dir/log"
    "$perigee" serve "$dir/db" --pg "$@" > "$dir/log" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        port=$(sed -n 's/.*:\([0-9][0-9]*\)$/\1/p' "$dir/log")
        [ -z "$port" ] || return 0
        kill -0 "$server" 2>/dev/null || { cat "$dir/log"; exit 1; }
        sleep 0.1
    done
    echo "the server does not start"; exit 1
}

"$perigee" sql "$dir/db" --create -c "SELECT 1" > /dev/null

# Another address than loopback is refused without password and certificate.
if "$perigee" serve "$dir/db" --pg --listen 0.0.0.0:0 2> "$dir/refused"; then echo "not refused"; exit 1; fi
grep -q "a password and a certificate" "$dir/refused"

start --listen 127.0.0.1:0
sh "$here/psql.sh" "$port"
python=${PYTHON:-python3}
if "$python" -c 'import psycopg' 2>/dev/null || "$python" -c 'import pg8000' 2>/dev/null; then
    "$python" "$here/client.py" "$port"
else
    echo "skipped: Python has neither psycopg nor pg8000 (set PYTHON)"
fi
if [ -n "${PGJDBC_JAR:-}" ] && command -v java > /dev/null; then
    java -cp "$PGJDBC_JAR" "$here/Client.java" "$port"
else
    echo "skipped: no Java, or PGJDBC_JAR does not name the PostgreSQL JDBC driver"
fi
stop

if command -v bash > /dev/null && command -v psql > /dev/null; then
    bash "$here/accept.sh" "$perigee" "$dir"
else
    echo "skipped: the limit of open files needs bash and psql"
fi

# Password and TLS.
if command -v openssl > /dev/null && command -v psql > /dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -keyout "$dir/key.pem" -out "$dir/cert.pem" -days 2 \
        -subj /CN=localhost 2> /dev/null
    echo "a long password" > "$dir/password"
    start --listen 127.0.0.1:0 --password-file "$dir/password" --tls-cert "$dir/cert.pem" --tls-key "$dir/key.pem"
    url="host=127.0.0.1 port=$port user=perigee dbname=perigee"
    [ "$(PGPASSWORD='a long password' psql "$url sslmode=require" -Atc 'SELECT 1')" = 1 ]
    for wrong in "$url sslmode=disable" "$url sslmode=require user=other"; do
        if PGPASSWORD='a long password' psql "$wrong" -c 'SELECT 1' > /dev/null 2>&1; then echo "accepted: $wrong"; exit 1; fi
    done
    if PGPASSWORD=wrong psql "$url sslmode=require" -c 'SELECT 1' > /dev/null 2>&1; then echo "wrong password accepted"; exit 1; fi
    echo "password and TLS: passed"
    stop
else
    echo "skipped: password and TLS need openssl and psql"
fi
echo "clients: all passed"
