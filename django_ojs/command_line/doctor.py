"""`doctor`: check the database, the queues and the workers, and say what to do."""

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any, Final

from django.db import ProgrammingError

from django_ojs.command_line.checks import jobs, queues, remains, schema, server
from django_ojs.command_line.checks.finding import Check, DoctorFinding
from django_ojs.command_line.console import Console
from django_ojs.command_line.subcommand import FAILED, OK, Options, Subcommand
from django_ojs.hooks import registry
from django_ojs.operations.access import operator
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
        *registry.brought("doctor_checks"),
    )
}


def _doctor(console: Console, options: Options) -> int:
    chosen = options["only"] or CHECKS
    results: list[dict[str, Any]] = []
    for name, check in CHECKS.items():
        is_chosen = name in chosen and name not in options["skip"]
        # The others need the tables of this version.
        is_first = name == schema.MIGRATIONS.name
        if not (is_chosen or is_first) or not check.applies():
            continue
        findings = _findings(check) if is_chosen else _implied(check)
        if not (is_chosen or findings):
            continue
        repaired = False
        is_repaired = not check.is_repaired_alone or name in (options["only"] or ())
        if findings and options["repair"] and check.repair and is_repaired:
            _repair(check)
            left = _findings(check)
            repaired = not left
            _show(console, check, findings if repaired else left, repaired=repaired)
            findings = left
        else:
            _show(console, check, findings)
        results.append(_as_json(name, findings, repaired=repaired))
        if is_first and findings:
            break
    number = sum(len(result["findings"]) for result in results)
    if console.as_json:
        console.json({"ok": not number, "checks": results})
    else:
        console.line()
        console.line(
            f"Findings: {number}, in {len(results)} checks.",
            "bold red" if number else "green",
        )
    return FAILED if number else OK


def _repair(check: Check) -> None:
    """Repair, with the entry in the audit trail in the transaction of the first step."""
    first, *others = check.repair

    def recorded() -> None:
        first()
        operator.acted("doctor.repaired", check.name, object_type="check")

    database.in_write_transaction(recorded)
    for step in others:
        step()


def _findings(check: Check) -> list[DoctorFinding]:
    try:
        return list(check.run())
    except ProgrammingError as error:
        reason = str(error).partition("\n")[0]
        return [
            DoctorFinding(
                found=f"The check could not run: {reason}.",
                why="What it would find is not known.",
                cure=(
                    "Run it as a role that may read the tables of django_ojs: "
                    "docs/how-to/database-roles.md."
                ),
            )
        ]


def _implied(check: Check) -> list[DoctorFinding]:
    """Run a check that was not chosen. That it could not run is no finding."""
    try:
        return list(check.run())
    except ProgrammingError:
        return []


def _show(
    console: Console, check: Check, findings: list[DoctorFinding], *, repaired: bool = False
) -> None:
    if console.as_json:
        return
    if not findings:
        word = "ok"
        console.line(f"{word:<9} {check.about} ({check.name})", "green")
    for each in findings:
        word = "repaired" if repaired else "FINDING"
        style = "green" if repaired else "bold red"
        console.line(f"{word:<9} {each.found} ({check.name})", style)
        console.line(f"          Why: {each.why}")
        if not repaired:
            console.line(f"          Do:  {each.cure}")


def _as_json(name: str, findings: list[DoctorFinding], *, repaired: bool) -> dict[str, Any]:
    return {
        "check": name,
        "repaired": repaired,
        "findings": [
            {"found": each.found, "why": each.why, "cure": each.cure} for each in findings
        ],
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
Check what slows down or stops the jobs: each finding has its cause and what to do. The exit code is
1 if there is one.

Checks: {", ".join(CHECKS)}.
That of the migrations is always made, because the others need the tables of this version.
The check of the counters reads all jobs, and that of the types all waiting ones: on a large table,
leave them out with --skip.""",
        examples="""\
  manage.py ojs doctor
  manage.py ojs doctor --skip counters,types --json     every few minutes, for monitoring
  manage.py ojs doctor --only triggers,counters --repair""",
        add_arguments=_arguments,
        run=_doctor,
    ),
)
