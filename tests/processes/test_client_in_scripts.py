"""A client in a script: forked, left open at exit, and silent either way."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
FORK_THAT_ENDS = """
import os, sys
from awa_pool import Client
client = Client(sys.argv[1])
client.insert({}, kind="k")
lender = client._pool._homes[os.getpid()].lender
child = os.fork()
if child == 0:
    if sys.argv[2] == "use":
        client.insert({}, kind="k")
    elif sys.argv[2] == "close":
        client.close()
    elif sys.argv[2] == "drop":
        del client, lender
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
client.insert({}, kind="k")
assert client._pool._homes[os.getpid()].lender is lender
"""
FORK_WHILE_LENT = """
import os, sys
from awa_pool import Client
client = Client(sys.argv[1])
with client._opened().store() as store, client._opened().store():
    store.conn.execute("begin")
    store.conn.execute("select set_config('awa.here', 'yes', true)")
    child = os.fork()
    if child == 0:
        sys.exit(0)  # through both `with`, in the middle of a transaction
    assert os.waitpid(child, 0)[1] == 0
    print(store.conn.execute("select current_setting('awa.here')").fetchone()[0])
    store.conn.execute("commit")
client.insert({}, kind="k")
"""
LOOP_LEFT = """
import asyncio, sys
from awa_pool import AsyncClient
client = AsyncClient(sys.argv[1])
loop = asyncio.new_event_loop()
loop.run_until_complete(client.insert({}, kind="k"))
"""
CANNOT_CONNECT = """
import sys
from awa_pool import Client
from awa_pool.errors import StoreUnavailable
try:
    Client("host=/nowhere").insert({}, kind="k")
except StoreUnavailable:
    print("away")
"""
LEFT_OPEN = """
import asyncio, sys
from awa_pool import AsyncClient, Client
client, other = Client(sys.argv[1]), AsyncClient(sys.argv[1])
client.insert({}, kind="k")
asyncio.run(other.insert({}, kind="k"))
print("done")
"""


def run(script, dsn, *more, strictly=("-W", "error", "-X", "dev")):
    return subprocess.run(
        [sys.executable, *strictly, "-c", script, dsn, *more],
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


@pytest.mark.parametrize("deed", ["nothing", "use", "close", "drop"])
def test_a_child_that_ends_by_itself_neither_hangs_nor_ends_the_parents_connection(dsn, deed):
    done = run(FORK_THAT_ENDS, dsn, deed)
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_child_forked_inside_a_transaction_does_not_end_it(dsn):
    done = run(FORK_WHILE_LENT, dsn)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("yes", "", 0)


def test_an_event_loop_left_behind_ends_with_the_script_without_a_word(dsn):
    done = run(LOOP_LEFT, dsn, strictly=())  # under -X dev Python itself asks for the loop to be closed
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_script_that_cannot_connect_gets_the_error_and_no_other_word(dsn):
    done = run(CANNOT_CONNECT, dsn)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("away", "", 0)
