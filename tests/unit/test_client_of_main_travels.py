"""A client written in a script reaches another process with its tasks and the names they use."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
from __future__ import annotations
import sys
from dataclasses import dataclass
from awa_pool import Client

@dataclass
class Item:
    n: int

client = Client("host=x")

@dataclass
class Order:
    items: list[Item]

@client.task(Order)
def total(job):
    return client.dsn, sum(item.n for item in job.args.items)

import dill
open(sys.argv[1], "wb").write(dill.dumps(client, recurse=True))
"""
READER = """
import sys, dill
from awa_pool.job import Job
client = dill.load(open(sys.argv[1], "rb"))
task = client.registry.tasks["order"]
args = client.registry.decode_args(task, {"items": [{"n": 3}, {"n": 4}]})
print(task.handler(Job(args, 1, "order")))
"""


def test_a_script_s_client_runs_its_handler_elsewhere(tmp_path):
    blob = tmp_path / "blob"
    (tmp_path / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, "-W", "ignore", tmp_path / "script.py", blob], check=True, timeout=60)
    shown = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READER, blob],
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert shown.stdout.strip() == "('host=x', 7)"
