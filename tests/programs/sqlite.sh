# SQLite: several processes write and read a database at once, with every kind of journal; one is killed in a transaction.

readonly WRITERS=4 ACCOUNTS=1000 BALANCE=100

run_sqlite() {
  from_apt sqlite3 sqlite3
  open_pool
  local mode
  for mode in delete truncate persist wal; do
    sqlite_journal "$mode" "$mounted/$mode.db"
  done
  reopen_pool
  for mode in delete truncate persist wal; do
    same "sqlite, $mode, after a remount" ok "$(sqlite "$mounted/$mode.db" 'pragma integrity_check')"
  done
  close_pool
}

# Runs statements as a process of its own, which waits for others.
sqlite() {
  sqlite3 -bail -batch -cmd '.timeout 60000' "$1" "$2" 2>&1 || true
}

sqlite_journal() {
  local mode=$1 database=$2 transfers number lane lanes=() total=$((ACCOUNTS * BALANCE)) seen reads=0
  transfers=$(dose 100 2000)
  same "sqlite, $mode" "$mode" "$(sqlite "$database" "pragma journal_mode=$mode;
    create table account (id integer primary key, balance integer, pad blob);
    create table entry (writer integer, number integer, primary key (writer, number));
    with recursive n (id) as (select 1 union all select id + 1 from n where id < $ACCOUNTS)
      insert into account select id, $BALANCE, randomblob(400) from n;")"
  for number in $(seq "$WRITERS"); do
    sqlite_transfers "$number" "$transfers" | sqlite3 -bail -batch "$database" >"$LOGS/sqlite-$mode-$number.log" 2>&1 &
    lanes+=($!)
  done
  # Whoever reads meanwhile finds no transfer half done.
  while kill -0 "${lanes[@]}" 2>/dev/null; do
    seen=$(sqlite "$database" 'select sum(balance) from account')
    [ "$seen" = "$total" ] || finding "sqlite, $mode: a reader saw $seen of $total"
    reads=$((reads + 1))
  done
  for lane in "${lanes[@]}"; do
    wait "$lane" || finding "sqlite, $mode: a writer, $(cat "$LOGS/sqlite-$mode"-*.log)"
  done
  sqlite_killed "$database"
  same "sqlite, $mode: what is there" "$total|$((WRITERS * transfers))|ok" \
    "$(sqlite "$database" 'select (select sum(balance) from account), (select count(*) from entry), integrity_check
      from pragma_integrity_check')"
  same "sqlite, $mode: vacuum" ok "$(sqlite "$database" 'vacuum; pragma integrity_check')"
  echo "sqlite, $mode: $((WRITERS * transfers)) transactions, $reads reads"
}

# The statements of one writer. The database is mapped, as far as SQLite maps one.
sqlite_transfers() {
  printf '%s\n' '.timeout 60000' 'pragma synchronous=full;' 'pragma mmap_size=268435456;'
  awk -v writer="$1" -v transfers="$2" -v accounts="$ACCOUNTS" 'BEGIN {
    for (n = 1; n <= transfers; n++) {
      print "begin immediate;"
      printf "update account set balance = balance - 1 where id = %d;\n", (n * 7 + writer * 13) % accounts + 1
      printf "update account set balance = balance + 1 where id = %d;\n", (n * 11 + writer * 17) % accounts + 1
      printf "insert into entry values (%d, %d);\n", writer, n
      print "commit;"
    }
  }'
}

# A process that has written to the file, because its cache is small, and kills itself before it commits.
sqlite_killed() {
  local code=0
  (
    printf '%s\n' 'begin immediate;' 'update account set balance = 0, pad = randomblob(400);' ".shell kill -9 \$PPID" |
      sqlite3 -bail -batch -cmd '.timeout 60000' -cmd 'pragma cache_size=5' "$1"
  ) >/dev/null 2>&1 || code=$?
  same 'sqlite: how the killed process ended' 137 "$code"
}
