"""`python -m django_ojs.examples` lists the examples; with a name, it writes that one to stdout."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "files"


def main(arguments: list[str]) -> int:
    """Return the exit code."""
    names = sorted(path.name for path in FOLDER.iterdir())
    if not arguments:
        print("\n".join(names))
        return 0
    if len(arguments) > 1 or arguments[0] not in names:
        print(f"usage: python -m django_ojs.examples [{' | '.join(names)}]", file=sys.stderr)
        return 2
    sys.stdout.write((FOLDER / arguments[0]).read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
