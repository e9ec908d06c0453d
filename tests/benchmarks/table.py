"""The table that a person reads."""

from __future__ import annotations

from tests.benchmarks.results import Results, Summary
from tests.benchmarks.targets import OURS, REMARKS, SECTIONS, Section, Target, targets

_HEAD = f"{'':46}{'median':>10}  {'min - max':<19}{'ratio':>8}  target"


def render(results: Results) -> tuple[str, bool]:
    """Return the table and whether every target was met; write the verdicts to the results."""
    wanted = targets(results)
    lines: list[str] = []
    verdicts: list[bool] = []
    missed: list[str] = []
    for section in SECTIONS:
        names = results.contenders(section.measure)
        if not names:
            continue
        lines += ["", _HEAD, f"{section.title}, {section.unit}"]
        for name in names:
            summary = results.summary(section.measure, name)
            assert summary is not None
            about = [target for target in wanted if _belongs(target, section, name)]
            marks = []
            for target in about:
                if (verdict := _verdict(target, results)) is None:
                    continue
                text, met = verdict
                verdicts.append(met)
                marks.append(f"{text}: {'ok' if met else 'MISSED'}")
                if not met:
                    missed.append(f"{section.title} ({text}): {target.limit or 'not known'}")
            row = _row(results, section, name, summary)
            lines.append(f"{row}  {'; '.join(marks)}".rstrip())
    met = sum(verdicts)
    lines += ["", f"Targets: {met} met, {len(verdicts) - met} missed."]
    if missed:
        lines += ["", "What limits those that were missed:", *missed]
    lines += [*REMARKS, *results.notes]
    return "\n".join(lines), all(verdicts)


def _belongs(target: Target, section: Section, row: str) -> bool:
    # A comparison stands beside the one it is with.
    if target.measure != section.measure:
        return False
    beside_other = target.against is not None and target.about == OURS
    return (target.against if beside_other else target.about) == row


def _verdict(target: Target, results: Results) -> tuple[str, bool] | None:
    """Return the value beside the target, and whether it is met; None if nothing was measured."""
    value = target.value(results)
    if value is None:
        return None
    met = target.met(value)
    about = f"{target.about} / {target.against or target.against_measure or 'itself'}"
    results.verdict(target.measure, about, value, target.wanted, met)
    beside = f" of {target.against}" if target.against and target.about != OURS else ""
    beside = f" {target.beside}" if target.beside else beside
    return f"{_number(value)}{beside} {target.wanted}", met


def _row(results: Results, section: Section, name: str, summary: Summary) -> str:
    setting = results.setting(section.measure, name)
    label = f"{name} ({setting})" if setting and setting != "defaults" else name
    spread = f"{_number(summary.low)} - {_number(summary.high)}" if summary.rounds > 1 else ""
    if section.base is not None:
        ratio = results.ratio(section.measure, name, section.base)
        same = name == section.base
    else:
        ratio = results.ratio(section.measure, OURS, name)
        same = name == OURS
    shown = "" if ratio is None or same else f"{ratio.median:.2f}"
    return f"  {label[:43]:44}{_number(summary.median):>10}  {spread:<19}{shown:>8}"


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
