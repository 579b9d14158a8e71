"""Read programs as text and syntax trees; nothing here runs one.

In: a designer's reply, or the source of an environment. Out: the program cut out of a reply, braces
repaired, static findings.
Source: SPADE (arXiv:2608.19197) sections 3 and 7; differs in that the last fence counts, and that
the static checks are ours.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import warnings
from collections.abc import Collection, Iterator

GIVEN_CLASSES = ("Env", "QAEnv", "ToolUseBaseEnv")  # base classes that are no environments
GIVEN_METHODS = {  # methods that a given base class brings, and those it leaves to the program
    "QAEnv": (("reset", "step", "solution"), ("task",)),
    "ToolUseBaseEnv": (("step", "get_tools", "execute_tool"), ("reset",)),
}
REPAIR_ROUNDS = 20
MAX_DEPTH = 200  # of a syntax tree; keeps every recursive walk far from the interpreter's limit

_FENCE_OPEN = re.compile(r"```[ \t]*(\w*)[^\n`]*\n")
_FENCE_CLOSE = re.compile(r"(?:^|\n)[ \t]*```")
_VERDICT = re.compile(r"\\boxed\s*\{\s*(yes|no)\s*\}", re.IGNORECASE)
_STRING_OPEN = re.compile(r"""(?<![\w])([A-Za-z]{0,2})(\"\"\"|'''|\"|')""")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check found wrong."""

    reason: str  # stable name of the check
    detail: str  # one line for people


def without_thinking(reply: str) -> str:
    """Drop everything up to the last closing think tag, and an open think block at the end."""
    rest = reply.rsplit("</think>", 1)[-1]
    return rest.split("<think>", 1)[0]


def extract_code(reply: str) -> str | None:
    """Cut the last fence tagged python or py out of a reply, thinking text dropped.

    A fence left open at the end of the reply is closed there. None where there is no fence.
    """
    text, code, start = without_thinking(reply), None, 0
    while opened := _FENCE_OPEN.search(text, start):
        closed = _FENCE_CLOSE.search(text, opened.end() - 1)
        end = closed.start() if closed else len(text)
        if opened.group(1).lower() in ("python", "py"):
            code = text[opened.end() : max(end, opened.end())].strip("\n")
        if closed is None:
            break
        start = closed.end()
    return code


def boxed_verdict(text: str) -> str | None:
    """Read the last boxed yes or no of a reply, in lower case; None where there is none."""
    found = _VERDICT.findall(text)
    return found[-1].lower() if found else None


def parse(source: str) -> ast.Module | Finding:
    """Parse a program, or say why it cannot be parsed. Hostile text is an answer, not a fault."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes such as "\boxed" are common
            tree = ast.parse(source)
    except SyntaxError as error:
        return Finding(reason="syntax", detail=f"line {error.lineno}: {error.msg}"[:300])
    except (ValueError, RecursionError, MemoryError) as error:
        return Finding(reason="syntax", detail=f"unreadable program: {str(error)[:200]}")
    if _depth(tree) > MAX_DEPTH:
        return Finding(reason="syntax", detail=f"nested deeper than {MAX_DEPTH} levels")
    return tree


def repair_braces(source: str) -> str:
    """Double the braces inside f-strings whose inside is no Python expression.

    Works on the line that fails to parse, at most 20 rounds; a program that parses is unchanged.
    """
    for _ in range(REPAIR_ROUNDS):
        line = _failing_line(source)
        if line is None:
            return source
        repaired = _repair_line(source, line)
        if repaired == source:
            return source
        source = repaired
    return source


def static_findings(source: str, allowed_imports: Collection[str]) -> list[Finding]:
    """Check a program without running it, in the order of the checks.

    Args:
      allowed_imports: module names; "urllib.parse" allows that one, "collections" all below it.
    Returns:
      findings named syntax, no_env_class, missing_method, forbidden_import; empty where sound.
    """
    tree = parse(source)
    if isinstance(tree, Finding):
        return [tree]
    found = []
    chosen = environment_class(tree)
    if chosen is None:
        names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        detail = f"classes defined: {', '.join(names)}"[:300] if names else "no class is defined"
        found.append(Finding(reason="no_env_class", detail=detail))
    else:
        missing = _missing_methods(chosen, tree)
        if missing:
            detail = f"class {chosen.name} lacks {', '.join(missing)}"
            found.append(Finding(reason="missing_method", detail=detail))
    foreign = sorted({name for name in imports(tree) if not _allowed(name, allowed_imports)})
    if foreign:
        detail = f"imports outside the allow-list: {', '.join(foreign)}"[:300]
        found.append(Finding(reason="forbidden_import", detail=detail))
    return found


def environment_class(tree: ast.Module) -> ast.ClassDef | None:
    """Find the class that the loader takes: the first at module level whose name ends in Env."""
    for node in _module_level(tree):
        if isinstance(node, ast.ClassDef) and node.name.endswith("Env"):
            if node.name not in GIVEN_CLASSES:
                return node
    return None


