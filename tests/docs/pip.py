"""The `pip` of a page's reader: it links what the environment of the tests has, and nothing else.

    pip.py VENV REQUIREMENT...

So a page works with what it installs itself, without a network, and an import of an extra that it
has not named fails as for its reader.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


def install(venv: Path, words: list[str]) -> None:
    """Link the distributions of some requirements, and what they require, into an environment."""
    (site,) = venv.glob("lib/python*/site-packages")
    wanted = [Requirement(word.replace("path/to/the/checkout", "django-ojs")) for word in words]
    done: set[tuple[str, str]] = set()
    while wanted:
        requirement = wanted.pop()
        for extra in ("", *requirement.extras):
            if (requirement.name, extra) not in done:
                done.add((requirement.name, extra))
                wanted += [
                    each
                    for each in map(Requirement, distribution(requirement.name).requires or ())
                    if each.marker is None or each.marker.evaluate({"extra": extra})
                ]
    for name in {name for name, _ in done}:
        _link(name, site, venv / "bin")


def _link(name: str, site: Path, programs: Path) -> None:
    found = distribution(name)
    tops = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
    sources = {top: Path(str(found.locate_file(top))) for top in tops}
    if name == "django-ojs":  # It is installed as editable: its files are here.
        sources = {top: path for top, path in sources.items() if top.endswith(".dist-info")}
        sources["django_ojs"] = ROOT / "django_ojs"
    for top, path in sources.items():
        if not (site / top).exists():
            (site / top).symlink_to(path)
    for entry in found.entry_points.select(group="console_scripts"):
        program = programs / entry.name
        program.write_text(
            f"#!{programs}/python\nimport sys\nfrom {entry.module} import {entry.attr}\n"
            f"sys.exit({entry.attr}())\n"
        )
        program.chmod(0o755)


if __name__ == "__main__":
    arguments = [word for word in sys.argv[2:] if not re.match(r"-|install$", word)]
    install(Path(sys.argv[1]).resolve(), arguments)
