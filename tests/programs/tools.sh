# Backup tools for ZFS, unmodified from their registries, with our `zfs` and `zpool` first in PATH. Each keeps one day of a
# dataset with two children. Every third hour files change, and the tool takes snapshots and replicates them to another pool
# over a connection like ssh's. Once the connection breaks in the middle of a stream, and the tool has to resume. At the end
# exactly the snapshots remain that the tool's rules keep, each with the content of its hour, and the tool restores the tree.
#
# The clock of the tests (clock.c) makes the hours pass, for the tools and for the services of the pools.

readonly BACKUP=programs_backup
readonly ZFS_AUTOBACKUP=3.3 PYZNAP=1.6.0
readonly DAY='2030-01-07 00:10 UTC'
readonly HOURS=(0 3 6 9 12 15 18 21 24)
# The hour with the broken connection, the random bytes that are new then, and how many of them pass before.
readonly BROKEN=9 NEW=8000000 PASSED=5000000
# Each dataset below POOL/work.
readonly KEPT=(home big)

run_sanoid() {
  from_apt sanoid syncoid
  tools_day sanoid
}

run_zfs-autobackup() {
  from_pypi zfs-autobackup "$ZFS_AUTOBACKUP"
  tools_day autobackup
}

run_pyznap() {
  from_pypi pyznap "$PYZNAP"
  tools_day pyznap
}

# --- one day ---

tools_day() {
  local tool=$1 hour kept
  if [ -n "$folder" ]; then
    echo 'skipped: it needs pools'
    return
  fi
  tools_open
  "${tool}_begin"
  for hour in "${HOURS[@]}"; do
    tools_clock $((hour * 60))
    tools_work "$hour"
    for kept in "${KEPT[@]}"; do
      copies_listing "$mounted/work/$kept" >"$place/$kept-$hour"
    done
    if [ "$hour" = "$BROKEN" ]; then
      tools_broken "$tool"
    else
      "${tool}_hour" || finding "$suite: hour $hour: $(tail -3 "$LOGS/$suite.log")"
    fi
  done
  # Half an hour later no snapshot is just at its age limit.
  tools_clock $((hour * 60 + 30))
  "${tool}_prune" || finding "$suite: pruning: $(tail -3 "$LOGS/$suite.log")"
  # Some tools receive without mounting.
  zfs mount -a
  for kept in "${KEPT[@]}"; do
    same "$suite: the backup of $kept" "$(<"$place/$kept-$hour")" "$(copies_listing "$place/backup/work/$kept")"
    tools_snapshots "$POOL/work/$kept" '' "$("${tool}_kept" source)"
    tools_snapshots "$BACKUP/work/$kept" "$place/backup/work/$kept" "$("${tool}_kept" target)"
  done
  # The source is lost. It is not destroyed, because the tool may hold snapshots.
  zfs rename "$POOL/work" "$POOL/lost"
  zfs create "$POOL/restored"
  "${tool}_restore" || finding "$suite: restoring: $(tail -3 "$LOGS/$suite.log")"
  zfs mount -a
  for kept in "${KEPT[@]}"; do
    same "$suite: what was restored of $kept" "$(<"$place/$kept-$hour")" "$(copies_listing "$mounted/restored/work/$kept")"
  done
  tools_close
}

# Changes files, once every three hours.
tools_work() {
  local hour=$1 home=$mounted/work/home big=$mounted/work/big new=40000
  [ "$hour" != "$BROKEN" ] || new=$NEW
  printf 'hour %s' "$hour" | dd of="$home/large" bs=1 seek=$((hour * 100000)) conv=notrunc status=none
  echo "$hour" >"$home/folder/hour-$hour"
  rm -f "$home/folder/file-$((hour + 20))"
  setfattr -n user.hour -v "$hour" "$home/folder/file-2"
  mv "$home/folder/below" "$home/folder/above" && mv "$home/folder/above" "$home/folder/below"
  head -c "$new" /dev/urandom >"$big/hour-$hour"
  # Changes count as written once they are committed, within seconds. Here the next hour comes sooner.
  zpool sync "$POOL"
}

