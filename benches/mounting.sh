#!/usr/bin/env bash
# How long a pool takes to be imported with so many datasets, all mounted, and what its service has then:
#
#   PATH=target/release:$PATH benches/mounting.sh DATASETS...
#
# As root. Each number has a pool of its own, which is imported three times.
set -euo pipefail
scratch=$(mktemp -d)
export CENOTE_RUN=$scratch/run CENOTE_STATE=$scratch/state CENOTE_RESTART=0
mkdir "$CENOTE_RUN" "$CENOTE_STATE"
trap 'pool destroy -f bench-mounting >/dev/null 2>&1; rm -rf "$scratch"' EXIT

# What the kernel says of the service: one line of its status.
service() {
  awk -v key="$1:" '$1 == key { print $2 }' "/proc/$(pgrep -f 'pool service bench-mounting' | head -1)/status"
}

for datasets in "$@"; do
  pool create -f -m "$scratch/mounted" bench-mounting "4G:$scratch/image"
  # Two levels, so that no list of names is long.
  for ((group = 0; group * 100 < datasets; group++)); do
    fs create "bench-mounting/$group"
    for ((number = 1; number < 100 && group * 100 + number < datasets; number++)); do
      fs create "bench-mounting/$group/$number"
    done
  done
  for _ in 1 2 3; do
    pool export bench-mounting
    from=$(date +%s%N)
    pool import -d "$scratch" bench-mounting
    took=$((($(date +%s%N) - from) / 1000000))
    mounts=$(grep -c " $scratch/mounted" /proc/self/mountinfo)
    idle=$(service Threads)
    find "$scratch/mounted" -maxdepth 2 -type d -exec touch {}/used \;
    printf '%s datasets: %s mounted in %s ms, %s threads, %s when all were used, %s MiB at most\n' \
      "$datasets" "$mounts" "$took" "$idle" "$(service Threads)" "$(($(service VmHWM) / 1024))"
  done
  from=$(date +%s%N)
  pool destroy -f bench-mounting
  rm "$scratch/image"
  echo "$datasets datasets: unmounted and destroyed in $((($(date +%s%N) - from) / 1000000)) ms"
done
