"""Read what the handlers wrote down, while they still write."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Results:
    """The lines in a folder of results, one for each job; `read` takes in what is new since the last call.

    `lines` are those of files, `modules` those of modules: two of one name are two jobs, and there should be none. A job that ran twice (delivery is at least once) is counted in `repeats` and otherwise left out.
    """

    folder: Path
    lines: list[dict[str, Any]] = field(default_factory=list)
    modules: list[dict[str, Any]] = field(default_factory=list)
    repeats: int = 0
    _jobs: set[int] = field(default_factory=set)
    _read_bytes: dict[Path, int] = field(default_factory=dict)

    def read(self) -> list[dict[str, Any]]:
        """Return the new whole lines; one that is still being written waits for the next call."""
        new: list[dict[str, Any]] = []
        for path in sorted(self.folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read_bytes.get(path, 0))
                whole, newline, _ = file.read().rpartition(b"\n")
            if newline:
                self._read_bytes[path] = self._read_bytes.get(path, 0) + len(whole) + 1
                new += [line for text in whole.split(b"\n") if self._is_first(line := json.loads(text))]
        self.lines += [line for line in new if "path" in line]
        self.modules += [line for line in new if "module" in line]
        return new

    def _is_first(self, line: dict[str, Any]) -> bool:
        if line["job"] in self._jobs:
            self.repeats += 1
            return False
        self._jobs.add(line["job"])
        return True


@dataclass(frozen=True)
class Totals:
    """What all files together contain."""

    files: int
    lines: int
    functions: int
    classes: int
    complexity: int
    unreadable: int
    most_complex: list[tuple[str, int]]
    most_imported: list[tuple[str, int]]
    imports: int
    """Of modules by files, each module once a file."""


def totals(lines: list[dict[str, Any]], top: int = 5) -> Totals:
    """Add up results; of several lines about one file the last counts."""
    latest = {line["path"]: line for line in lines}.values()
    imports = Counter(name for line in latest for name in line["imports"])
    by_complexity = sorted(latest, key=lambda line: (-line["complexity"], line["path"]))
    return Totals(
        files=len(latest),
        lines=sum(line["lines"] for line in latest),
        functions=sum(line["functions"] for line in latest),
        classes=sum(line["classes"] for line in latest),
        complexity=sum(line["complexity"] for line in latest),
        unreadable=sum(line["error"] is not None for line in latest),
        most_complex=[(line["path"], line["complexity"]) for line in by_complexity[:top]],
        most_imported=sorted(imports.items(), key=lambda item: (-item[1], item[0]))[:top],
        imports=imports.total(),
    )


def percentile(values: list[float], share: float) -> float:
    """Return the value below which that share of the values lies (nearest rank)."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]
