# Sourced by the scripts that run suites of the server, with $here set: $mtr_dir, the server's mysql-test directory (or MTR_DIR),
# and $plugin, the directory of ha_perigee.so (PERIGEE_PLUGIN_DIR, or the build for the installed server).
mtr_dir=${MTR_DIR:-/usr/share/mysql/mysql-test}
[ -d "$mtr_dir" ] || mtr_dir=/usr/share/mariadb/mariadb-test
version=$(PATH=$PATH:/usr/sbin mariadbd --no-defaults --version | sed -n 's/.*Ver \([0-9]*\.[0-9]*\.[0-9]*\).*/\1/p')
plugin=${PERIGEE_PLUGIN_DIR:-$here/../build/$version/plugin-dir}
[ -e "$plugin/ha_perigee.so" ] || { echo "no $plugin/ha_perigee.so; run plugins/mariadb/build.sh" >&2; exit 2; }
plugin=$(cd "$plugin" && pwd)
