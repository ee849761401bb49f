#!/bin/bash
# Connections beyond the limit of open files, against the program given: the server must neither use the processor while it
# waits for a free file, nor fill the log.
set -eu
perigee=$1 dir=$2
: > "$dir/accept.out"
(ulimit -n 64; exec "$perigee" serve "$dir/db" --pg --listen 127.0.0.1:0 > "$dir/accept.out" 2> "$dir/accept.err") &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
port=
for _ in $(seq 100); do
    port=$(sed -n 's/.*:\([0-9][0-9]*\)$/\1/p' "$dir/accept.out")
    [ -z "$port" ] || break
    sleep 0.1
done
sockets=()
for _ in $(seq 70); do
    exec {socket}<> "/dev/tcp/127.0.0.1/$port"
    sockets+=("$socket")
done
# Hundredths of a second of processor time.
used() { awk '{print $14 + $15}' "/proc/$server/stat"; }
sleep 1
before=$(used)
sleep 2
busy=$(($(used) - before))
[ "$busy" -lt 50 ] || { echo "the server used $busy % of two seconds while it waited"; exit 1; }
[ "$(grep -c 'cannot accept connections' "$dir/accept.err")" = 1 ] || { cat "$dir/accept.err"; exit 1; }
for socket in "${sockets[@]}"; do exec {socket}>&-; done
sleep 1
[ "$(psql "host=127.0.0.1 port=$port dbname=perigee user=any" -XAtc 'SELECT 1')" = 1 ]
echo "limit of open files: passed"