# Breaks the connection, exports and imports the target, and lets the tool resume.
tools_broken() {
  local tool=$1 token bytes
  echo "$PASSED" >"$REMOTE/cut"
  if "${tool}_hour"; then finding "$suite: a broken connection is not noticed"; fi
  [ ! -e "$REMOTE/cut" ] || finding "$suite: the connection did not break"
  token=$(zfs get -H -o value receive_resume_token "$BACKUP/work/big")
  [ "$token" != - ] || finding "$suite: nothing of an interrupted receive is kept"
  zpool export "$BACKUP"
  zpool import -d "$place" "$BACKUP"
  : >"$REMOTE/received"
  tools_clock $((BROKEN * 60 + 10))
  "${tool}_again" || finding "$suite: resuming: $(tail -3 "$LOGS/$suite.log")"
  same "$suite: the token after resuming" - "$(zfs get -H -o value receive_resume_token "$BACKUP/work/big")"
  # At least three quarters of the bytes before the break are kept, and are not sent again.
  bytes=$(awk '/work\/big/ { sum += $1 } END { print sum + 0 }' "$REMOTE/received")
  if [ "$bytes" -lt $((NEW - PASSED)) ] || [ "$bytes" -gt $((NEW - PASSED * 3 / 4)) ]; then
    finding "$suite: $bytes bytes passed after $PASSED of $NEW"
  fi
}

# Compares a dataset's snapshots with a list of hours and kinds; of a mounted backup, each one with the content of its hour too.
tools_snapshots() {
  local dataset=$1 mount=$2 wanted=$3 snapshot digits names='' kept=${1##*/} hour
  # syncoid names its own snapshots after the host, and destroys all but the newest.
  for snapshot in $(zfs list -H -o name -s createtxg -t snapshot -d 1 "$dataset" | sed 's/.*@//' | grep -v '^syncoid_'); do
    digits=${snapshot//[^0-9]/}
    hour=$(((10#${digits:6:2} - 7) * 24 + 10#${digits:8:2}))
    case $snapshot in
      *_daily) names+=" ${hour}d" ;;
      *) names+=" $hour" ;;
    esac
    [ -z "$mount" ] || same "$suite: $dataset@$snapshot" "$(<"$place/$kept-$hour")" "$(copies_listing "$mount/.zfs/snapshot/$snapshot")"
  done
  # shellcheck disable=SC2086
  same "$suite: the snapshots of $dataset" "$(printf '%s\n' $wanted | sort -n | xargs)" "$(printf '%s\n' $names | sort -n | xargs)"
}

# --- the tools ---

sanoid_begin() {
  mkdir "$place/sanoid"
  cp /usr/share/sanoid/sanoid.defaults.conf "$place/sanoid"
  cat >"$place/sanoid/sanoid.conf" <<EOF
[$POOL/work]
recursive = yes
use_template = source
[$BACKUP/work]
recursive = yes
use_template = target
[template_source]
hourly = 6
daily = 2
monthly = 0
autosnap = yes
autoprune = yes
[template_target]
hourly = 3
daily = 1
monthly = 0
autosnap = no
autoprune = yes
EOF
}

sanoid_run() {
  tools_run sanoid --configdir "$place/sanoid" --cache-dir "$place/sanoid/cache" --run-dir "$place/sanoid/run" --verbose "$@"
}

sanoid_hour() {
  sanoid_run --cron && sanoid_again
}

sanoid_again() {
  tools_run syncoid --recursive "$POOL/work" "root@elsewhere:$BACKUP/work"
}

sanoid_prune() {
  local question
  sanoid_run --prune-snapshots --force-update
  # Monitoring systems ask these questions.
  for question in --monitor-health --monitor-capacity --monitor-snapshots; do
    tools_run sanoid --configdir "$place/sanoid" --cache-dir "$place/sanoid/cache" --run-dir "$place/sanoid/run" "$question" || return
  done
}

sanoid_kept() {
  case $1 in
    source) echo 9 12 15 18 21 24 0d 24d ;;
    target) echo 18 21 24 24d ;;
  esac
}

sanoid_restore() {
  tools_run syncoid --recursive --no-sync-snap "root@elsewhere:$BACKUP/work" "$POOL/restored/work"
}

autobackup_begin() {
  zfs set autobackup:day=true "$POOL/work"
}

autobackup_hour() {
  # Source and target are one machine here, and received datasets have the property too.
  tools_run zfs-autobackup --verbose --no-progress --exclude-received --ssh-target root@elsewhere --strip-path 1 \
    --keep-source 2,6h2d --keep-target 1,12h2d day "$BACKUP"
}

autobackup_again() {
  autobackup_hour
}

autobackup_prune() {
  autobackup_hour
}

autobackup_kept() {
  case $1 in
    source) echo 0 6 12 18 21 24 ;;
    target) echo 0 12 24 ;;
  esac
}

autobackup_restore() {
  zfs set autobackup:restore=true "$BACKUP/work" &&
    tools_run zfs-autobackup --verbose --no-progress --no-snapshot --other-snapshots --ssh-source root@elsewhere --strip-path 1 \
      restore "$POOL/restored"
}

