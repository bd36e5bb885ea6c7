"""A file as a syntax tree with resolved names: what of a library a name may stand for, and whose a line is.

Nothing is run or imported. Order doesn't count: a name that is bound twice may stand for either thing, and
one that isn't certain to be the file's own may always be the builtin.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

OBJECT_TYPE = "type()"  # stands for a class that was asked of an object
MOST_CHARACTERS, MOST_NODES = 300_000, 60_000  # twenty times what a lab takes
MOST_PATHS = 16  # that one expression may stand for

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NONE: frozenset[str] = frozenset()


class NotPython(Exception):
    """The file can't be parsed, and so can't be run."""


class TooLarge(Exception):
    """The file has more parts than anybody writes."""


@dataclass(eq=False)
class Scope:
    """Where names are bound."""

    kind: str  # "module", "class", "function" (also a lambda) or "comprehension"
    parent: Scope | None = None
    owner: str = ""  # whose code runs in it; "" at the top, and in the body of a class there
    bound: dict[str, list[str | ast.expr]] = field(default_factory=dict)
    elsewhere: dict[str, Scope] = field(default_factory=dict)  # names declared global or nonlocal

    @property
    def runs_in(self) -> str:
        """Whose code it is that stands right in this scope: a class's body runs where the class stands."""
        return self.parent.runs_in if self.kind == "class" and self.parent is not None else self.owner

    def bind(self, name: str, value: str | ast.expr | None = None) -> None:
        """Note that `name` is bound here, to a dotted path, an expression, or something unknown (None)."""
        values = self.elsewhere.get(name, self).bound.setdefault(name, [])
        if value is not None:
            values.append(value)

    def places(self, name: str) -> Iterator[Scope]:
        """The scopes that a use of `name` here may mean; the module's among them if no function binds it."""
        scope: Scope | None = self
        while scope is not None:
            scope = scope.elsewhere.get(name, scope)
            if scope.kind == "module" or name in scope.bound:
                yield scope
            if name in scope.bound and scope.kind in ("function", "comprehension"):
                return
            scope = scope.parent
            while scope is not None and scope.kind == "class":
                scope = scope.parent  # a class's names aren't seen from its methods


