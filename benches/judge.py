#!/usr/bin/env python3
"""Judge whether a change made anything slower: old and new programs, side by side, row by row.

fsbench measures three file systems in one interleaved run: `old` and `control` are both the programs before the change,
`new` is the programs after it. Each repeat gives one pair new/old and one pair control/old. The control says how far two
runs of the same programs differ on this machine.

  slower    the median of new/old is below 0.97 and below every pair of the control
  unclear   the control itself spreads by more than 3 %, so time cannot tell: judge by requests or instructions
  too few   fewer than 7 pairs were measured, so the row is not judged
  ok        everything else

Exit status: 0 if every row is ok, 1 if a row is slower, 2 if rows are left unjudged.

  judge.py peers OLD NEW    print the peers-file; OLD and NEW are folders with the programs
  judge.py RESULT.json…     judge what fsbench wrote
"""

import json
import statistics
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

LEAST = 0.97
PAIRS = 7
SPREAD = 0.03
# For these units less is better; for all others more is.
DURATIONS = {"s", "ms", "us"}
# Keys of the table that are paths and not commands.
PATHS = {"path", "received"}
# Figures that are no speed.
NOT_SPEED = {"x", "bytes"}


def speeds(files):
    """Speed by row, and within it by repeat and file system: higher is better."""
    rows, runs = defaultdict(lambda: defaultdict(dict)), 0
    for file in files:
        for result in json.loads(Path(file).read_text())["results"]:
            value, unit = result.get("value"), result.get("unit")
            if "error" in result or not value or unit in NOT_SPEED:
                continue
            speed = 1 / value if unit in DURATIONS else value
            rows[result["row"]][runs, result["repeat"]][result["peer"]] = speed
        runs += 1
    return rows


def ratios(repeats, peer):
    """What `peer` reached as a share of `old`, in each repeat that has both."""
    return [row[peer] / row["old"] for row in repeats.values() if peer in row and "old" in row]


def verdict(new, control):
    if min(len(new), len(control)) < PAIRS:
        return "too few"
    if statistics.median(new) < min(LEAST, *control):
        return "slower"
    if max(abs(1 - ratio) for ratio in quartiles(control)) > SPREAD and statistics.median(new) < LEAST:
        return "unclear"
    return "ok"


def quartiles(ratios):
    first, _, third = statistics.quantiles(ratios, n=4)
    return first, third


def peers(old, new):
    """The table `cenote` of fsbench.toml three times, each with programs of its own first in PATH."""
    table = tomllib.loads(Path(__file__).with_name("fsbench.toml").read_text())["cenote"]
    for name, folder in (("old", old), ("control", old), ("new", new)):
        path = f"PATH={Path(folder).resolve()}:$PATH; "
        print(f"[{name}]\nneeds = []")
        for section, commands in (("", table), (f"[{name}.snap]", table["snap"])):
            print(section, end="\n" if section else "")
            for key, command in commands.items():
                if isinstance(command, str):
                    print(f"{key} = {json.dumps(command if key in PATHS else path + command)}")
        print()


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "peers":
        peers(*sys.argv[2:])
        return 0
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    verdicts = set()
    print(f"{'row':28} {'new/old':>8} {'control':>15} {'pairs':>5}  verdict")
    for row, repeats in speeds(sys.argv[1:]).items():
        new, control = ratios(repeats, "new"), ratios(repeats, "control")
        if not new:
            continue
        said = verdict(new, control)
        verdicts.add(said)
        span = f"{min(control):.3f}–{max(control):.3f}" if control else "-"
        print(f"{row:28} {statistics.median(new):8.3f} {span:>15} {len(new):5}  {said}")
    if "slower" in verdicts:
        return 1
    return 2 if verdicts & {"unclear", "too few"} else 0


if __name__ == "__main__":
    sys.exit(main())
