"""An app that burns CPU: parse Python files, walk their syntax trees, measure them, and look up what they import.

Two stages: each file's handler stages a job for every module that the file imports, unique by the module's name. These
jobs exist exactly if the file's job completes, and however many files import a module, it is looked up once.

Put one job per file into the queue, then work on them with all cores:

    python measure.py FOLDER RESULTS
    awa-pool measure:client --workers 8 --drain

Each worker appends one line of JSON per file or module to its own file in RESULTS. Delivery is at least once: should a worker
die between writing a line and reporting the job, the file is measured again, and the later line counts.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import sys
import time
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from awa_pool import Client, EnqueueRequest, Job

client = Client()

_BRANCHES = (
    ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert, ast.match_case,
    ast.comprehension,
)  # fmt: skip


@dataclass
class MeasureFile:
    """Measure the Python file at `path` and append what was found to a file in the folder `results`."""

    path: str
    results: str


@dataclass
class LookUpModule:
    """Find out what the module `name` is, without importing it."""

    name: str
    results: str


@dataclass
class StageImports:
    """Stage a job for each of these modules: what did not fit into the attempt that found them."""

    names: list[str]
    results: str


MOST_STAGED = 16
"""So many jobs may an attempt stage."""


@client.task(MeasureFile, queue="measure", max_attempts=3)
def measure_file(job: Job[MeasureFile]) -> None:
    """Measure one file, write the result down, and stage a look at each module that it imports."""
    started = time.time()
    cpu_before_s = time.process_time()
    found = measure(Path(job.args.path)) | {"started": started}
    stage(job, found["imports"], job.args.results)
    write_down(job, job.args.results, found | {"cpu_s": time.process_time() - cpu_before_s})


@client.task(StageImports, queue="measure", max_attempts=3)
def stage_imports(job: Job[StageImports]) -> None:
    """Go on where the attempt before could stage no more."""
    stage(job, job.args.names, job.args.results)


@client.task(LookUpModule, queue="measure", max_attempts=3)
def look_up_module(job: Job[LookUpModule]) -> None:
    """Say where a module comes from."""
    cpu_before_s = time.process_time()
    found = {"module": job.args.name, "origin": origin(job.args.name)}
    write_down(job, job.args.results, found | {"cpu_s": time.process_time() - cpu_before_s})


def stage(job: Job[Any], names: list[str], results: str) -> None:
    """Stage a job for each module; where they are too many, one that stages the rest."""
    now, rest = (
        (names, []) if len(names) <= MOST_STAGED else (names[: MOST_STAGED - 1], names[MOST_STAGED - 1 :])
    )
    for name in now:
        job.enqueue_on_completion(EnqueueRequest(LookUpModule(name, results)).unique(by_args=True))
    if rest:
        job.enqueue_on_completion(StageImports(rest, results))


def origin(name: str) -> str:
    """Say what a top-level module is: 'built in', 'file', or 'absent' (of another system, or made up by a test)."""
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return "absent"
    if found is None:
        return "absent"
    return "built in" if found.origin in ("built-in", "frozen") else "file"


def write_down(job: Job[Any], results: str, found: dict[str, Any]) -> None:
    """Append a result to this worker's file."""
    with open(Path(results, f"{os.getpid()}.jsonl"), "a", encoding="utf-8") as out:
        out.write(json.dumps(found | {"job": job.id, "worker": os.getpid()}) + "\n")


def measure(path: Path) -> dict[str, Any]:
    """Return what one file contains; a file that is no valid Python is a finding, not a failure."""
    found: dict[str, Any] = {"path": str(path), "lines": 0, "functions": 0, "classes": 0, "complexity": 0}
    found |= {"imports": [], "error": None}
    try:
        with warnings.catch_warnings(action="ignore"), tokenize.open(path) as source:
            text = source.read()
            tree = ast.parse(text, str(path))
    except (SyntaxError, UnicodeDecodeError, ValueError, RecursionError) as error:
        return found | {"error": type(error).__name__}
    nodes = list(ast.walk(tree))
    functions = sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) for node in nodes)
    return found | {
        "lines": text.count("\n") + 1,
        "functions": functions,
        "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
        "complexity": functions + sum(map(_branches, nodes)),
        "imports": sorted({name for node in nodes for name in _imports(node)}),
    }


def _branches(node: ast.AST) -> int:
    """Count the ways in which a node splits the flow, as in McCabe's measure."""
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    return int(isinstance(node, _BRANCHES))


def _imports(node: ast.AST) -> Iterator[str]:
    """Name the top-level modules that a statement imports; relative imports are the package's own affair."""
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module.partition(".")[0]


def python_files(folder: Path) -> list[Path]:
    """List the Python files below a folder, without what was installed into it."""
    installed = {"site-packages", "dist-packages", "__pycache__"}
    return sorted(
        path
        for path in folder.rglob("*.py")
        if path.is_file() and not installed & {p.name for p in path.parents}
    )


def main(folder: str, results: str) -> None:
    """Put one job per Python file below `folder` into the queue, all in one transaction."""
    files = python_files(Path(folder).resolve())
    if not files:
        sys.exit(f"below {folder} there is no Python file, but for what was installed into it")
    target = Path(results).resolve()
    target.mkdir(parents=True, exist_ok=True)
    client.insert_many(MeasureFile(str(path), str(target)) for path in files)
    print(f"{len(files)} files are waiting to be measured; results go to {target}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python measure.py FOLDER RESULTS")
    main(*sys.argv[1:])