def base_names(chosen: ast.ClassDef, tree: ast.Module) -> list[str]:
    """List the names of all base classes, through classes of the same program, nearest first."""
    classes = {n.name: n for n in _module_level(tree) if isinstance(n, ast.ClassDef)}
    names, waiting = [], [chosen]
    while waiting:
        for base in waiting.pop(0).bases:
            name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
            if name and name not in names and name != chosen.name:
                names.append(name)
                if name in classes:
                    waiting.append(classes[name])
    return names


def setting_of(source: str) -> str:
    """Name the setting an environment was written for, by its base class; "games" otherwise."""
    tree = parse(source)
    chosen = None if isinstance(tree, Finding) else environment_class(tree)
    bases = [] if chosen is None else base_names(chosen, tree)
    if "QAEnv" in bases:
        return "compact"
    return "tool_use" if "ToolUseBaseEnv" in bases else "games"


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names of all imported modules, `__import__` calls included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = "." * node.level + (node.module or "")
            yield from (f"{package}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Name) and node.id in ("__import__", "__loader__"):
            yield node.id


def literal_spans(source: str) -> Iterator[tuple[int, int, bool]]:
    """Yield (start, end, is f-string) of the body of every string literal, comments skipped."""
    position = 0
    while position < len(source):
        quote = _STRING_OPEN.search(source, position)
        comment = source.find("#", position)
        if quote is None:
            return
        if 0 <= comment < quote.start():
            line_end = source.find("\n", comment)
            position = len(source) if line_end < 0 else line_end
            continue
        prefix, mark = quote.group(1).lower(), quote.group(2)
        end = _string_end(source, quote.end(), mark)
        yield quote.end(), end, "f" in prefix
        position = min(end + len(mark), len(source))


def brace_groups(source: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (open, close) of the outermost {...} groups of an f-string body, {{ and }} skipped."""
    depth, opened, i = 0, -1, start
    while i < end:
        char = source[i]
        if depth == 0 and source[i : i + 2] in ("{{", "}}"):
            i += 2
            continue
        if char == "{":
            opened = i if depth == 0 else opened
            depth += 1
        elif char == "}" and depth:
            depth -= 1
            if depth == 0:
                yield opened, i
        i += 1


def _failing_line(source: str) -> int | None:
    """Number of the line where parsing stops, 1 for the first; None where it does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source)
    except SyntaxError as error:
        return error.lineno
    except (ValueError, RecursionError, MemoryError):
        return None
    return None


def _repair_line(source: str, line: int) -> str:
    lines = source.split("\n")
    start = sum(len(text) + 1 for text in lines[: line - 1])
    end = start + len(lines[line - 1]) if line <= len(lines) else start
    edits = []
    for span_start, span_end, formatted in literal_spans(source):
        if not formatted or span_end < start or span_start > end:
            continue
        for opened, closed in brace_groups(source, span_start, span_end):
            inside = source[opened + 1 : closed]
            if start <= opened <= end and not _is_field(inside):
                edits += [opened, closed]
    for position in sorted(edits, reverse=True):
        source = source[:position] + source[position] + source[position:]
    return source


def _is_field(inside: str) -> bool:
    """Tell whether the text between braces of an f-string is an expression, format included."""
    quote = "'''" if '"""' in inside else '"""'
    forms = (f"({inside}\n)", f"f{quote}{{{inside}}}{quote}")
    for form in forms:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(form, mode="eval")
            return bool(inside.strip())
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return False


def _string_end(source: str, position: int, mark: str) -> int:
    """Index where a literal's body ends: its closing mark, or the end of the line or text."""
    while position < len(source):
        if source[position] == "\\":
            position += 2
        elif source.startswith(mark, position):
            return position
        elif source[position] == "\n" and len(mark) == 1:
            return position
        else:
            position += 1
    return len(source)


def _module_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements that run with the module, those inside if, try and with included."""
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop(0)
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            inner = [*node.body, *getattr(node, "orelse", [])]
            for handler in getattr(node, "handlers", []):
                inner += handler.body
            waiting = [*inner, *getattr(node, "finalbody", []), *waiting]


def _missing_methods(chosen: ast.ClassDef, tree: ast.Module) -> list[str]:
    classes = {n.name: n for n in _module_level(tree) if isinstance(n, ast.ClassDef)}
    bases = base_names(chosen, tree)
    own = set()
    for node in [chosen, *(classes[name] for name in bases if name in classes)]:
        for item in node.body:
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                own.add(item.name)
            elif isinstance(item, ast.Assign):
                own.update(t.id for t in item.targets if isinstance(t, ast.Name))
    given = [GIVEN_METHODS[name] for name in bases if name in GIVEN_METHODS]
    brought = {method for methods, _ in given for method in methods}
    missing = [name for name in ("reset", "step") if name not in own | brought]
    left = [name for _, names in given for name in names]
    if not {"reset", "step"} <= own:  # a program that writes both needs nothing of its base class
        missing += [name for name in left if name not in own]
    return missing


def _allowed(name: str, allowed: Collection[str]) -> bool:
    parts = name.split(".")
    return any(".".join(parts[: i + 1]) in allowed for i in range(len(parts)))


def _depth(tree: ast.AST) -> int:
    """Depth of a tree, without recursion."""
    deepest, waiting = 0, [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting += [(child, depth + 1) for child in ast.iter_child_nodes(node)]
    return deepest
