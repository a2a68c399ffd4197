# PostgreSQL: a benchmark runs, and beside it a client that notes what was acknowledged to it. The server is killed, or the
# service below it, and recovers by itself: nothing acknowledged is gone, the books balance, every index agrees.

run_postgresql() {
  from_apt postgresql '/usr/lib/postgresql/*/bin/initdb'
  open_pool
  local round kind
  postgresql_programs=$(dirname "$(compgen -G '/usr/lib/postgresql/*/bin/initdb' | sort -V | tail -1)")
  postgresql_home=$mounted/postgresql acknowledged=$LOGS/postgresql-acknowledged
  mkdir "$postgresql_home"
  if [ "$(id -u)" = 0 ]; then
    chown daemon "$postgresql_home"
  fi
  postgresql initdb -D data -k -U owner -A trust >"$LOGS/initdb.log" 2>&1 || fail "initdb: $(tail -5 "$LOGS/initdb.log")"
  postgresql_start
  postgresql pgbench -i -q -s "$(dose 3 50)" >"$LOGS/pgbench.log" 2>&1 || finding "pgbench -i: $(tail -5 "$LOGS/pgbench.log")"
  postgresql_query 'create table ledger (number integer primary key)' >/dev/null
  for round in $(seq "$(dose 2 10)"); do
    for kind in server service; do
      [ "$kind" = server ] || [ -z "$folder" ] || continue
      postgresql_round "$kind" "$round"
    done
  done
  postgresql_query 'vacuum full' >/dev/null
  postgresql_query 'reindex database postgres' >/dev/null
  local before
  before=$(postgresql pg_dump | postgresql_digest)
  postgresql_stop
  postgresql pg_checksums --check -D data >"$LOGS/pg_checksums.log" 2>&1 || finding "pg_checksums: $(tail -3 "$LOGS/pg_checksums.log")"
  reopen_pool
  postgresql_start
  same 'postgresql: a dump after a remount' "$before" "$(postgresql pg_dump | postgresql_digest)"
  postgresql_stop
  close_pool
}

# Runs one of its programs in its home, as a user who may: the server refuses to be root's.
postgresql() {
  local program=$1
  shift
  local as=()
  [ "$(id -u)" != 0 ] || as=(setpriv --reuid daemon --regid "$(id -g daemon)" --clear-groups)
  (cd "$postgresql_home" && exec "${as[@]}" env HOME="$postgresql_home" PGHOST="$postgresql_home" PGUSER=owner \
    PGDATABASE=postgres LC_ALL=C.UTF-8 "$postgresql_programs/$program" "$@")
}

postgresql_start() {
  # What it says of a server that was there before is no finding.
  postgresql pg_ctl start -s -w -t 120 -D data -l server.log 2>"$LOGS/pg_ctl.log" -o "-c listen_addresses='' -c unix_socket_directories=.." ||
    fail "postgresql does not start: $(tail -20 "$postgresql_home/server.log")"
  postgresql_server=$(head -1 "$postgresql_home/data/postmaster.pid")
}

postgresql_stop() {
  postgresql pg_ctl stop -s -w -m fast -D data
  postgresql_server=''
}

postgresql_query() {
  postgresql psql -X -q -A -t -v ON_ERROR_STOP=1 -c "$1"
}

# Newer versions write a random word into each dump.
postgresql_digest() {
  grep -vE '^\\(un)?restrict ' | sha256sum
}

# Works for some seconds, has the server or the service killed meanwhile, and judges what is there after the recovery.
postgresql_round() {
  local kind=$1 round=$2 clients last next count
  next=$(($(postgresql_query 'select count(*) from ledger') + 1))
  : >"$acknowledged"
  # Both end when the server does.
  { postgresql pgbench -n -c 4 -j 2 -T 600 || true; } >"$LOGS/pgbench.log" 2>&1 &
  clients=($!)
  { seq -f 'insert into ledger values (%.0f) returning number;' "$next" 1000000000 |
    postgresql psql -X -q -A -t -v ON_ERROR_STOP=1 || true; } >"$acknowledged" 2>/dev/null &
  clients+=($!)
  sleep "$(dose 3 20)"
  if [ "$kind" = service ]; then
    kill_service
  fi
  postgresql_kill
  wait "${clients[@]}" 2>/dev/null || true
  if [ "$kind" = service ]; then
    await_service
  fi
  postgresql_start
  # The last line may have been cut off.
  last=$(awk 'END { if (!/\n$/) print }' "$acknowledged" | grep -E '^[0-9]+$' || echo $((next - 1)))
  count=$(postgresql_query 'select count(*) from ledger where number <= (select max(number) from ledger)')
  [ "$last" -ge "$next" ] || finding "postgresql, $kind killed, round $round: nothing was acknowledged"
  { [ "$count" -ge "$last" ] && [ "$count" -le $((last + 1)) ]; } ||
    finding "postgresql, $kind killed, round $round: $count are there, $last were acknowledged"
  same "postgresql, $kind killed, round $round: the books" t "$(postgresql_query 'select
    (select sum(abalance) from pgbench_accounts) = (select coalesce(sum(delta), 0) from pgbench_history)
    and (select sum(bbalance) from pgbench_branches) = (select coalesce(sum(delta), 0) from pgbench_history)
    and (select sum(tbalance) from pgbench_tellers) = (select coalesce(sum(delta), 0) from pgbench_history)')"
  if [ -x "$postgresql_programs/pg_amcheck" ]; then
    postgresql pg_amcheck --install-missing --heapallindexed --all >"$LOGS/pg_amcheck.log" 2>&1 ||
      finding "pg_amcheck: $(head -5 "$LOGS/pg_amcheck.log")"
  fi
  echo "postgresql, $kind killed: $((last - next + 1)) acknowledged," \
    "$(postgresql_query 'select count(*) from pgbench_history') transactions of pgbench so far"
}

# Kills the server with all its processes at one go. Its number was noted while the mount still answered.
postgresql_kill() {
  local processes
  processes=("$postgresql_server" $(pgrep -P "$postgresql_server" || true))
  kill -9 "${processes[@]}" 2>/dev/null || true
  while kill -0 "${processes[@]}" 2>/dev/null; do sleep 0.05; done
}
