"""What a person reads in the admin is marked for translation, and nothing else is.

The rules are in CONTRIBUTING.md, "Translations".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.imports import ROOT
from tests.cases import together

PACKAGE = ROOT / "django_ojs"
#: What a person reads in the admin, besides templates.
READ = (
    *("admin", "models", "apps.py"),
    *("extensions/*/admin*.py", "extensions/*/apps.py", "extensions/*/models.py"),
)
#: Besides these, only this module knows of languages: it restores that of a request for a handler.
OTHER = {"contrib/request_context.py"}

GETTEXT = frozenset(
    {
        *("_", "gettext", "gettext_lazy", "gettext_noop", "ngettext", "ngettext_lazy"),
        *("pgettext", "pgettext_lazy", "npgettext", "npgettext_lazy"),
    }
)
#: Keyword arguments and attributes of classes that are read, and the calls whose argument is.
KEYWORDS = frozenset(
    {
        *("verbose_name", "verbose_name_plural", "help_text", "label", "description", "title"),
        *("consequence", "done", "warning"),
    }
)
ATTRIBUTES = frozenset(
    {
        *("verbose_name", "verbose_name_plural", "title", "secret_title"),
        *("search_help_text", "short_description"),
    }
)
#: The number of the argument, by the name of the function or method.
SINKS = {
    **dict.fromkeys(("ValidationError", "Skipped", "Http404", "query"), 0),
    **dict.fromkeys(("success", "warning", "message_user"), 1),
    "render": 2,
}
LOGGERS = frozenset({"logger"})

#: Words that are the same in every language.
NAMES = frozenset({"API", "HTTP"})
#: Calls of gettext whose text is marked elsewhere, with `gettext_noop`.
MARKED_ELSEWHERE = frozenset({"admin/query_timeout.py"})

_WORD = re.compile(r"[A-Za-z]{2}")
_PLACEHOLDER = re.compile(r"%(?![(%\s]|$)")


def sources() -> list[Path]:
    found = []
    for path in (path for name in READ for path in sorted(PACKAGE.glob(name))):
        found += [path] if path.is_file() else sorted(path.rglob("*.py"))
    return found


def problems(tree: ast.Module, name: str) -> Iterator[str]:
    """Yield what is not marked, and what is marked wrongly."""
    for node in ast.walk(tree):
        match node:
            case ast.Call():
                yield from _of_call(node, name)
            case ast.ClassDef():
                yield from _of_class(node, name)
            case ast.FunctionDef():
                yield from _of_function(node, name)


def _of_call(call: ast.Call, name: str) -> Iterator[str]:
    called = _name(call.func)
    if called in GETTEXT:
        yield from _of_gettext(call, called, name)
        return
    owner = _name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if owner in LOGGERS:
        return
    read = [each.value for each in call.keywords if each.arg in KEYWORDS]
    index = SINKS.get(called)
    if index is not None and len(call.args) > index:
        read.append(call.args[index])
    for value in read:
        if (text := _plain(value)) is not None:
            yield f"{name}:{value.lineno}: {text!r} is not marked"


def _of_gettext(call: ast.Call, called: str, name: str) -> Iterator[str]:
    texts = call.args[:-1] if called.startswith(("n", "np")) else call.args
    for value in texts:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            if _PLACEHOLDER.search(value.value.replace("%%", "")):
                yield f"{name}:{value.lineno}: {value.value!r} has a placeholder without a name"
        elif not (name in MARKED_ELSEWHERE and isinstance(value, ast.Name)) and value in texts[:2]:
            yield f"{name}:{value.lineno}: {ast.unparse(value)} is no literal: no tool finds it"


def _of_class(node: ast.ClassDef, name: str) -> Iterator[str]:
    bases = {_name(base) for base in node.bases}
    for each in node.body:
        if not isinstance(each, ast.Assign | ast.AnnAssign) or each.value is None:
            continue
        target = _name(each.targets[0] if isinstance(each, ast.Assign) else each.target)
        if target in ATTRIBUTES and (text := _plain(each.value)) is not None:
            yield f"{name}:{each.lineno}: {text!r} is not marked"
        if "TextChoices" in bases and _has_no_label(each.value):
            yield f"{name}:{each.lineno}: {target} has no label that is marked"
        is_form = any(base.endswith("Form") for base in bases)
        if is_form and _is_field_without_label(each.value):
            yield f"{name}:{each.lineno}: the field {target} has no label that is marked"


def _is_field_without_label(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call) or not _name(value.func).endswith("Field"):
        return False
    # These set a label themselves, which `form_fields.py` marks.
    has_own = _name(value.func) in ("QueueNameField", "PriorityField")
    return not has_own and "label" not in {keyword.arg for keyword in value.keywords}


def _has_no_label(value: ast.expr) -> bool:
    return not isinstance(value, ast.Tuple) or _plain(value.elts[-1]) is not None


def _of_function(node: ast.FunctionDef, name: str) -> Iterator[str]:
    """A variable `_` in a function hides gettext there."""
    binds = any(
        isinstance(each, ast.Name) and each.id == "_" and isinstance(each.ctx, ast.Store)
        for each in _own_nodes(node)
    ) or any(argument.arg == "_" for argument in node.args.args)
    calls = any(isinstance(each, ast.Call) and _name(each.func) == "_" for each in ast.walk(node))
    if binds and calls:
        yield f"{name}:{node.lineno}: the variable _ of {node.name} hides gettext"


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            yield child
            yield from _own_nodes(child)


def _plain(value: ast.expr) -> str | None:
    """Return the text of a literal; None for what is none, or has no words."""
    match value:
        case ast.Constant(value=str(text)):
            shown = text
        case ast.JoinedStr(values=parts):
            shown = "".join(
                str(each.value) if isinstance(each, ast.Constant) else " " for each in parts
            )
        case ast.IfExp(body=body, orelse=orelse):
            return _plain(body) or _plain(orelse)
        case ast.BinOp(left=left, right=right):
            return _plain(left) or _plain(right)
        case _:
            return None
    is_read = _WORD.search(shown) and shown.strip() not in NAMES
    return shown if is_read else None


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return name
    return ""


def test_what_a_person_reads_is_marked_for_translation() -> None:
    found = [
        text
        for path in sources()
        for text in problems(ast.parse(path.read_text()), path.relative_to(PACKAGE).as_posix())
    ]

    assert not found, "\n".join(found)


def test_nothing_else_is_translated() -> None:
    """Commands, errors, findings, logs and what is stored are English."""
    read = {path.relative_to(PACKAGE).as_posix() for path in sources()}
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"gettext|utils(\.| import )(translation|formats)", path.read_text())
    }
    assert found - read == OTHER


@together(
    ("code", "problem"),
    [
        ('page.message_user(request, "Not saved.")', "'Not saved.' is not marked"),
        ('raise forms.ValidationError(f"Type {name}.")', "is not marked"),
        ('Action(label="Retry" if one else _("Retry all"))', "'Retry' is not marked"),
        ('query("oldest jobs", read)', "is not marked"),
        ('_(f"{n} jobs")', "is no literal"),
        ('_("%(n)d jobs" % {"n": 1})', "is no literal"),
        ('_("%d jobs")', "without a name"),
        ('class Meta:\n verbose_name = "job"', "is not marked"),
        ('class Kind(models.TextChoices):\n A = "a", "An a"', "A has no label"),
        ("class AForm(forms.Form):\n name = forms.CharField()", "the field name has no label"),
        ('def f():\n stored, _ = g()\n return _("Done.")', "hides gettext"),
    ],
)
def test_what_is_not_marked_is_found(code: str, problem: str) -> None:
    assert problem in "\n".join(problems(ast.parse(code), "page.py"))


@together(
    "code",
    [
        '_("%(share)s %% of %(count)d jobs") % {"share": 1, "count": 2}',
        'page.message_user(request, _("Not saved."), "WARNING")',
        'logger.warning("Not saved.")',
        'query(gettext_noop("oldest jobs"), read)',
        'def f():\n return [_("Done.") for _ in ()]',
    ],
)
def test_what_is_marked_or_not_read_is_left_alone(code: str) -> None:
    assert list(problems(ast.parse(code), "page.py")) == []
