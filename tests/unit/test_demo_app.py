"""The demo's app: what it finds in a file, and how its results are added up."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from awa_pool.demo.measure import (
    MOST_STAGED,
    LookUpModule,
    MeasureFile,
    StageImports,
    client,
    look_up_module,
    main,
    measure,
    measure_file,
    python_files,
    stage_imports,
)
from awa_pool.demo.results import Results, percentile, totals
from awa_pool.testing import HandlerJob

ROOT = Path(__file__).parents[2]
SOURCE = """
import os.path, json
from collections.abc import Iterator
from . import sibling

class A:
    def f(self, x):
        if x and os or json:
            return [y for y in x if y]
        try:
            return (lambda: 1)()
        except OSError:
            return 1 if x else 2
"""


def test_a_file_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(SOURCE)
    found = measure(path)
    assert (found["functions"], found["classes"], found["error"]) == (2, 1, None)
    assert found["imports"] == ["collections", "json", "os"]
    assert found["complexity"] == 2 + len(["if", "or", "and", "for", "except", "else"])


@pytest.mark.parametrize("content", [b"def f(:\n", b"\xff\xfe\x00", b"# coding: nonsense\n", b"a\x00b"])
def test_a_file_that_is_no_python_is_a_finding(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(content)
    assert measure(path)["error"] is not None


def test_a_handlers_result_is_read_once_and_a_half_written_line_waits(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text(SOURCE)
    results = Results(tmp_path)
    job = HandlerJob(MeasureFile(str(source), str(tmp_path)), client=client)
    measure_file(job)
    assert [staged.args["name"] for staged in job.staged] == ["collections", "json", "os"]
    assert [line["path"] for line in results.read()] == [str(source)]
    assert results.read() == []
    file = next(tmp_path.glob("*.jsonl"))
    line = json.dumps(results.lines[0] | {"job": 2})
    with file.open("a") as out:
        out.write(line[:20])
    assert results.read() == []
    with file.open("a") as out:
        out.write(line[20:] + "\n")
    assert len(results.read()) == 1


def test_a_job_that_ran_twice_counts_once(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text(SOURCE)
    for _ in range(2):
        measure_file(HandlerJob(MeasureFile(str(source), str(tmp_path)), client=client, id=7))
    results = Results(tmp_path)
    assert len(results.read()) == 1
    assert results.repeats == 1


def test_every_import_of_a_file_is_staged_however_many_there_are(tmp_path: Path) -> None:
    names = sorted(f"m{n}" for n in range(3 * MOST_STAGED))
    job = HandlerJob(StageImports(names, str(tmp_path)), client=client)
    found: list[str] = []
    for _ in range(10):
        stage_imports(job)
        found += [staged.args["name"] for staged in job.staged if "name" in staged.args]
        rest = [staged.args["names"] for staged in job.staged if "names" in staged.args]
        assert len(job.staged) <= MOST_STAGED
        if not rest:
            break
        job = HandlerJob(StageImports(rest[0], str(tmp_path)), client=client)
    assert found == names


def test_a_module_is_looked_up_without_being_imported(tmp_path: Path) -> None:
    results = Results(tmp_path)
    for number, name in enumerate(("antigravity", "sys", "no_such_module")):
        look_up_module(HandlerJob(LookUpModule(name, str(tmp_path)), client=client, id=number))
    results.read()
    assert [line["origin"] for line in results.modules] == ["file", "built in", "absent"]
    assert results.lines == [] and "antigravity" not in sys.modules


def test_a_file_measured_twice_counts_once(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text(SOURCE)
    line = measure(source)
    added = totals([line, line])
    assert (added.files, added.classes, added.unreadable) == (1, 1, 0)
    assert added.most_imported == [("collections", 1), ("json", 1), ("os", 1)]


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0], 0.95) == 1.0


def test_the_folder_that_the_guide_measures_has_files_everywhere() -> None:
    guide = (ROOT / "docs" / "getting-started.md").read_text()
    (code,) = re.findall(r"""python measure\.py "\$\(python -c '(.*?)'\)" results""", guide)
    named = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()
    assert len(python_files(Path(named))) > 500


def test_a_folder_without_files_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "dist-packages").mkdir()
    (tmp_path / "dist-packages" / "installed.py").touch()
    with pytest.raises(SystemExit, match="there is no Python file"):
        main(str(tmp_path), str(tmp_path / "results"))
    assert not (tmp_path / "results").exists()


def test_installed_packages_are_not_the_standard_library(tmp_path: Path) -> None:
    for name in ("a.py", "site-packages/b.py", "sub/c.py", "sub/__pycache__/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert [str(p.relative_to(tmp_path)) for p in python_files(tmp_path)] == ["a.py", "sub/c.py"]


def test_the_example_is_the_demos_app_and_needs_only_public_names() -> None:
    example = ROOT / "examples" / "measure.py"
    assert not example.is_symlink()  # a copy of the folder works by itself
    assert example.read_bytes() == (ROOT / "awa_pool" / "demo" / "measure.py").read_bytes()
    done = subprocess.run(
        [sys.executable, str(example)],
        check=False,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 1 and "usage:" in done.stderr