class Syntax:
    """The tree of one file. `nodes` are those that can run, each with its scope, parent and owner.

    Owners are "f" (all that runs in a function at module level), "C" and "C.m" (a class, a method) and ""
    (the module, with what runs while it is imported: defaults, decorators, annotations, classes' bodies).
    What stands under `if __name__ == "__main__"` can't run in the grader and is left out.
    """

    def __init__(self, source: str) -> None:
        if len(source) > MOST_CHARACTERS:
            raise TooLarge
        self.tree = _parse(source)
        self.module = Scope("module")
        self.nodes: list[ast.AST] = []
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, Scope] = {}
        self.owners: dict[ast.AST, str] = {}
        self.hints: set[ast.AST] = set()  # annotations, with what is in them
        self.heirs: dict[ast.AST, str] = {}  # what is in a class's list of bases: the class
        self.stars: list[str] = []  # modules of "from m import *"
        self.caught: set[str] = set()  # names of exceptions
        self._mentions: dict[str, ast.AST] = {}  # the first of each name
        self._uncertain: set[str] = set()
        self._paths: dict[tuple[int, str], frozenset[str]] = {}
        guarded = self._walk([(node, self.module) for node in reversed(self.tree.body)])
        if any("__name__" in scope.bound for scope in set(self.scopes.values())):
            while guarded:  # the file gives itself a name: then they may run
                guarded = self._walk(guarded)

    # ------------------------------------------------------------------------------ reading the tree

    def _walk(self, stack: list[tuple[ast.AST, Scope]]) -> list[tuple[ast.AST, Scope]]:
        """Visit all nodes in the order of the source; return what stands in main guards, unvisited."""
        guarded: list[tuple[ast.AST, Scope]] = []
        while stack:
            node, scope = stack.pop()
            if len(self.nodes) > MOST_NODES:
                raise TooLarge
            self.nodes.append(node)
            self.scopes[node] = scope
            self.owners[node] = self._owner(node, scope)
            above = self.parents.get(node)
            if above in self.hints:
                self.hints.add(node)
            if above in self.heirs:
                self.heirs[node] = self.heirs[above]
            self._bind(node, scope)
            if isinstance(node, ast.Name | ast.Constant):
                continue
            children = list(self._children(node, scope))
            for child, _ in children:
                self.parents[child] = node
            if isinstance(node, ast.If) and _is_main_guard(node.test):
                guarded += [(child, scope) for child in reversed(node.body)]
                children = [(child, scope) for child in [node.test, *node.orelse]]
            stack += reversed(children)
        return guarded

    def _owner(self, node: ast.AST, scope: Scope) -> str:
        if not isinstance(node, _DEFINITIONS):
            return scope.runs_in
        if scope.kind == "module":
            return node.name
        at_the_top = scope.kind == "class" and scope.parent is not None and scope.parent.kind == "module"
        return f"{scope.owner}.{node.name}" if at_the_top else scope.owner

    def _children(self, node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
        if isinstance(node, _FUNCTIONS):
            inner = Scope("function", scope, self.owners[node])
            body = [node.body] if isinstance(node, ast.Lambda) else node.body
            inside = [*_arguments(node.args), *getattr(node, "type_params", []), *body]
            outside = [*getattr(node, "decorator_list", []), *node.args.defaults, *node.args.kw_defaults]
            hints = [
                *(argument.annotation for argument in _arguments(node.args)),
                getattr(node, "returns", None),
            ]
            annotations = list(_with_text(hints))
            self.hints.update(annotations)
            yield from ((child, scope) for child in [*outside, *annotations] if child is not None)
            yield from ((child, inner) for child in inside)
        elif isinstance(node, ast.ClassDef):
            inner = Scope("class", scope, self.owners[node])
            self.heirs.update(dict.fromkeys(node.bases, self.owners[node]))
            yield from ((child, scope) for child in [*node.decorator_list, *node.bases, *node.keywords])
            yield from ((child, inner) for child in [*getattr(node, "type_params", []), *node.body])
        elif isinstance(node, _COMPREHENSIONS):
            yield node.generators[0].iter, scope
            inner = Scope("comprehension", scope, scope.runs_in)
            for child in _parts(node):
                yield child, inner
        elif isinstance(node, ast.comprehension):
            first = self.scopes.get(node.iter)  # of the first one: visited above, where it is evaluated
            yield from ((c, scope) for c in _parts(node) if c is not node.iter or first is None)
        elif isinstance(node, ast.AnnAssign):
            annotations = list(_with_text([node.annotation]))
            self.hints.update(annotations)
            yield from ((child, scope) for child in [node.target, *annotations])
            if node.value is not None:
                yield node.value, scope
        elif not isinstance(node, ast.arg):
            yield from ((child, scope) for child in _parts(node))

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Name(id=name):
                self._mentions.setdefault(name, node)
                if not isinstance(node.ctx, ast.Load):
                    scope.bind(name)
                if isinstance(node.ctx, ast.Del):
                    self._uncertain.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self._mentions.setdefault(name, node)
                scope.bind(name)
            case ast.arg(arg=name):
                scope.bind(name)
            case ast.Import():
                for alias in node.names:
                    path = alias.name if alias.asname else alias.name.partition(".")[0]
                    scope.bind(alias.asname or path, path)
            case ast.ImportFrom(module=module):
                for alias in node.names:
                    if alias.name == "*":
                        self.stars.append(module or "")
                    else:
                        scope.bind(alias.asname or alias.name, f"{module or ''}.{alias.name}")
            case ast.Assign(value=value):
                for target in node.targets:
                    self._alias(target, value, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._alias(target, value, scope)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                scope.bind(name, value)
                while scope.kind == "comprehension" and scope.parent is not None:
                    scope = scope.parent  # out of a comprehension, into its function
                    scope.bind(name, value)
            case ast.ExceptHandler(name=str() as name):
                self.caught.add(name)
                scope.bind(name)
                self._uncertain.add(name)  # it is gone after the handler
            case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
                scope.bind(name)
            case ast.MatchMapping(rest=str() as name):
                scope.bind(name)
            case ast.Global(names=names):
                self._uncertain.update(names)
                scope.elsewhere.update(dict.fromkeys(names, self.module))
            case ast.Nonlocal(names=names):
                outer = scope.parent
                for name in names:
                    scope.elsewhere[name] = next(outer.places(name)) if outer else self.module
            case _ if type(node).__name__ in ("TypeVar", "ParamSpec", "TypeVarTuple"):
                scope.bind(node.name)  # type: ignore[attr-defined]  # Python 3.12

    def _alias(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.bind(target.id, value)
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            for part, its in zip(target.elts, value.elts, strict=False):
                self._alias(part, its, scope)

    # ------------------------------------------------------------------------------- what names mean

    def is_builtin(self, node: ast.AST, *names: str) -> bool:
        """Whether a node is a name that may stand for one of these builtins."""
        if not isinstance(node, ast.Name) or node.id not in names:
            return False
        scopes = list(self.scopes[node].places(node.id))
        return scopes[-1].kind == "module" and not self._is_own(node.id)

    def _is_own(self, name: str) -> bool:
        """Whether the module binds this name for certain, before anything can mention the builtin."""
        first = self._mentions.get(name)
        if first is None or name in self._uncertain:
            return False
        statement = first if isinstance(first, ast.stmt) else self.parents.get(first)
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                header = [*statement.decorator_list, statement.args]
            case ast.ClassDef():
                header = [*statement.decorator_list, *statement.bases, *statement.keywords]
            case ast.Assign(value=value):
                header = [value]
            case _:
                return False
        mentioned = any(isinstance(n, ast.Name) and n.id == name for part in header for n in ast.walk(part))
        return statement in self.tree.body and not mentioned

    def paths(self, node: ast.AST) -> frozenset[str]:
        """The dotted paths in libraries that an expression may stand for: {"torch.nn.functional"}."""
        tail: list[str] = []
        while isinstance(node, ast.Attribute):
            if node.attr == "__class__" and not self.is_self(node.value):
                return _below({OBJECT_TYPE}, tail)
            tail.insert(0, node.attr)
            node = node.value
        match node:
            case ast.Name(id=name):
                return _below(self._name_paths(name, self.scopes[node]), tail)
            case ast.NamedExpr(value=value):
                return _below(self.paths(value), tail)
            case ast.BoolOp(values=values):
                return _below(frozenset().union(*map(self.paths, values)), tail)
            case ast.IfExp(body=body, orelse=orelse):
                return _below(self.paths(body) | self.paths(orelse), tail)
            case ast.Call(func=func, args=[of]) if self.is_builtin(func, "type"):
                return _NONE if self.is_self(of) else _below({OBJECT_TYPE}, tail)
            case ast.Call(func=func, args=[of, ast.Constant(value=str() as name), *_]):
                if self.is_builtin(func, "getattr"):
                    return _below(self.paths(of), [name, *tail])
        return _NONE

    def is_self(self, node: ast.AST) -> bool:
        """Whether a node is the name that methods give their own object or class."""
        return isinstance(node, ast.Name) and node.id in ("self", "cls") and not self.paths(node)

    def _name_paths(self, name: str, scope: Scope) -> frozenset[str]:
        key = (id(scope), name)
        if key in self._paths:
            return self._paths[key]
        self._paths[key] = _NONE  # what a name gets from itself adds nothing
        found: set[str] = set()
        for place in scope.places(name):
            for value in place.bound.get(name, ()):
                found |= {value} if isinstance(value, str) else self.paths(value)
            if place.kind == "module" and name not in place.bound:
                found.update(f"{module}.{name}" for module in self.stars)
        self._paths[key] = frozenset(sorted(found)[:MOST_PATHS])
        return self._paths[key]


def _parse(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError):
            raise NotPython from None


def read_lines(source: str) -> list[str]:
    """The lines as Python counts them."""
    return re.split(r"\r\n|\r|\n", source)


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes right below one, without operators and contexts, which nothing here asks for."""
    for name in node._fields:
        if name not in ("ctx", "op", "ops"):
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                yield value
            elif isinstance(value, list):
                yield from (part for part in value if isinstance(part, ast.AST))


def _below(paths: Iterable[str], tail: list[str]) -> frozenset[str]:
    return frozenset(".".join([path, *tail]) for path in paths)


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    star = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *star]


def _with_text(hints: Iterable[ast.expr | None]) -> Iterator[ast.AST]:
    """Annotations, and what they hold as text if it calls something: the library may evaluate it."""
    for hint in hints:
        if hint is None:
            continue
        yield hint
        for part in ast.walk(hint):
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and "(" in part.value:
                try:
                    text = ast.parse(part.value.strip(), mode="eval")
                except (SyntaxError, ValueError):
                    continue
                for inner in ast.walk(text):
                    if hasattr(inner, "lineno"):
                        inner.lineno = part.lineno
                yield text.body


def _is_main_guard(test: ast.expr) -> bool:
    match test:
        case ast.Compare(
            left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")]
        ):
            return True
        case ast.Compare(
            left=ast.Constant(value="__main__"), ops=[ast.Eq()], comparators=[ast.Name(id="__name__")]
        ):
            return True
    return False
