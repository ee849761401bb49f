#!/bin/sh
# Runs MariaDB's engines/iuds and engines/funcs with InnoDB and with PERIGEE as the default engine and prints the tests
# that differ: suites.sh [iuds|funcs] [TEST...]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/suite_paths.sh"
work=${WORK:-/tmp/perigee_suites}
suites=${1:-"iuds funcs"}
[ $# -gt 0 ] && shift
status=0
for suite in $suites; do
  for engine in innodb perigee; do
    view=$work/$engine/$suite
    rm -rf "$view"
    mkdir -p "$work/$engine"
    cp -r "$mtr_dir/suite/engines/$suite" "$view"
    # A server that installs its system tables has no plugin: the engine is an option of the tests only.
    if [ "$engine" = perigee ]; then
      printf '[perigee]\nplugin-dir=%s\nplugin-load-add=ha_perigee.so\ndefault-storage-engine=PERIGEE\npartition\n' "$plugin" > "$view/combinations"
    else
      printf '[innodb]\ninnodb\ndefault-storage-engine=InnoDB\npartition\n' > "$view/combinations"
    fi
    log=$work/$suite.$engine.log
    (cd "$mtr_dir" && perl ./mtr --vardir="$work/var_$engine" --suite="$view" --force --max-test-fail=0 --retry=0 --parallel=2 \
      --testcase-timeout=5 "$@") > "$log" 2>&1 || true
    # A test runs once for each of its combinations: mix, row, stmt, and the engine.
    awk -v prefix="$view." -v engine="$engine" '
      index($0, prefix) == 1 && match($0, /\[ (pass|fail|skipped|disabled) \]/) {
        result = substr($0, RSTART + 2, RLENGTH - 4)
        name = substr($1, length(prefix) + 1)
        if (sub(/^'"'"'/, "", $2)) {
          sub(/'"'"'$/, "", $2)
          count = split($2, words, ",")
          for (i = 1; i <= count; i++) if (words[i] != engine) name = name "," words[i]
        }
        print name, result
      }' "$log" | sort -u > "$work/$suite.$engine.results"
    echo "engines/$suite with $engine: $(grep -c ' pass$' "$work/$suite.$engine.results" || true) pass, $(grep -c ' fail$' "$work/$suite.$engine.results" || true) fail, $(grep -c ' \(skipped\|disabled\)$' "$work/$suite.$engine.results" || true) skipped or disabled"
  done
  join -j 1 "$work/$suite.innodb.results" "$work/$suite.perigee.results" | awk '$2 != $3 {print "  " $1 ": InnoDB " $2 ", PERIGEE " $3}' > "$work/$suite.differences"
  cat "$work/$suite.differences"
  grep -q 'InnoDB pass, PERIGEE fail' "$work/$suite.differences" && status=1
done
echo "logs: $work"
exit $status
