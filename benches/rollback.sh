#!/usr/bin/env bash
# How long a rollback takes while the kernel holds so many files, of which ten differ:
#
#   PATH=target/release:$PATH benches/rollback.sh FILES...
#
# As root. Each number has a file system of its own, and is measured three times.
set -euo pipefail
scratch=$(mktemp -d)
export CENOTE_RUN=$scratch/run CENOTE_STATE=$scratch/state
mkdir "$CENOTE_RUN" "$CENOTE_STATE"
trap 'pool destroy -f bench-rollback >/dev/null 2>&1; rm -rf "$scratch"' EXIT
pool create -m "$scratch/mounted" bench-rollback "8G:$scratch/image"
fs set atime=off bench-rollback
for files in "$@"; do
  place=$scratch/mounted/$files
  fs create "bench-rollback/$files"
  python3 - "$place" "$files" <<'END'
import os, sys
place, files = sys.argv[1], int(sys.argv[2])
for file in range(files):
    folder = f"{place}/{file // 1000}"
    if file % 1000 == 0:
        os.mkdir(folder)
    open(f"{folder}/{file}", "w").close()
END
  fs snapshot "bench-rollback/$files@before"
  for _ in 1 2 3; do
    # The kernel holds them all from then on.
    find "$place" -type f -printf '%s\n' >/dev/null
    for file in {0..9}; do echo changed >"$place/0/$file"; done
    pool sync bench-rollback
    from=$(date +%s%N)
    fs rollback "bench-rollback/$files@before"
    echo "$files files: $((($(date +%s%N) - from) / 1000000)) ms"
  done
done
