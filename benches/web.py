#!/usr/bin/env python3
"""Measures the web page with many datasets and snapshots.

    benches/web.py target/release/pool [--datasets 10000] [--snapshots 10] [--rounds 40] [--flat]

Makes a pool in a folder of its own in memory, with file systems 100 to a parent (or all below one with --flat) and
snapshots of all. Then asks for
each page on a new connection, and prints the time to the first byte and to the end of the document (p50 and p95, in
milliseconds, from the sent request, without TLS handshake and with it), the size of the document, the memory of the
web server and the traffic of an event stream. The pool is destroyed at the end.
"""

import argparse
import http.client
import os
import re
import shutil
import ssl
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor


class Lab:
    def __init__(self, program):
        self.folder = tempfile.mkdtemp(prefix="cenote-web-", dir="/dev/shm")
        self.program = os.path.abspath(program)
        place = lambda name: os.path.join(self.folder, name)
        self.environment = {
            **os.environ, "CENOTE_STATE": place("state"), "CENOTE_RUN": place("run"),
            "CENOTE_CONFIG": place("config"), "HOME": place("home"),
        }

    def run(self, program, *words):
        binary = os.path.join(os.path.dirname(self.program), program)
        done = subprocess.run([binary, *words], env=self.environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{program} {' '.join(words)}: {done.stderr}")
        return done.stdout

    def serve(self):
        words = [self.program, "web", "--listen", "127.0.0.1:0"]
        self.server = subprocess.Popen(words, env=self.environment, stdout=subprocess.PIPE, text=True)
        self.port = int(self.server.stdout.readline().strip().rstrip("/").rsplit(":", 1)[1])
        for line in self.server.stdout:
            if "pool web token" in line:
                return

    def memory(self, figure="VmRSS"):
        status = open(f"/proc/{self.server.pid}/status").read()
        return int(re.search(rf"{figure}:\s+(\d+)", status)[1]) / 1024

    def end(self):
        if hasattr(self, "server"):
            self.server.terminate()
            self.server.wait()
        subprocess.run([self.program, "destroy", "-f", "tank"], env=self.environment, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def connect(lab):
    context = ssl.create_default_context(cafile=os.path.join(lab.folder, "state/web/certificate.pem"))
    connection = http.client.HTTPSConnection("localhost", lab.port, context=context)
    connection.connect()
    return connection


def sign_in(lab):
    connection = connect(lab)
    token = lab.run("pool", "web", "token").strip()
    body, head = f"token={token}", {"Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/sign-in", body, head)
    return {"Cookie": connection.getresponse().getheader("Set-Cookie").split(";")[0]}


def ask(lab, cookie, path):
    begun = time.perf_counter()
    connection = connect(lab)
    sent = time.perf_counter()
    connection.request("GET", path, headers=cookie)
    answer = connection.getresponse()
    first = time.perf_counter()
    body = answer.read()
    end = time.perf_counter()
    connection.close()
    assert answer.status == 200, (path, answer.status, body[:500])
    return [1000 * span for span in (first - sent, end - sent, end - begun)], len(body)


def spread(values):
    values = sorted(values)
    return f"{statistics.median(values):.1f} / {values[int(len(values) * 0.95) - 1]:.1f}"


def make(lab, datasets, snapshots, flat):
    lab.run("pool", "create", "-m", "none", "tank", f"4G:{lab.folder}/tank.img")
    parents = range(2 if flat else datasets // 100)
    each = datasets if flat else 100
    with ThreadPoolExecutor(4) as workers:
        list(workers.map(lambda parent: lab.run("fs", "create", f"tank/p{parent:04}"), parents))
        below = parents[:1] if flat else parents
        names = (f"tank/p{parent:04}/d{child:02}" for parent in below for child in range(each - 1))
        list(workers.map(lambda name: lab.run("fs", "create", name), names))
    for number in range(snapshots):
        lab.run("fs", "snapshot", "-r", f"tank@daily-{number:02}")


def stream(lab, cookie, path, seconds):
    """The bytes of the first second of an event stream, and the bytes a second after that, without TLS."""
    connection = connect(lab)
    connection.request("GET", path, headers=cookie)
    socket, first, total, begun = connection.sock, 0, 0, time.time()
    socket.settimeout(0.2)
    while (passed := time.time() - begun) < seconds + 1:
        try:
            count = len(socket.recv(65536))
        except TimeoutError:
            continue
        first, total = (first + count, total) if passed < 0.9 else (first, total + count)
    return first, total / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--datasets", type=int, default=10_000)
    parser.add_argument("--snapshots", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--flat", action="store_true", help="all file systems below one parent")
    arguments = parser.parse_args()
    lab = Lab(arguments.program)
    try:
        begun = time.time()
        make(lab, arguments.datasets, arguments.snapshots, arguments.flat)
        print(f"made in {time.time() - begun:.0f} s", flush=True)
        for number in range(300):
            lab.run("fs", "snapshot", f"tank/p0001@often-{number:03}")
        lab.serve()
        cookie = sign_in(lab)
        time.sleep(12)
        print(f"memory at rest: {lab.memory():.1f} MiB")
        pages = {
            "overview": "/", "pool": "/pool/tank", "datasets: the root": "/dataset/tank",
            "datasets: a parent of many": "/dataset/tank/p0000", "one file system": "/dataset/tank/p0000/d00",
            "time line of 310 snapshots": "/dataset/tank/p0001", "snapshot": "/snapshot/tank/p0000%40daily-00",
            "history": "/pool/tank/history",
        }
        print("page | first byte, p50 / p95, ms | whole document | with TLS handshake | KiB")
        for name, path in pages.items():
            ask(lab, cookie, path)
            spans = [ask(lab, cookie, path) for _ in range(arguments.rounds)]
            columns = [spread([span[0][at] for span in spans]) for at in range(3)]
            print(f"{name} | {' | '.join(columns)} | {spans[0][1] / 1024:.0f}", flush=True)
        print(f"memory after the pages: {lab.memory():.1f} MiB, at most {lab.memory('VmHWM'):.1f} MiB")
        for path in ("/live/overview", "/live/pool/tank"):
            first, rate = stream(lab, cookie, path, 20)
            print(f"{path}: {first} bytes at first, then {rate:.0f} bytes a second")
    finally:
        lab.end()


main()
