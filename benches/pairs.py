#!/usr/bin/env python3
"""Find small differences between two versions of the programs: many short runs of both in turn.

  pairs.py PAIRS OLD NEW [--images DIR] [--only TEXT]

OLD and NEW are folders with `pool` and `fs`. Images go into DIR, by default /dev/shm. With --only just the rows that contain
TEXT are measured; some rows need the files of the row before.

Each pair makes two pools anew and runs each row on both, once in each order. A pair gives the time of OLD divided by that of
NEW: above 1, NEW is faster. Printed are the median of the pairs with the range that contains the true
median in 95 of 100 cases (from the order of the pairs, without assumptions about the noise), and the same for the CPU time of
the service alone, which other programs on the machine disturb less. Root only.
"""

import argparse
import math
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

CPUS = sorted(os.sched_getaffinity(0))
FILES = 2000
BLOCK = os.urandom(1 << 20)
SMALL = BLOCK[:512]


class Pool:
    """A mounted pool of one version of the programs."""

    def __init__(self, programs, scratch, images, name):
        self.pool = str(Path(programs).resolve() / "pool")
        self.name, self.mount = name, scratch / name
        self.image = images / f"cenote-pairs-{name}-{os.getpid()}.img"
        self.env = os.environ | {f"CENOTE_{kind}": str(scratch / f"{name}-{kind}") for kind in ("STATE", "RUN", "CONFIG")}
        with open(self.image, "wb") as image:
            image.truncate(2 << 30)
        self.run("create", "-f", "-m", str(self.mount), name, str(self.image))
        self.service = self.find_service()
        # The client has the first CPU, and the services have the others: else the scheduler decides anew in each run whether
        # an answer wakes another CPU, which costs far more than what is measured here.
        for task in Path(f"/proc/{self.service}/task").iterdir():
            os.sched_setaffinity(int(task.name), CPUS[1:])

    def run(self, *words):
        subprocess.run([self.pool, *words], env=self.env, check=True, stdout=subprocess.DEVNULL)

    def find_service(self):
        """The process that holds the image open."""
        image = self.image.resolve()
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    if any(Path(os.readlink(fd)) == image for fd in (process / "fd").iterdir()):
                        return process.name
                except OSError:
                    continue
        raise SystemExit(f"no service of {self.name}")

    def cpu(self):
        """Nanoseconds on a CPU, of all threads that live."""
        total = 0
        for task in Path(f"/proc/{self.service}/task").iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except OSError:
                continue
        return total / 1e9

    def end(self):
        self.run("destroy", "-f", self.name)
        self.image.unlink()


def create(pool):
    for number in range(FILES):
        with open(pool.mount / f"f{number}", "wb", buffering=0) as file:
            file.write(SMALL)


def stat(pool):
    for _ in range(3):
        drop_names(pool)
        for number in range(FILES):
            os.stat(pool.mount / f"f{number}")


def drop_names(pool):
    Path("/proc/sys/vm/drop_caches").write_text("2")


def unlink(pool):
    for number in range(FILES):
        os.unlink(pool.mount / f"f{number}")


def write(pool):
    with open(pool.mount / "large", "wb", buffering=0) as file:
        for _ in range(64):
            file.write(BLOCK)
        os.fsync(file.fileno())


def read(pool):
    with open(pool.mount / "large", "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while file.read(1 << 20):
            pass


def read_random(pool):
    with open(pool.mount / "large", "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for number in range(4000):
            os.pread(file.fileno(), 4096, number * 7919 % (64 << 8) << 12)


def fsyncs(pool):
    with open(pool.mount / "log", "wb", buffering=0) as file:
        for _ in range(300):
            file.write(BLOCK[:4096])
            os.fsync(file.fileno())


ROWS = {
    f"create {FILES} files of 512 bytes": create,
    "stat of them, three times, names dropped": stat,
    "unlink them": unlink,
    "write 64 MiB, fsync": write,
    "read 64 MiB, page cache dropped": read,
    "4,000 random reads of 4 KiB": read_random,
    "300 writes of 4 KiB, an fsync each": fsyncs,
}


def measure(pools, rows):
    """The ratios of time and CPU time of each row, from one run in each order: the first of two runs is often the slower."""
    ratios = {row: [1, 1] for row in rows}
    for order in pools, pools[::-1]:
        for row, work in rows.items():
            took = {}
            for pool in order:
                began, cpu = time.perf_counter(), pool.cpu()
                work(pool)
                took[pool.name] = time.perf_counter() - began, pool.cpu() - cpu
                pool.run("sync", pool.name)
            for at in 0, 1:
                ratios[row][at] *= math.sqrt(took["old"][at] / took["new"][at])
    return ratios


def interval(values):
    """The median, and the order statistics around it at 95 %."""
    values, count = sorted(values), len(values)
    reach = 0.98 * math.sqrt(count)
    low, high = max(0, math.floor(count / 2 - reach)), min(count - 1, math.ceil(count / 2 + reach))
    return statistics.median(values), values[low], values[high]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=int)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--images", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    os.sched_setaffinity(0, CPUS[:1])
    rows = {row: work for row, work in ROWS.items() if args.only in row}
    ratios = {row: ([], []) for row in rows}
    for number in range(args.pairs):
        with tempfile.TemporaryDirectory(prefix="cenote-pairs-") as scratch:
            # The pool that is made first writes about 1 % faster.
            versions = [("old", args.old), ("new", args.new)][:: 1 if number % 2 else -1]
            pools = [Pool(programs, Path(scratch), args.images, name) for name, programs in versions]
            try:
                for row, both in measure(pools, rows).items():
                    for at, ratio in enumerate(both):
                        ratios[row][at].append(ratio)
            finally:
                for pool in pools:
                    pool.end()
    print(f"old/new, {args.pairs} pairs: median (95 % range of the median)")
    print(f"{'':42} {'time':>22} {'CPU of the service':>22}")
    for row, both in ratios.items():
        print(f"{row:42} " + " ".join("{:8.3f} ({:.3f}-{:.3f})".format(*interval(values)) for values in both))


main()
