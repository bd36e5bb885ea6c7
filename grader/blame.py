"""Whose a line of a submission is: the steps that the code of a function, a class or the module counts for.

A helper counts for every step whose code reaches it, what runs while the file is imported for all of them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

from grader import policy_names as names
from grader.course import Lab
from grader.syntax import Syntax


def steps_of_owners(syntax: Syntax, lab: Lab) -> dict[str, set[int]]:
    """The steps that each function, class or method counts for; one that isn't listed counts for all."""
    known = set(syntax.owners.values()) - {""}
    refers = _references(syntax, known)
    for_all = _reached({"", *_run_at_import(syntax, known)}, refers)
    steps: dict[str, set[int]] = defaultdict(set)
    named = {name for step in lab.steps for name in step.todo}
    for step in lab.steps:
        classes = {name.partition(".")[0] for name in step.todo if "." in name}
        start = {o for o in known if o in step.todo or o.partition(".")[0] in step.todo or o in classes}
        start |= {owner for owner in known - named if owner.partition(".")[0] in classes}
        for owner in _reached(start, refers):
            steps[owner].add(step.number)
    return {owner: found for owner, found in steps.items() if owner not in for_all}


def _run_at_import(syntax: Syntax, known: set[str]) -> Iterator[str]:
    """The owners whose code may run while the file is imported although no code at its top names them."""
    hooks = {owner for owner in known if owner.rpartition(".")[2] in names.RUN_AT_IMPORT}
    yield from hooks
    for node in syntax.nodes:
        scope = syntax.scopes[node]
        if isinstance(node, ast.ClassDef) and (
            scope.kind == "class" or hooks or _is_made_by_others(node, syntax)
        ):
            yield f"{syntax.owners[node].partition('.')[0]}.*"
        elif isinstance(node, ast.Call) and not syntax.owners[node]:
            while scope.kind == "comprehension" and scope.parent is not None:
                scope = scope.parent
            if scope.kind == "class" and not _is_plain_call(node, syntax):
                yield f"{scope.owner.partition('.')[0]}.*"


def _is_made_by_others(node: ast.ClassDef, syntax: Syntax) -> bool:
    """Whether a decorator or a metaclass of the file's own gets the class while it is made."""
    makers = (maker.func if isinstance(maker, ast.Call) else maker for maker in node.decorator_list)
    return bool(node.keywords) or not all(map(syntax.paths, makers))


def _is_plain_call(node: ast.Call, syntax: Syntax) -> bool:
    return bool(syntax.paths(node.func)) or syntax.is_builtin(node.func, *names.PLAIN_BUILTINS)


def _references(syntax: Syntax, known: set[str]) -> dict[str, set[str]]:
    """For each owner, the owners that its code names: functions and classes by name, methods through self.

    "C.*" is all that a class owns: who names a class may call anything in it.
    """
    refers: dict[str, set[str]] = defaultdict(set)
    for owner in known:
        refers[f"{owner.partition('.')[0]}.*"].add(owner)
    for node in syntax.nodes:
        owner = syntax.heirs.get(node, syntax.owners[node])
        if isinstance(node, ast.Name):
            if node not in syntax.hints:
                refers[owner] |= set(_named(node, syntax))
        elif isinstance(node, ast.Attribute) and syntax.is_self(node.value):
            refers[owner].add(f"{owner.partition('.')[0]}.{node.attr}")
    return refers


def _named(node: ast.Name, syntax: Syntax) -> Iterator[str]:
    for place in syntax.scopes[node].places(node.id):
        if place.kind == "module":
            yield f"{node.id}.*"
        elif place.kind == "class":  # in its body, a class's own functions have no other name
            yield f"{place.owner}.{node.id}"


def _reached(start: Iterable[str], refers: dict[str, set[str]]) -> set[str]:
    seen, left = set(), list(start)
    while left:
        owner = left.pop()
        if owner not in seen:
            seen.add(owner)
            left += refers.get(owner, set())
    return seen
