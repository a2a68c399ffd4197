# Another ZFS: zfs-fuse receives what `fs send --format zfs-fuse` writes, in full and as an increment, and what arrives is
# the same: bytes, holes, modes, owners, times, links, devices and extended attributes.

readonly ZFS_POOL=cenote_received

run_zfs() {
  # Not every distribution has zfs-fuse, and one that runs belongs to another user.
  if ! (from_apt zfs-fuse zfs-fuse); then
    echo 'skipped: zfs-fuse cannot be installed'
    return
  elif /usr/sbin/zpool list >/dev/null 2>&1; then
    echo 'skipped: zfs-fuse runs already'
    return
  fi
  copies_open
  zfs_start
  local home=$mounted/planted received
  copies_plant "$home"
  # The directories of zfs-fuse have a map of another form from 2048 names on.
  mkdir "$home/names"
  (cd "$home/names" && seq -f 'name-%06.0f' "$(dose 3000 60000)" | xargs touch -d '2011-01-01')
  fs snapshot "$POOL@first"
  fs send --format zfs-fuse "$POOL@first" | /usr/sbin/zfs receive "$ZFS_POOL/home" || finding 'zfs receive'
  received=$zfs_place/mnt/home/planted
  same 'zfs-fuse: what arrived' "$(zfs_listing "$home")" "$(zfs_listing "$received")"
  copies_are_sparse zfs-fuse "$received"

  copies_change "$home"
  rm "$home/names/name-00000"[1-9]
  head -c 200000 /dev/urandom >"$home/folder/file-9"
  truncate -s 3000 "$home/folder/large too"
  setfattr -x user.large "$home/folder/file-2"
  mv "$home/folder" "$home/moved"
  fs snapshot "$POOL@second"
  fs send --format zfs-fuse -i @first "$POOL@second" | /usr/sbin/zfs receive -F "$ZFS_POOL/home" || finding 'zfs receive of an increment'
  # The kernel has cached the attributes of the state before.
  /usr/sbin/zfs unmount "$ZFS_POOL/home" && /usr/sbin/zfs mount "$ZFS_POOL/home"
  same 'zfs-fuse: what arrived after changes' "$(zfs_listing "$home")" "$(zfs_listing "$received")"

  # What is received can be changed, and ZFS finds nothing wrong.
  rm -r "$received/names" "$received/moved"
  echo more >"$received/more"
  /usr/sbin/zpool scrub "$ZFS_POOL"
  while /usr/sbin/zpool status "$ZFS_POOL" | grep -q 'scrub in progress'; do sleep 0.2; done
  /usr/sbin/zpool status "$ZFS_POOL" | grep -q 'No known data errors' || finding 'zpool scrub'
  zfs_stop
  close_pool
}

# Everything that zfs-fuse keeps: access control lists are plain attributes there, which it hides.
zfs_listing() {
  (
    cd "$1"
    # zfs-fuse shows times in whole seconds.
    find . -type d -printf '%p %y %m %U %G %T@\n' -o -printf '%p %y %m %U %G %T@ %s %n %l\n' | sed -E 's/ (-?[0-9]+)\.[0-9]{10}/ \1/' | sort
    find . -type f -print0 | sort -z | xargs -0 cksum
    find . -type b -o -type c | sort | xargs stat -c '%n %t %T'
    find . ! -type l -print0 | sort -z | xargs -0 getfattr -h -d -m '^user\.' -e hex
  ) 2>&1
}

# Starts a zfs-fuse of our own, with a pool.
zfs_start() {
  zfs_place=$(mktemp -d "${TMPDIR:-/tmp}/cenote-zfs-XXXXXX")
  chmod 755 "$zfs_place"
  mkdir -p /run/zfs /etc/zfs
  setsid zfs-fuse --no-kstat-mount --enable-xattr -p "$zfs_place/pid" >"$LOGS/zfs-fuse.log" 2>&1
  for _ in $(seq 50); do
    ! /usr/sbin/zpool list >/dev/null 2>&1 || break
    sleep 0.1
  done
  truncate -s 2G "$zfs_place/image"
  /usr/sbin/zpool create -f -o cachefile=none -O atime=off -m "$zfs_place/mnt" "$ZFS_POOL" "$zfs_place/image"
}

zfs_stop() {
  [ -n "${zfs_place-}" ] || return 0
  /usr/sbin/zpool destroy -f "$ZFS_POOL" || true
  kill "$(cat "$zfs_place/pid")" || true
  rm -rf "$zfs_place"
  zfs_place=''
}
