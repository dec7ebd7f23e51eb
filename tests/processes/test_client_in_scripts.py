"""A client in a script: forked, left open at exit, and silent either way."""

from __future__ import annotations

import subprocess
import sys

FORKING = """
import os, sys
from awa_pool import Client
client = Client(sys.argv[1])
ids = [client.insert({}, kind="k")]
child = os.fork()
if child == 0:
    client.insert({}, kind="child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
ids.append(client.insert({}, kind="k"))
ids += client.insert_many([({}, {"kind": "k"})] * 3)
print(sorted(job.kind for job in client.list_jobs()))
"""
LEFT_OPEN = """
import asyncio, sys
from awa_pool import AsyncClient, Client
client, other = Client(sys.argv[1]), AsyncClient(sys.argv[1])
client.insert({}, kind="k")
asyncio.run(other.insert({}, kind="k"))
print("done")
"""


def run(script, dsn):
    return subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", script, dsn],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_fork_leaves_the_parents_connection_alone(dsn):
    done = run(FORKING, dsn)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.strip() == str(["child"] + ["k"] * 5)


def test_open_clients_end_with_the_script_without_a_word(dsn):
    done = run(LEFT_OPEN, dsn)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("done", "", 0)