pyznap_begin() {
  touch "$place/key"
  cat >"$place/pyznap.conf" <<EOF
[$POOL/work]
hourly = 6
daily = 2
snap = yes
clean = yes
dest = ssh:22:root@elsewhere:$BACKUP/work
dest_keys = $place/key
dest_auto_create = yes
resume = yes
[$BACKUP/work]
hourly = 3
daily = 1
clean = yes
EOF
}

# pyznap always exits with 0; its log says whether a step failed.
pyznap_run() {
  local before
  before=$(grep -c 'ERROR:' "$LOGS/$suite.log" || true)
  tools_run pyznap -v --config "$place/pyznap.conf" "$@" && [ "$before" = "$(grep -c 'ERROR:' "$LOGS/$suite.log" || true)" ]
}

pyznap_hour() {
  pyznap_run snap --take && pyznap_again
}

pyznap_again() {
  pyznap_run send
}

pyznap_prune() {
  pyznap_run snap --clean
}

# The plan of both tools is the same.
pyznap_kept() {
  sanoid_kept "$1"
}

pyznap_restore() {
  pyznap_run send -s "$BACKUP/work" -d "$POOL/restored/work" --dest-auto-create
}

# --- pools, clock, installation ---

# Two pools whose services go by the clock of the tests, and the names of ZFS in front of PATH.
tools_open() {
  from_apt attr getfattr
  from_apt acl getfacl
  local bin=$LOGS/names kept
  : >"$LOGS/$suite.log"
  make_place
  tools_clock_starts
  export CENOTE_RESTART=0 REMOTE=$place TZ=UTC
  # A command starts the program `pool` in its own folder as the service, in an environment without LD_PRELOAD. So `pool` is a
  # script here.
  mkdir -p "$bin"
  ln -f "$root/target/$profile/fs" "$bin/zfs"
  ln -f "$root/target/$profile/pool" "$bin/zpool"
  ln -sf "$here/remote" "$bin/ssh"
  printf '#!/bin/sh\nexec env %s "%s" "$@"\n' "${clock[*]}" "$root/target/$profile/pool" >"$bin/pool"
  chmod +x "$bin/pool"
  tools_path=$PATH
  PATH=$bin:$PATH
  zpool create "${properties[@]}" -O acltype=posix -m "$mounted" "$POOL" "$SIZE:$place/image"
  backup=$place/backup
  zpool create "${properties[@]}" -O acltype=posix -m "$backup" "$BACKUP" "$SIZE:$place/backup-image"
  zfs create "$POOL/work"
  for kept in "${KEPT[@]}"; do zfs create "$POOL/work/$kept"; done
  copies_plant "$mounted/planted"
  cp -a --sparse=always "$mounted/planted/." "$mounted/work/home"
}

tools_close() {
  zpool export "$BACKUP"
  pool check -d "$place" "$BACKUP" || finding "pool check of the backup after $suite"
  backup=''
  PATH=$tools_path
  close_pool
  unset CENOTE_RESTART TZ
}

tools_abandon() {
  [ -n "${backup-}" ] || return 0
  pool export --abandon "$BACKUP" >/dev/null 2>&1 || true
  umount -l "$backup" 2>/dev/null || true
}

tools_clock_starts() {
  cc -shared -fPIC -o "$LOGS/clock.so" "$here/clock.c" || fail 'a C compiler is needed'
  clock=("LD_PRELOAD=$LOGS/clock.so" "TEST_CLOCK=$place/clock")
  tools_clock 0
}

# Sets the clock to so many minutes after the start of the day. Time passes from there.
tools_clock() {
  printf '%d\n' $(($(date -d "$DAY" +%s) + $1 * 60 - $(date +%s))) >"$place/clock-next"
  mv "$place/clock-next" "$place/clock"
}

# Runs a tool by the clock of the tests.
tools_run() {
  env "${clock[@]}" "$@" >>"$LOGS/$suite.log" 2>&1
}

# Installs a version of a program of PyPI, once.
from_pypi() {
  local name=$1 version=$2 home=$LOGS/$1-$2
  if [ ! -x "$home/bin/$name" ]; then
    rm -rf "$home"
    # Debian's Python has this module in a package of its own.
    python3 -m venv "$home" >/dev/null 2>&1 || { from_apt python3-venv "$home/bin/pip" && python3 -m venv "$home" >/dev/null; }
    "$home/bin/pip" install --quiet --disable-pip-version-check "$name==$version" || fail "$name $version cannot be installed"
  fi
  PATH=$home/bin:$PATH
}
