"""The numbers that are read from the files of the project."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.architecture.house.numbers import Count, data, number, of
from tests.architecture.imports import PACKAGE, ROOT, Import, imports, modules, tree

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_DOTTED = re.compile(rf"{PACKAGE}(?:\.\w+)+")
#: Columns of a job that a file names before it counts as one that knows the row.
MANY_COLUMNS = 9
#: Parameters of a function that are too many.
MANY_PARAMETERS = 8
GENERATED = "This page is generated"

# -- the map of parts and subjects


@cache
def place(module: str) -> tuple[str, str]:
    """Return ("parts" or "subjects", which one) for a module, and ("", "") for one in neither."""
    name = short(module)
    if name.startswith("extensions."):
        return "subjects", name.split(".")[1]
    while True:
        for kind in ("subjects", "parts"):
            for which, names in data()[kind].items():
                if name in names:
                    return kind, which
        if "." not in name:
            return "", ""
        name = name.rpartition(".")[0]


def part(module: str) -> str:
    """Return the part that a module belongs to; empty for a module of a subject."""
    kind, which = place(module)
    return which if kind == "parts" else ""


def subject(module: str) -> str:
    """Return the subject that a module belongs to; empty for a module of a part."""
    kind, which = place(module)
    return which if kind == "subjects" else ""


def short(module: str) -> str:
    return module.removeprefix(PACKAGE).removeprefix(".")


@cache
def known() -> dict[str, Path]:
    """Return the modules of the package."""
    return modules()


@cache
def sources() -> dict[str, Path]:
    """Return the modules of the package without its migrations."""
    return {name: path for name, path in known().items() if "migrations" not in name.split(".")}


@cache
def imported(module: str) -> tuple[Import, ...]:
    """Return the imports of a module, inside of functions too; not those for types alone."""
    return tuple(imports(module, known()[module], frozenset(known())))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file, walked once for all numbers."""
    return tuple(ast.walk(tree(path)))


def lines(path: Path) -> int:
    return path.read_text().count("\n")


# -- imports


@cache
def _exported(package: str) -> dict[str, str]:
    """Return the module that each name of a package comes from, for names it only passes on.

    Also for those that it imports for types, and looks up where they are asked for.
    """
    path = known().get(package)
    if path is None or path.name != "__init__.py":
        return {}
    found = imports(package, path, frozenset(known()), for_types=True)
    return {each.name: each.target for each in found if each.name}


def home(found: Import) -> str:
    """Return the module that an import is about, where a package passes the name on."""
    return _exported(found.target).get(found.name, found.target)


def _named_in_strings(path: Path) -> Iterator[str]:
    """Yield the modules that strings of a file name, as import_module() takes them; no loggers."""
    loggers = {
        id(argument)
        for node in nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger")
        for argument in node.args
    }
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in loggers or not _DOTTED.fullmatch(node.value):
                continue
            if node.value in known():
                yield node.value
            elif (module := node.value.rpartition(".")[0]) in known() and module != PACKAGE:
                yield module


def _imports_of_subjects(wanted: str) -> Count:
    found = set()
    for module, path in sources().items():
        if part(module) == wanted:
            targets = {home(each) for each in imported(module)}
            for target in targets.union(_named_in_strings(path)) & known().keys():
                if about := subject(target):
                    found.add(f"{about}: {short(module) or PACKAGE} imports {short(target)}")
    return of(found)


@number("imports-core", "imports of the core into subjects")
def imports_of_core() -> Count:
    """Pairs of a module of the core and a module of a subject that it imports, also inside of
    functions, through a package that passes the name on, or by a string; not for types alone."""
    return _imports_of_subjects("core")


@number("imports-doors", "imports of the doors into subjects")
def imports_of_doors() -> Count:
    """As `imports-core`, of HTTP, the admin and the command line."""
    return _imports_of_subjects("doors")


