# What people copy with: rsync, tar and cp take a tree with everything that a file system has through all their ways, and
# what arrives is the same: bytes, holes, modes, owners, times, links, extended attributes and access control lists.

# How tar is to keep everything.
readonly TAR=(--xattrs --xattrs-include='*' --acls --sparse --numeric-owner --no-check-device)

run_rsync() {
  from_apt rsync rsync
  copies_open
  local home=$mounted/rsync there
  mkdir "$home"
  there=$(copies_elsewhere "$home")
  copies_plant "$home/planted"
  # Times to the nanosecond: by itself rsync takes those of one second for the same.
  local options=(-aHAXS --numeric-ids --modify-window=-1)
  rsync "${options[@]}" "$home/planted/" "$there/away/" || finding 'rsync off the mount'
  rsync "${options[@]}" "$there/away/" "$home/back/" || finding 'rsync onto the mount'
  same 'rsync: what is away' "$(copies_listing "$home/planted")" "$(copies_listing "$there/away")"
  same 'rsync: what came back' "$(copies_listing "$home/planted")" "$(copies_listing "$home/back")"
  copies_are_sparse rsync "$home/back"

  # What changes is brought over piece by piece, into the file as it is and into a new one beside it.
  copies_change "$home/planted"
  rsync "${options[@]/S/}" --delete --no-whole-file --inplace "$home/planted/" "$there/away/" || finding 'rsync --inplace off the mount'
  rsync "${options[@]}" --delete --no-whole-file "$there/away/" "$home/back/" || finding 'rsync --delete onto the mount'
  same 'rsync: what came back after changes' "$(copies_listing "$home/planted")" "$(copies_listing "$home/back")"
  reopen_pool
  same 'rsync: what it finds different after a remount' '' \
    "$(rsync "${options[@]}" --dry-run --itemize-changes --checksum --delete "$home/planted/" "$home/back/")"
  rm -rf "$there"
  close_pool
}

run_tar() {
  from_apt tar tar
  copies_open
  local home=$mounted/tar
  mkdir "$home" "$home/unpacked" "$home/increment"
  copies_plant "$home/planted"
  local options=("${TAR[@]}" --warning=no-timestamp)
  tar "${options[@]}" --listed-incremental="$home/state" -C "$home/planted" -cpf "$home/archive.tar" . 2>"$LOGS/tar.log" ||
    finding "tar: $(head -3 "$LOGS/tar.log")"
  tar "${options[@]}" -C "$home/unpacked" -xpf "$home/archive.tar" || finding 'tar -x'
  same 'tar: what was unpacked' "$(copies_listing "$home/planted")" "$(copies_listing "$home/unpacked")"
  copies_are_sparse tar "$home/unpacked"
  same 'tar --compare' '' "$(tar "${options[@]}" -C "$home/planted" --compare -f "$home/archive.tar" 2>&1)"

  # An increment holds what has changed, which tar tells by inode numbers and times.
  reopen_pool
  same 'tar: what an increment holds after a remount' '' "$(tar_increment "$home" unchanged)"
  copies_change "$home/planted"
  same 'tar: what an increment holds after changes' './folder/changed ./folder/large too ./large' \
    "$(tar_increment "$home" changed | sort | xargs)"
  tar "${options[@]}" --listed-incremental=/dev/null -C "$home/unpacked" -xpf "$home/changed.tar" || finding 'tar -x of an increment'
  same 'tar: what an increment leads to' "$(copies_listing "$home/planted")" "$(copies_listing "$home/unpacked")"
  close_pool
}

# Makes an archive of what changed since the first one, and lists its files.
tar_increment() {
  cp "$1/state" "$1/state-$2"
  tar "${TAR[@]}" --listed-incremental="$1/state-$2" -C "$1/planted" -cpf "$1/$2.tar" . 2>/dev/null
  tar -tf "$1/$2.tar" | grep -v '/$' || true
}

