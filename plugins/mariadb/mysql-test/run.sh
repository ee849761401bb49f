#!/bin/sh
# Runs the suites of the engine with mysql-test-run, outside of the server's tree.
#
#   run.sh [--engine perigee|innodb] [--record] [--plugin DIR] [--parallel N] [--asan] [TEST...]
#   run.sh --compare [TEST...]         runs the portable tests with InnoDB and with Perigee
#   run.sh --against innodb [TEST...]  the results of the portable tests are those of InnoDB of the same server, whose
#                                      differences from the recorded ones are listed: for other versions of the server
#
# portable/   runs with both engines; the results are recorded with InnoDB (--engine innodb --record) and reviewed
# perigee/    only for Perigee: options, and behaviour that legitimately differs from InnoDB (each test states why)
#
# --plugin DIR   directory that contains ha_perigee.so (default: the build of build.sh for the installed server)
# --asan         the build of build.sh --asan; an error of AddressSanitizer ends the server, so that the test fails
# MTR_DIR        mysql-test directory of the server (default: that of the package)
# MTR_VARDIR     directory for servers and logs (prefix; default: /tmp/perigee_mtr; no hyphens)
# MTR_ARGS       more arguments for mysql-test-run
set -eu

here=$(cd "$(dirname "$0")" && pwd)
engine=perigee
record=
plugin=
parallel=2
compare=0
asan=
against=
tests=
while [ $# -gt 0 ]; do
  case $1 in
    --engine) engine=$2; shift ;;
    --plugin) plugin=$2; shift ;;
    --parallel) parallel=$2; shift ;;
    --record) record=--record ;;
    --compare) compare=1 ;;
    --asan) asan=1 ;;
    --against) against=$2; shift; [ "$against" = innodb ] || { echo "--against $against: only innodb is known" >&2; exit 2; } ;;
    --help|-h) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    -*) echo "unknown option $1" >&2; exit 2 ;;
    *) tests="$tests $1" ;;
  esac
  shift
done

mtr_dir=${MTR_DIR:-/usr/share/mysql/mysql-test}
[ -d "$mtr_dir" ] || mtr_dir=/usr/share/mariadb/mariadb-test
[ -d "$mtr_dir" ] || { echo "no mysql-test directory; install mariadb-test and mariadb-test-data, or set MTR_DIR" >&2; exit 2; }

version=$(PATH=$PATH:/usr/sbin mariadbd --no-defaults --version | sed -n 's/.*Ver \([0-9]*\.[0-9]*\.[0-9]*\).*/\1/p')
sanitizer=
# Headers of the server poison memory that the server, which has no sanitizer, does not unpoison.
if [ -n "$asan" ]; then
  sanitizer="--mysqld-env=LD_PRELOAD=$(${CXX:-g++} -print-file-name=libasan.so) --mysqld-env=ASAN_OPTIONS=abort_on_error=1:detect_leaks=0:detect_odr_violation=0:handle_segv=0:allow_user_poisoning=0"
fi

# A directory with links to the server's plugins and to ours.
link_plugins() {
  [ -n "$plugin" ] || plugin=$here/../build/$version${asan:+-asan}/plugin-dir
  [ -e "$plugin/ha_perigee.so" ] || { echo "no $plugin/ha_perigee.so; run plugins/mariadb/build.sh${asan:+ --asan}" >&2; exit 2; }
  plugin=$(cd "$plugin" && pwd)
}


# Results of a suite in its view: those of the repository, or copies if they are changed.
link_results() {
  rm -rf "$view/r"
  if [ -n "$against" ] && [ "$suite" = portable ]; then
    if [ "$suite_engine" = innodb ]; then
      cp -r "$here/$suite/r" "$view/r"
    else
      ln -s "${MTR_VARDIR:-/tmp/perigee_mtr}_innodb_${suite}_suite/$suite/r" "$view/r"
    fi
  else
    ln -s "$here/$suite/r" "$view/r"
  fi
}

# run_suite ENGINE SUITE_NAME: prints the summary of mysql-test-run; its status is the result.
run_suite() {
  suite_engine=$1
  suite=$2
  # mysql-test-run takes a hyphen in a suite's path for an overlay.
  vardir=${MTR_VARDIR:-/tmp/perigee_mtr}_${suite_engine}_$suite
  view=${vardir}_suite/$suite
  mkdir -p "$view"
  for part in t include; do
    [ -e "$here/$suite/$part" ] || continue
    rm -f "$view/$part"
    ln -s "$here/$suite/$part" "$view/$part"
  done
  link_results
  # What is the default of 10.11.
  defaults="--character-set-server=latin1 --collation-server=latin1_swedish_ci --loose-innodb-snapshot-isolation=0 --loose-perigee-snapshot-isolation=0"
  case $suite_engine in
    innodb)
      echo "--partition --sequence --innodb --default-storage-engine=InnoDB $defaults" > "$view/suite.opt" ;;
    perigee)
      link_plugins
      echo "--plugin-dir=$plugin --plugin-load-add=ha_perigee.so --default-storage-engine=PERIGEE --loose-perigee-memory-budget=268435456 --innodb --partition --sequence $defaults" > "$view/suite.opt" ;;
    *) echo "unknown engine $suite_engine" >&2; exit 2 ;;
  esac
  # Server restarts in tests keep the plugin; a killed server must not leave a core file.
  selected=
  if [ -n "$tests" ]; then
    for test in $tests; do
      if [ -e "$here/$suite/t/$test.test" ]; then
        selected="$selected $test"
      fi
    done
    [ -n "$selected" ] || return 0
  elif [ -n "$record" ]; then # mysql-test-run records only tests that are named
    selected=$(cd "$here/$suite/t" && ls ./*.test | sed 's|^\./||; s|\.test$||')
  fi
  echo "== $suite tests with $suite_engine"
  status=0
  (cd "$mtr_dir" && MTR_BUILD_THREAD=${MTR_BUILD_THREAD:-auto} perl ./mtr --vardir="$vardir" --suite="$view" \
    --force --max-test-fail=0 --retry=0 --parallel="$parallel" --testcase-timeout=${asan:+2}5 \
    $record $sanitizer ${MTR_ARGS:-} $selected) \
    > "$vardir.log" 2>&1 || status=$?
  sed -n -e "s,^$view\.\(.*\[ \(fail\|skipped\|disabled\) \),\1,p" -e '/^Completed/p' "$vardir.log"
  if [ $status -ne 0 ]; then
    echo "log: $vardir.log"
  fi
  return $status
}

result=0
if [ $compare -eq 1 ]; then
  run_suite innodb portable || result=1
  run_suite perigee portable || result=1
elif [ -n "$against" ]; then
  record=--record
  run_suite innodb portable || result=1
  record=
  echo "results of InnoDB $version that differ from the recorded ones:"
  (cd "$view/r" && for file in *.result; do cmp -s "$file" "$here/portable/r/$file" || echo "  ${file%.result}"; done)
  run_suite perigee portable || result=1
  run_suite perigee perigee || result=1
else
  run_suite "$engine" portable || result=1
  if [ "$engine" = perigee ]; then
    run_suite perigee perigee || result=1
  fi
fi
exit $result
