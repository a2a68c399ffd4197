#!/usr/bin/env python3
"""What a pool is worth on an image file and on a loop device, as root: `benches/devices.py RUNS FOLDER PROGRAMS...`

Makes a pool of one device of each kind in turn, mounts it, and times four things, each kind once a run, so that whatever
else the machine does falls on all alike: writing a large file and having it stored, reading it when nobody has it in
memory, changing 4 KiB of it at a time durably, and writing many small files. Prints medians, and ratios to the first line.

Kinds: an image file; a loop device over one; and a loop device that opens its file with O_DIRECT (losetup --direct-io).
FOLDER is where the images lie. PROGRAMS are folders with `pool` and `fs`, such as target/release: with several, each kind
is measured with those of each.
"""

import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

LARGE, CHANGES, FILES = 192 << 20, 400, 3000
RUNS, FOLDER, PROGRAMS = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
NOISE = random.Random(7).randbytes(1 << 20)


def run(*words, **more):
    subprocess.run(words, check=True, **more)


def forget():
    run("sync")
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3\n")


def write_large(folder):
    with open(f"{folder}/large", "wb", buffering=0) as file:
        for _ in range(LARGE >> 20):
            file.write(NOISE)
        os.fsync(file.fileno())
    return LARGE / 2**20, "MiB/s"


def read_large(folder):
    with open(f"{folder}/large", "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
    return LARGE / 2**20, "MiB/s"


def change(folder):
    places = random.Random(9)
    file = os.open(f"{folder}/large", os.O_WRONLY)
    for _ in range(CHANGES):
        os.pwrite(file, NOISE[:4096], places.randrange(LARGE >> 12) << 12)
        os.fdatasync(file)
    os.close(file)
    return CHANGES, "/s"


def write_small(folder):
    os.mkdir(f"{folder}/small")
    for number in range(FILES):
        with open(f"{folder}/small/{number}", "wb") as file:
            file.write(NOISE[number:number + 4096])
    place = os.open(folder, os.O_RDONLY)
    os.fsync(place)
    os.close(place)
    return FILES, "/s"


STEPS = [("sequential write", write_large), ("sequential read", read_large), ("4 KiB sync writes", change),
         ("small files", write_small)]


def measure(kind, programs):
    place = tempfile.mkdtemp(prefix="cenote-devices-", dir=FOLDER)
    environment = {**os.environ, "CENOTE_STATE": f"{place}/state", "CENOTE_RUN": f"{place}/run"}
    pool = lambda *words: run(f"{programs}/pool", *words, env=environment)
    image, device, found = f"{place}/image", None, {}
    try:
        with open(image, "wb") as file:
            file.truncate(2 << 30)
        name = image
        if kind != "image file":
            direct = "on" if kind.endswith("direct-io") else "off"
            words = ["losetup", "--find", "--show", f"--direct-io={direct}", image]
            name = device = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
        pool("create", "-f", "-O", "compression=off", "-m", f"{place}/mnt", "tank", name)
        pool("set", "cache_size=32M", "tank")
        for title, step in STEPS:
            if step is read_large:
                pool("export", "tank")
                forget()
                pool("import", "-d", name, "tank")
            begun = time.monotonic()
            amount, unit = step(f"{place}/mnt")
            if step is write_small:
                pool("sync", "tank")
            found[f"{title}, {unit}"] = amount / (time.monotonic() - begun)
        pool("destroy", "tank")
    finally:
        # It is exported already unless something has failed.
        subprocess.run([f"{programs}/pool", "export", "--abandon", "tank"], env=environment, capture_output=True)
        if device:
            run("losetup", "--detach", device)
        shutil.rmtree(place, ignore_errors=True)
    return found


def main():
    kinds = [(kind, programs) for kind in ("image file", "loop device", "loop device, direct-io") for programs in PROGRAMS]
    found = {kind: [] for kind in kinds}
    for number in range(RUNS):
        for kind in kinds:
            found[kind].append(measure(*kind))
            print(f"run {number + 1}: {kind}: {found[kind][-1]}", file=sys.stderr, flush=True)
    titles = list(found[kinds[0]][0])
    print("| |", " | ".join(titles), "|\n| --- |", " | ".join("---:" for _ in titles), "|")
    median = lambda kind, title: statistics.median(one[title] for one in found[kind])
    for kind in kinds:
        cells = [f"{median(kind, t):.0f} ({median(kind, t) / median(kinds[0], t):.2f})" for t in titles]
        print(f"| {kind[0]}{', ' + kind[1] if len(PROGRAMS) > 1 else ''} |", " | ".join(cells), "|")


main()
