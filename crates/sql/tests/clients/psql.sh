#!/bin/sh
# psql against a server at the port given.
set -eu
command -v psql > /dev/null || { echo "skipped: psql is not installed"; exit 0; }
url="host=127.0.0.1 port=$1 dbname=perigee user=any"
ask() { psql "$url" -X -q -At -v ON_ERROR_STOP=1 -c "$1"; }
expect() { [ "$1" = "$2" ] || { echo "expected: $2"; echo "got: $1"; exit 1; }; }

ask "DROP TABLE IF EXISTS p"
ask "CREATE TABLE p (id BIGINT PRIMARY KEY, name TEXT, at TIMESTAMP, score DOUBLE PRECISION, raw BYTEA, big UHUGEINT, ok BOOLEAN)"
ask "INSERT INTO p VALUES (1, 'ann', '2026-01-01 12:00:00.5', 1.5, NULL, '340282366920938463463374607431768211455', true), (2, NULL, NULL, NULL, NULL, NULL, false)"
expect "$(ask 'SELECT * FROM p ORDER BY id')" \
    "1|ann|2026-01-01 12:00:00.5+00|1.5||340282366920938463463374607431768211455|t
2||||||f"
expect "$(ask 'SELECT count(*), sum(id) FROM p')" "2|3"
expect "$(psql "$url" -X -At -c "UPDATE p SET name = 'bob' WHERE id = 2")" "UPDATE 1"
expect "$(psql "$url" -X -At -c "BEGIN; DELETE FROM p; ROLLBACK; SELECT count(*) FROM p" | tail -1)" "2"
expect "$(psql "$url" -X -At -c "INSERT INTO p (id, name) VALUES (3, 'cy') RETURNING id, upper(name)")" "3|CY
INSERT 0 1"
expect "$(psql "$url" -X -At -c "UPDATE p SET score = x.score FROM p AS x WHERE x.id = 1 AND p.id = 3 RETURNING p.score")" "1.5
UPDATE 1"
expect "$(psql "$url" -X -At -c "RESET ALL" 2>&1 | tail -1)" "RESET"
expect "$(ask "DELETE FROM p WHERE id = 3 RETURNING name")" "cy"
# Errors have a SQLSTATE, a hint and a position; the connection goes on.
psql "$url" -X -At > /tmp/psql.$$ 2>&1 <<'S' || true
\set VERBOSITY verbose
INSERT INTO p (id) VALUES (1);
SELECT none FROM p;
CREATE VIEW v AS SELECT 1;
SELECT 'goes on';
S
for text in 23505 42703 0A000 HINT "LINE 1: SELECT none" "goes on"; do
    grep -q "$text" /tmp/psql.$$ || { cat /tmp/psql.$$; echo "missing: $text"; exit 1; }
done
rm -f /tmp/psql.$$
# A failed transaction.
out=$(psql "$url" -X -At 2>&1 <<'S' || true
BEGIN;
SELECT 1 / 0;
SELECT 2;
COMMIT;
SELECT 'after';
S
)
case $out in *"current transaction"*|*"has failed"*) ;; *) echo "$out"; exit 1 ;; esac
case $out in *ROLLBACK*after*) ;; *) echo "$out"; exit 1 ;; esac
# Many rows.
ask "CREATE TABLE IF NOT EXISTS n (x BIGINT PRIMARY KEY)"
ask "DELETE FROM n"
ask "INSERT INTO n WITH RECURSIVE s AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM s WHERE x < 3000) SELECT x FROM s"
expect "$(ask 'SELECT x FROM n' | wc -l | tr -d ' ')" "3000"
# The catalog.
ask "DROP TABLE IF EXISTS \"Cat\""
ask "CREATE TABLE \"Cat\" (b TEXT NOT NULL DEFAULT 'it''s', a INTEGER, \"C\" BIGINT DEFAULT 7, d TIMESTAMP, PRIMARY KEY (a DESC, b))"
ask "CREATE UNIQUE INDEX cat_c ON \"Cat\" (\"C\", d DESC)"
list() { psql "$url" -X -q -A -t -v ON_ERROR_STOP=1 -c "$1" 2>&1; }
describe() { psql "$url" -X -q -A -v ON_ERROR_STOP=1 -c "$1" 2>&1; }
expect "$(list '\d')" "public|Cat|table|perigee
public|n|table|perigee
public|p|table|perigee"
expect "$(list '\dt c*')" ""
expect "$(list '\dt "C"*')" "public|Cat|table|perigee"
expect "$(describe '\d "Cat"')" "Table \"public.Cat\"
Column|Type|Collation|Nullable|Default
b|text||not null|'it''s'
a|integer||not null|
C|bigint|||7
d|timestamp with time zone|||
Indexes:
    \"Cat_pkey\" PRIMARY KEY, btree (a DESC, b)
    \"cat_c\" UNIQUE, btree (\"C\", d DESC)"
expect "$(describe '\d cat_c')" "Index \"public.cat_c\"
Column|Type|Key?|Definition
C|bigint|yes|\"C\"
d|timestamp with time zone|yes|d
unique, btree, for table \"public.Cat\""
expect "$(list '\di')" "public|Cat_pkey|index|perigee|Cat
public|cat_c|index|perigee|Cat
public|n_pkey|index|perigee|n
public|p_pkey|index|perigee|p"
expect "$(list '\l' | cut -d'|' -f1-3)" "perigee|perigee|UTF8"
expect "$(list '\dn')" "public|perigee"
for command in '\d+ "Cat"' '\dt+' '\di+' '\l+' '\dn+' '\dv' '\ds' '\du' '\df' '\d p' '\dx' '\db'; do
    out=$(describe "$command") || { echo "$command fails: $out"; exit 1; }
    case $out in *ERROR*) echo "$command: $out"; exit 1 ;; esac
done
expect "$(ask "SELECT 'p'::regclass::oid = oid, oid::regclass FROM pg_class WHERE relname = 'p'")" "t|p"
ask 'DROP TABLE "Cat"'
echo "psql: passed"
