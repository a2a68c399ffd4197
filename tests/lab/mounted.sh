# What the scripts that run programs on a mounted pool have in common; they source it, and set before:
#
#   POOL, SIZE   the pool's name and how large it is
#   INSTALLED    where crates' programs are installed
#   folder       a folder of another file system to work in instead of a pool, or nothing
#   properties   options of `pool create`
#
# Between open_pool and close_pool a pool is mounted on $mounted, with image, state and sockets in $place. Whoever sources
# this calls abandon_pool at exit: whatever happened, nothing stays mounted.

found=0

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

# Says that something was found, and goes on.
finding() {
  printf 'FOUND: %s\n' "$*" >&2
  found=3
}

# --- the pool ---

# Makes a pool that everybody may enter, mounted on $mounted, or takes the folder that was named.
open_pool() {
  if [ -n "$folder" ]; then
    mounted=$folder
    return
  fi
  make_place
  pool create "${properties[@]}" -m "$mounted" "$POOL" "$SIZE:$place/image"
}

# Makes the folder of images, state and sockets, in which a pool is to be mounted.
make_place() {
  place=$(mktemp -d "${TMPDIR:-/tmp}/cenote-$POOL-XXXXXX")
  chmod 755 "$place"
  export CENOTE_STATE=$place/state CENOTE_RUN=$place/run
  mounted=$place/mnt
}

# Closes the pool and has it checked. What a suite has left behind in it is found by the check too.
close_pool() {
  [ -z "$folder" ] || return 0
  pool export "$POOL"
  pool check -d "$place" "$POOL" || finding "pool check after $suite"
  rm -rf "$place"
  place=''
}

abandon_pool() {
  [ -n "${place-}" ] || return 0
  pool export --abandon "$POOL" >/dev/null 2>&1 || true
  umount -l "$mounted" 2>/dev/null || true
  rm -rf "$place"
}

# Exports the pool and imports it again, so that nothing is read from a cache.
reopen_pool() {
  [ -z "$folder" ] || return 0
  pool export "$POOL"
  pool import -d "$place" "$POOL"
}

# Kills the process that serves the pool, and waits until it is gone.
kill_service() {
  local process service=''
  for process in /proc/[0-9]*; do
    if [[ $(tr '\0' ' ' <"$process/cmdline" 2>/dev/null) = *"pool service $POOL "* ]] &&
      grep -qzFx "CENOTE_STATE=$CENOTE_STATE" "$process/environ" 2>/dev/null; then
      service=${process#/proc/}
    fi
  done
  [ -n "$service" ] || fail "$POOL has no service"
  kill -9 "$service"
  while kill -0 "$service" 2>/dev/null; do sleep 0.02; done
}

# Waits until the pool is served and mounted again, as its supervisor sees to. Each crash doubles the pause before, up to a
# minute. What the kernel knows of a dead mount it still says; only a request shows that an answer comes.
await_service() {
  local end=$((SECONDS + 120))
  until [[ $(stat -f -c %T "$mounted" 2>/dev/null) = *fuse* ]]; do
    [ "$SECONDS" -lt "$end" ] || fail "$POOL is not served again"
    sleep 0.1
  done
}

# --- the tools ---

# Installs a crate's program under its version, once.
from_cargo() {
  local name=$1 version=$2
  if [ ! -x "$INSTALLED/$name-$version/bin/$name" ]; then
    cargo install --quiet --locked --debug --root "$INSTALLED/$name-$version" --version "$version" "$name" ||
      fail "$name $version cannot be built"
  fi
  PATH=$INSTALLED/$name-$version/bin:$PATH
}

# Installs a package if a program or file of it is missing.
from_apt() {
  local package=$1 probe=$2
  command -v "$probe" >/dev/null || compgen -G "$probe" >/dev/null && return
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || fail "$package is needed"
  apt-get install -qqy "$package" >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get install -qqy "$package" >/dev/null; } || fail "$package cannot be installed"
}
