"""`doctor`: check the database, the queues and the workers, and say what to do."""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from django.db import ProgrammingError
from django.utils import timezone

from django_ojs.command_line.checks import jobs, queues, remains, schema, server
from django_ojs.command_line.checks.finding import Check
from django_ojs.command_line.console import Console
from django_ojs.command_line.subcommand import FAILED, OK, Options, Subcommand
from django_ojs.finding import Finding, Severity, as_json
from django_ojs.formatting import duration
from django_ojs.operations.access import operator
from django_ojs.reports import current_findings, health_queries, verdict
from django_ojs.storage import database

CHECKS: Final[dict[str, Check]] = {
    each.name: each
    for each in (
        schema.MIGRATIONS,
        *schema.CHECKS,
        remains.CHECK,
        *jobs.CHECKS,
        *queues.CHECKS,
        *server.CHECKS,
    )
}


_STYLES: Final = {"good": "green", "fair": "yellow", "bad": "bold red"}


@dataclass(kw_only=True, slots=True)
class _Result:
    """A check that ran, what it found last, and what it found before a successful repair."""

    check: Check
    findings: list[Finding]
    repaired: list[Finding] = field(default_factory=list)


def _doctor(console: Console, options: Options) -> int:
    chosen = options["only"] or CHECKS
    results: list[_Result] = []
    for name, check in CHECKS.items():
        is_chosen = name in chosen and name not in options["skip"]
        # The other checks need the tables of this version.
        is_first = name == schema.MIGRATIONS.name
        if not (is_chosen or is_first) or not check.applies():
            continue
        findings = _findings(check) if is_chosen else _implied(check)
        if not (is_chosen or findings):
            continue
        result = _Result(check=check, findings=findings)
        is_repaired = not check.is_repaired_alone or name in (options["only"] or ())
        if findings and options["repair"] and check.repair and is_repaired:
            _repair(check)
            result.findings = _findings(check)
            result.repaired = [] if result.findings else findings
        results.append(result)
        if is_first and result.findings:
            break
    found = [each for result in results for each in result.findings]
    problems = sum(each.is_incident for each in found)
    is_well = not (found if options["strict"] else problems)
    if console.as_json:
        console.json({"ok": is_well, "checks": [_as_json(each) for each in results]})
    else:
        if any(each.check is queues.OVERVIEW for each in results):
            _show_verdict(console)
        _show(console, results)
        console.line()
        console.line(
            f"Problems: {problems}, advice: {len(found) - problems}, in {len(results)} checks.",
            "green" if is_well else "bold red",
        )
    return OK if is_well else FAILED


def _repair(check: Check) -> None:
    """Repair what a check finds. The first step's transaction also stores the audit entry."""
    first, *others = check.repair

    def recorded() -> None:
        first()
        operator.acted("doctor.repaired", check.name, object_type="check")

    database.in_write_transaction(recorded)
    for step in others:
        step()


def _findings(check: Check) -> list[Finding]:
    try:
        return list(check.run())
    except ProgrammingError as error:
        reason = str(error).partition("\n")[0]
        return [
            Finding(
                kind="check_failed",
                subject=check.name,
                text=f"The check could not run: {reason}.",
                why="What it would find is not known.",
                cure=(
                    "Run it as a role that may read the tables of django_ojs: "
                    "docs/how-to/database-roles.md."
                ),
            )
        ]


def _implied(check: Check) -> list[Finding]:
    """Run a check that was not chosen. If it cannot run, that is no finding."""
    try:
        return list(check.run())
    except ProgrammingError:
        return []


def _show_verdict(console: Console) -> None:
    with suppress(ProgrammingError):  # A finding of the check says that it could not run.
        found = verdict.of(current_findings.read(), health_queries.maintained())
        console.prose(str(found), _STYLES[found.level])


def _show(console: Console, results: Sequence[_Result]) -> None:
    """Print the problems, the worst first, then the advice, then what is in order."""
    found = [(each, result.check) for result in results for each in result.findings]
    order = list(Severity)
    for each, check in sorted(found, key=lambda pair: order.index(pair[0].severity)):
        word, style = ("PROBLEM", "bold red") if each.is_incident else ("advice", "yellow")
        since = f" For {duration(abs(timezone.now() - each.since))}." if each.since else ""
        console.prose(f"{word:<9} {each.text}{since} ({check.name})", style, indent=10)
        why = f"{each.why} {each.cause}".rstrip()
        console.prose(f"          Why: {why}", indent=15)
        console.prose(f"          Do:  {each.cure}", indent=15)
        if each.command:
            console.line(f"          Run: manage.py {each.command}")
    for result in results:
        for each in result.repaired:
            console.prose(f"{'repaired':<9} {each.text} ({result.check.name})", "green", indent=10)
            console.prose(f"          Why: {each.why}", indent=15)
        if not result.findings and not result.repaired:
            console.prose(
                f"{'ok':<9} {result.check.about} ({result.check.name})", "green", indent=10
            )


def _as_json(result: _Result) -> dict[str, Any]:
    return {
        "check": result.check.name,
        "repaired": bool(result.repaired),
        "findings": [as_json(each) for each in result.findings],
    }


def _names(text: str) -> frozenset[str]:
    names = frozenset(name for name in text.split(",") if name)
    if not names or not names <= CHECKS.keys():
        checks = ", ".join(CHECKS)
        raise ArgumentTypeError(f"must be some of {checks}")
    return names


def _arguments(parser: ArgumentParser) -> None:
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--only", type=_names, metavar="A,B", help="run these checks only")
    chosen.add_argument(
        "--skip", type=_names, default=frozenset(), metavar="A,B", help="leave these checks out"
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 for advice too, not only for problems"
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help=(
            "create missing triggers again, and correct the counters; with --only remains, remove "
            "what extensions have left"
        ),
    )


SUBCOMMANDS: Final = (
    Subcommand(
        name="doctor",
        help="check the database, the queues and the workers",
        description=f"""\
Check what slows down or stops the jobs: problems, then advice, why each matters and what to do.
The exit code is 1 if there is a problem; with --strict, also if there is advice.

Checks: {", ".join(CHECKS)}.
The check of the migrations always runs, because the others need the tables of this version.
The check of the counters reads all jobs, and the check of the types reads all waiting jobs: on a
large table, leave them out with --skip.""",
        examples="""\
  manage.py ojs doctor
  manage.py ojs doctor --skip counters,types --json     every few minutes, for monitoring
  manage.py ojs doctor --only triggers,counters --repair""",
        add_arguments=_arguments,
        run=_doctor,
    ),
)