@cache
def _targets(module: str) -> frozenset[str]:
    found = set()
    for each in imported(module):
        for target in {each.target, home(each)}:
            parts = target.split(".")
            found |= {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
    return frozenset(found & known().keys())


def _closure(module: str) -> Count:
    seen: set[str] = set()
    left = [f"{PACKAGE}.{module}"]
    while left:
        if (each := left.pop()) not in seen:
            seen.add(each)
            left += _targets(each)
    return of(short(each) or PACKAGE for each in seen)


@number("closure-push", "import closure of operations.push")
def closure_of_push() -> Count:
    """Modules of the package that operations.push needs, itself and the packages around them
    included: its imports and theirs, also inside of functions, but not for types alone."""
    return _closure("operations.push")


@number("closure-worker", "import closure of worker.process")
def closure_of_worker() -> Count:
    """As `closure-push`, of worker.process."""
    return _closure("worker.process")


# -- size


def _with_lines(paths: dict[str, Path]) -> Count:
    counted = sorted(((lines(path), name) for name, path in paths.items()), reverse=True)
    items = [f"{count:6} {name}" for count, name in counted]
    return Count(value=sum(count for count, _ in counted), items=items)


@cache
def _core() -> dict[str, Path]:
    return {short(name) or PACKAGE: p for name, p in sources().items() if part(name) == "core"}


@number("package-lines", "package, lines of Python")
def package_lines() -> Count:
    """Physical lines of Python in the package, without migrations."""
    return _with_lines({short(name) or PACKAGE: path for name, path in sources().items()})


@number("core-lines", "core, lines of Python")
def core_lines() -> Count:
    """Physical lines of the modules of the core; those of subjects are not in it."""
    return _with_lines(_core())


@number("core-files", "core, files")
def core_files() -> Count:
    """Modules of the core; those of subjects are not in it."""
    return of(_core())


# -- functions


@cache
def _functions() -> list[tuple[str, str, FunctionNode]]:
    """Return the module, the name and the node of each function of the package."""
    found: list[tuple[str, str, FunctionNode]] = []

    def visit(node: ast.AST, module: str, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                continue  # A lambda is part of the function that it stands in.
            inner = name
            if isinstance(child, FunctionNode | ast.ClassDef):
                inner = f"{name}.{child.name}".lstrip(".")
            if isinstance(child, FunctionNode):
                found.append((short(module), inner, child))
            visit(child, module, inner)

    for module, path in sources().items():
        visit(tree(path), module, "")
    return found


def _parameters(node: FunctionNode) -> int:
    arguments = node.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


@cache
def _lengths() -> list[tuple[int, str]]:
    found = [
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{module}.{name}")
        for module, name, node in _functions()
    ]
    return sorted(found, reverse=True)


@number("many-parameters", "functions with eight parameters or more")
def many_parameters() -> Count:
    """Functions with eight parameters or more, without self, cls, *args and **kwargs."""
    return of(
        f"{module}.{name} ({count})"
        for module, name, node in _functions()
        if (count := _parameters(node)) >= MANY_PARAMETERS
    )


@number("longest-function", "longest function, lines")
def longest_function() -> Count:
    """Physical lines of the longest function, without decorators; the list has the longest."""
    items = [f"{count:4} {name}" for count, name in _lengths()[:40]]
    return Count(value=_lengths()[0][0], items=items)


@number("largest-file", "largest file, lines")
def largest_file() -> Count:
    """Physical lines of the largest file, without migrations; the list has the largest."""
    counted = package_lines().items[:40]
    return Count(value=int(counted[0].split()[0]), items=counted)


@number("median-line", "median line, characters")
def median_line() -> Count:
    """Characters of the median line of Python that is not blank, indentation included."""
    lengths = [
        len(line)
        for path in sources().values()
        for line in path.read_text().splitlines()
        if line.strip()
    ]
    return _median(lengths)


@number("median-function", "median function, lines")
def median_function() -> Count:
    """Physical lines of the median function."""
    return _median([count for count, _ in _lengths()])


def _median(values: list[int]) -> Count:
    parts = statistics.quantiles(values, n=10)
    items = [f"{n * 10}% of {len(values)}: {part:g} or less" for n, part in enumerate(parts, 1)]
    return Count(value=statistics.median(values), items=items)


# -- the database


def _methods(module: str, name: str) -> Iterator[str]:
    parsed = tree(known()[f"{PACKAGE}.{module}"])
    for node in parsed.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for each in node.body:
                if isinstance(each, FunctionNode) and not each.name.startswith("_"):
                    yield each.name


@number("database-methods", "methods of the database interface")
def database_methods() -> Count:
    """Public methods and properties that the interface of a database defines (`interface` in
    the data file)."""
    classes = [each.split(":") for each in data()["interface"]["classes"]]
    return of({method for module, name in classes for method in _methods(module, name)})


@number("sql-files", "SQL files of PostgreSQL")
def sql_files() -> Count:
    """Files of statements of PostgreSQL, and those of `common` that it does not have itself."""
    folder = ROOT / data()["interface"]["statements"]
    names = {
        path.name: f"{each}/{path.name}"
        for each in ("common", "postgresql")
        for path in (folder / each).glob("*.sql")
    }
    return of(set(names.values()))


@cache
def columns() -> frozenset[str]:
    """Return the columns of a job: the fields of the model."""
    (job,) = (
        node
        for node in tree(known()[f"{PACKAGE}.models.job"]).body
        if isinstance(node, ast.ClassDef) and node.name == "Job"
    )
    return frozenset(
        target.id
        for node in job.body
        if isinstance(node, ast.Assign) and "Field(" in ast.unparse(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    )


def _named(path: Path) -> Iterator[str]:
    """Yield the words that may name a column: strings, keyword arguments, assigned names."""
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            yield from (each.id for each in targets if isinstance(each, ast.Name))


@number("column-files", "files that name nine columns of a job or more")
def column_files() -> Count:
    """Files of Python without migrations that name nine columns of a job or more, each as a whole
    string, as a keyword argument or as a name that is assigned. To read an attribute counts not."""
    named = {name: columns().intersection(_named(path)) for name, path in sources().items()}
    return of(
        f"{short(name)} ({len(found)})"
        for name, found in named.items()
        if len(found) >= MANY_COLUMNS
    )


# -- settings, tests, words


@number("settings", "settings of the core")
def settings() -> Count:
    """Fields of `conf.Settings`."""
    (values,) = (
        node
        for node in tree(known()[f"{PACKAGE}.conf"]).body
        if isinstance(node, ast.ClassDef) and node.name == "Settings"
    )
    return of(
        node.target.id
        for node in values.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    )


@number("test-lines", "tests, lines of Python")
def test_lines() -> Count:
    """Physical lines of Python in `tests`."""
    paths = (ROOT / "tests").rglob("*.py")
    return _with_lines({path.relative_to(ROOT).as_posix(): path for path in paths})


def _words(paths: list[Path]) -> Count:
    counted = sorted(
        ((len(path.read_text().split()), path.relative_to(ROOT).as_posix()) for path in paths),
        reverse=True,
    )
    return Count(
        value=sum(count for count, _ in counted),
        items=[f"{count:6} {name}" for count, name in counted],
    )


@number("documentation-words", "documentation, words")
def documentation_words() -> Count:
    """Words of the pages below `docs`, without the pages that are generated."""
    pages = (ROOT / "docs").rglob("*.md")
    return _words([page for page in pages if GENERATED not in page.read_text()])


@number("changelog-words", "CHANGELOG, words")
def changelog_words() -> Count:
    """Words of `CHANGELOG.md`."""
    return _words([ROOT / "CHANGELOG.md"])
