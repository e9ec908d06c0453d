"""Figures as they come in: JSON lines for machines, medians and ratios for the table."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """The median of the rounds, and their extremes."""

    median: float
    low: float
    high: float
    rounds: int


class Results:
    """All samples of a run: by measure, then by contender, then by round."""

    def __init__(self, path: Path | None, facts: Mapping[str, Any]) -> None:
        self._path = path
        self._samples: dict[str, dict[str, dict[int, float]]] = {}
        self._labels: dict[tuple[str, str], str] = {}
        self._loads: list[float] = []
        self.notes: list[str] = []
        self._write({"kind": "run", **facts})

    def add(
        self,
        measure: str,
        contender: str,
        round_: int,
        value: float,
        *,
        setting: str = "",
        **extra: Any,
    ) -> None:
        """Keep one figure, write it down, and say that there is progress."""
        self._samples.setdefault(measure, {}).setdefault(contender, {})[round_] = value
        if setting:
            self._labels[measure, contender] = setting
        self._loads.append(os.getloadavg()[0])
        line = {
            "kind": "sample",
            "measure": measure,
            "contender": contender,
            "round": round_,
            "value": float(f"{value:.6g}"),
            "load": self._loads[-1],
        }
        self._write({**line, **({"setting": setting} if setting else {}), **extra})
        print(f"  {measure}: {contender}: {value:,.4g}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Keep a remark for the end of the table."""
        if text not in self.notes:
            self.notes.append(text)
            print(f"  {text}", file=sys.stderr, flush=True)

    def weather(self) -> str:
        """Say how busy the machine was, our own work included."""
        return (
            f"Load of the machine: {min(self._loads):.1f} to {max(self._loads):.1f} on "
            f"{os.cpu_count()} cores. Figures compare within this run only."
        )

    def contenders(self, measure: str) -> list[str]:
        """Return who has figures, in the order in which they came."""
        return list(self._samples.get(measure, {}))

    def setting(self, measure: str, contender: str) -> str:
        """Return the setting with which a contender was measured."""
        return self._labels.get((measure, contender), "")

    def summary(self, measure: str, contender: str) -> Summary | None:
        """Return median and spread, or None without a figure."""
        values = list(self._samples.get(measure, {}).get(contender, {}).values())
        return _summarize(values) if values else None

    def ratio(
        self, measure: str, contender: str, other: str, other_measure: str | None = None
    ) -> Summary | None:
        """Return contender ÷ other, round by round: what is in one round shared the weather."""
        ours = self._samples.get(measure, {}).get(contender, {})
        theirs = self._samples.get(other_measure or measure, {}).get(other, {})
        values = [ours[key] / theirs[key] for key in ours if theirs.get(key)]
        return _summarize(values) if values else None

    def verdict(self, measure: str, about: str, value: float, wanted: str, met: bool) -> None:
        """Write a comparison with a target down."""
        self._write(
            {
                "kind": "target",
                "measure": measure,
                "about": about,
                "value": float(f"{value:.4g}"),
                "wanted": wanted,
                "met": met,
            }
        )

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._path is not None:
            moment = datetime.now(UTC).isoformat(timespec="seconds")
            with self._path.open("a") as file:
                file.write(json.dumps({"at": moment, **line}) + "\n")


def _summarize(values: list[float]) -> Summary:
    return Summary(
        median=statistics.median(values), low=min(values), high=max(values), rounds=len(values)
    )