run_cp() {
  copies_open
  local home=$mounted/cp how
  mkdir "$home"
  copies_plant "$home/planted"
  for how in --reflink=auto --reflink=never '--sparse=always --reflink=never'; do
    rm -rf "$home/copy"
    # shellcheck disable=SC2086
    cp -a $how "$home/planted" "$home/copy" || finding "cp -a $how"
    same "cp -a $how" "$(copies_listing "$home/planted")" "$(copies_listing "$home/copy")"
    copies_are_sparse "cp -a $how" "$home/copy"
  done
  cp --sparse=never --reflink=never "$home/planted/sparse" "$home/filled"
  cmp "$home/planted/sparse" "$home/filled" || finding 'cp --sparse=never'
  mv "$home/copy" "$home/moved"
  same 'mv' "$(copies_listing "$home/planted")" "$(copies_listing "$home/moved")"
  reopen_pool
  same 'cp: after a remount' "$(copies_listing "$home/planted")" "$(copies_listing "$home/moved")"
  close_pool
}

# A pool with access control lists, and the programs that show them.
copies_open() {
  from_apt attr getfattr
  from_apt acl getfacl
  local properties=("${properties[@]}" -O acltype=posix)
  open_pool
}

# A folder outside of the mount that keeps what is to be copied, or else another one in it.
copies_elsewhere() {
  local elsewhere
  elsewhere=$(mktemp -d "${TMPDIR:-/tmp}/cenote-elsewhere-XXXXXX")
  if ! { setfacl -m u:1:r "$elsewhere" && setfattr -n user.test -v 1 "$elsewhere"; } 2>/dev/null; then
    rmdir "$elsewhere"
    elsewhere=$1/elsewhere
    mkdir "$elsewhere"
  fi
  echo "$elsewhere"
}

copies_plant() {
  local tree=$1 number long
  mkdir -p "$tree/folder/below" "$tree/empty" "$tree/sticky"
  for number in $(seq "$(dose 200 5000)"); do
    seq "$((number * 7 % 900))" >"$tree/folder/file-$number"
  done
  head -c 3000000 /dev/urandom >"$tree/large"
  truncate -s 40M "$tree/sparse"
  printf 'in the middle' | dd of="$tree/sparse" bs=1 seek=20000000 conv=notrunc status=none
  ln "$tree/large" "$tree/folder/large too"
  ln -s ../large "$tree/folder/link"
  ln -s nowhere "$tree/dangling"
  mkfifo -m 620 "$tree/pipe"
  printf -v long '%0255d' 0
  echo long >"$tree/$long"
  echo odd >"$tree/"$'odd \xff\n\\name'
  setfattr -n user.comment -v 'of a file' "$tree/large"
  setfattr -n user.binary -v 0x00ff00ff "$tree/folder"
  setfattr -n user.large -v "$(printf '%02000d' 7)" "$tree/folder/file-2"
  setfacl -m u:1:rw-,g:2:r-- "$tree/large"
  setfacl -m d:u:1:rwx,d:o::- "$tree/folder/below"
  echo inherits >"$tree/folder/below/file"
  chmod 1777 "$tree/sticky"
  if [ "$(id -u)" = 0 ]; then
    mknod "$tree/device" c 1 5
    chown 12345:54321 "$tree/folder/file-3"
    setfattr -n trusted.comment -v 'of root' "$tree/folder/file-4"
    # The capability to bind low ports, as programs that are packed for a system carry it.
    setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 "$tree/folder/file-5"
  fi
  chmod 4755 "$tree/folder/file-6"
  chmod 0400 "$tree/folder/file-7"
  touch -h -d '1969-12-31 12:00:00.123456789 UTC' "$tree/folder/file-8" "$tree/dangling"
  touch -d '2001-09-09 01:46:40.5 UTC' "$tree/empty" "$tree/folder"
}

# Bytes in the middle of a file, one that is new, and one that is gone.
copies_change() {
  printf 'changed' | dd of="$1/large" bs=1 seek=1234567 conv=notrunc status=none
  echo new >"$1/folder/changed"
  rm "$1/folder/file-10"
}

# Everything that must be the same.
copies_listing() {
  (
    cd "$1"
    find . -type d -printf '%p %y %m %U %G %T@\n' -o -printf '%p %y %m %U %G %T@ %s %n %l\n' | sort
    find . -type f -print0 | sort -z | xargs -0 cksum
    find . -print0 | sort -z | xargs -0 getfattr -h -d -m - -e hex
    find . ! -type l -print0 | sort -z | xargs -0 getfacl -n -p
  ) 2>&1
}

# The sparse file has its holes.
copies_are_sparse() {
  local allocated
  allocated=$(($(stat -c '%b * %B' "$2/sparse")))
  [ "$allocated" -lt 4000000 ] || finding "$1: a sparse file of 40 MB takes $allocated bytes"
}
