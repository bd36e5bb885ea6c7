"""A file as a syntax tree with resolved names: what of a library a name may stand for, and whose a line is.

Nothing is run or imported. Order doesn't count: a name that is bound twice may stand for either thing, and
one that isn't certain to be the file's own may always be the builtin.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from grader.nodes import (
    arguments,
    bound_names,
    first_parameter,
    is_load,
    is_main_guard,
    parts,
    with_text,
)

OBJECT_TYPE = "type()"  # stands for a class that was asked of an object
MOST_CHARACTERS, MOST_NODES = 300_000, 60_000  # twenty times what a lab takes
MOST_PATHS = 16  # that one name may stand for, and values that are followed
MOST_DEPTH = 50  # of functions and classes in each other
MOST_PARTS = 12  # of a path; what is longer is cut one part later, so that it shows

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NONE: frozenset[str] = frozenset()

Value = str | ast.AST
Tail = tuple[str, ...]  # attributes of what a name stands for
Place = tuple["Scope", str]  # a name where it is bound


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
    me: str = ""  # the name under which a method gets its own object or class
    bound: dict[str, list[Value]] = field(default_factory=dict)
    depth: int = 0
    times: Counter[str] = field(
        default_factory=Counter
    )  # that a name is bound; more than values: to something unknown
    elsewhere: dict[str, Scope] = field(default_factory=dict)  # names declared global or nonlocal

    def __post_init__(self) -> None:
        self.depth = self.parent.depth + 1 if self.parent else 0
        if self.depth > MOST_DEPTH:
            raise TooLarge

    @property
    def runs_in(self) -> str:
        """Whose code it is that stands right in this scope: a class's body runs where the class stands."""
        return self.parent.runs_in if self.kind == "class" and self.parent is not None else self.owner

    def bind(self, name: str, *values: Value) -> None:
        """Note that `name` is bound here, to a dotted path, a node, or something unknown (no value)."""
        place = self.elsewhere.get(name, self)
        place.times[name] += 1
        place.bound.setdefault(name, []).extend(values)

    def stands_for(self, name: str, value: Value) -> None:
        """Note what a name that was bound here before, or will be, is bound to."""
        self.elsewhere.get(name, self).bound.setdefault(name, []).append(value)

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
        self.stars: set[str] = set()  # modules of "from m import *"
        self.caught: set[str] = set()  # names of exceptions
        self._mentions: dict[str, ast.AST] = {}  # the first of each name
        self._uncertain: set[str] = set()
        self._starred: set[str] = set()  # names that a "from m import *" below them may replace
        self._own: dict[str, bool] = {}
        self._paths: dict[Place, set[str]] = {}
        self._flows: dict[Place, list[tuple[Place, Tail]]] = defaultdict(list)
        self._paths_of_nodes: dict[ast.AST, frozenset[str]] = {}
        guarded = self._walk([(node, self.module) for node in reversed(self.tree.body)])
        if self._names_itself():
            self._walk(guarded)  # the file gives itself a name: then they may run

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
            if above is None and isinstance(node, ast.If) and is_main_guard(node.test):
                guarded += [(child, scope) for child in reversed(node.body)]
                children = [(child, scope) for child in [node.test, *node.orelse]]
            stack += reversed(children)
        return guarded

    def _names_itself(self) -> bool:
        """Whether anything in the file is called __name__, or sets what is, also by text."""
        return any("__name__" in scope.bound for scope in set(self.scopes.values())) or any(
            (isinstance(node, ast.Constant) and node.value == "__name__")
            or (isinstance(node, ast.keyword) and node.arg == "__name__")
            or (isinstance(node, ast.Attribute) and node.attr == "__name__" and not is_load(node))
            for node in self.nodes
        )

    def _owner(self, node: ast.AST, scope: Scope) -> str:
        if not isinstance(node, _DEFINITIONS):
            return scope.runs_in
        if scope.kind == "module":
            return node.name
        at_the_top = scope.kind == "class" and scope.parent is not None and scope.parent.kind == "module"
        return f"{scope.owner}.{node.name}" if at_the_top else scope.owner

    def _children(self, node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
        if isinstance(node, _FUNCTIONS):
            inner = Scope(
                "function", scope, self.owners[node], first_parameter(node) if scope.kind == "class" else ""
            )
            body = [node.body] if isinstance(node, ast.Lambda) else node.body
            inside = [*arguments(node.args), *getattr(node, "type_params", []), *body]
            outside = [*getattr(node, "decorator_list", []), *node.args.defaults, *node.args.kw_defaults]
            hints = [
                *(argument.annotation for argument in arguments(node.args)),
                getattr(node, "returns", None),
            ]
            annotations = list(with_text(hints))
            self.hints.update(annotations)
            yield from ((child, scope) for child in [*outside, *annotations] if child is not None)
            yield from ((child, inner) for child in inside)
        elif isinstance(node, ast.ClassDef):
            inner = Scope("class", scope, self.owners[node])
            plain = [base for base in node.bases if isinstance(base, ast.Name | ast.Attribute)]
            self.heirs.update(dict.fromkeys(plain, self.owners[node]))
            yield from ((child, scope) for child in [*node.decorator_list, *node.bases, *node.keywords])
            yield from ((child, inner) for child in [*getattr(node, "type_params", []), *node.body])
        elif isinstance(node, _COMPREHENSIONS):
            yield node.generators[0].iter, scope
            inner = Scope("comprehension", scope, scope.runs_in)
            for child in parts(node):
                yield child, inner
        elif isinstance(node, ast.comprehension):
            first = self.scopes.get(node.iter)  # of the first one: visited above, where it is evaluated
            yield from ((c, scope) for c in parts(node) if c is not node.iter or first is None)
        elif isinstance(node, ast.AnnAssign):
            annotations = list(with_text([node.annotation]))
            self.hints.update(annotations)
            yield from ((child, scope) for child in [node.target, *annotations])
            if node.value is not None:
                yield node.value, scope
        elif not isinstance(node, ast.arg):
            yield from ((child, scope) for child in parts(node))

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Name(id=name):
                self._mentions.setdefault(name, node)
                if isinstance(node.ctx, ast.Del):
                    self._uncertain.add(name)
                if not is_load(node):
                    scope.bind(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self._mentions.setdefault(name, node)
                scope.bind(name, node)
            case ast.Import():
                for alias in node.names:
                    path = alias.name if alias.asname else alias.name.partition(".")[0]
                    scope.bind(alias.asname or path, path)
            case ast.ImportFrom(module=module):
                for alias in node.names:
                    if alias.name == "*":
                        self.stars.add(module or "")
                        if len(self.stars) > MOST_PATHS // 2:
                            raise TooLarge
                        self._starred.update(self.module.bound)
                    else:
                        scope.bind(alias.asname or alias.name, f"{module or ''}.{alias.name}")
            case ast.Assign(value=value):
                for target in node.targets:
                    _alias(target, value, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                _alias(target, value, scope)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                scope.stands_for(name, value)
                while scope.kind == "comprehension" and scope.parent is not None:
                    scope = scope.parent  # out of a comprehension, into its function
                    scope.bind(name, value)
            case ast.Global(names=names):
                self._uncertain.update(names)
                scope.elsewhere.update(dict.fromkeys(names, self.module))
            case ast.Nonlocal(names=names):
                outer = scope.parent
                for name in names:
                    scope.elsewhere[name] = next(outer.places(name)) if outer else self.module
            case _:
                for name in bound_names(node):
                    scope.bind(name)
                if isinstance(node, ast.ExceptHandler) and node.name:
                    self.caught.add(node.name)
                    self._uncertain.add(node.name)  # it is gone after the handler

    # ------------------------------------------------------------------------------- what names mean

    def is_builtin(self, node: ast.AST, *names: str) -> bool:
        """Whether a node is a name that may stand for one of these builtins."""
        if not isinstance(node, ast.Name) or node.id not in names:
            return False
        scopes = list(self.scopes[node].places(node.id))
        return scopes[-1].kind == "module" and not self._is_own(node.id)

    def _is_own(self, name: str) -> bool:
        """Whether the module binds this name for certain, before anything can mention the builtin."""
        if name not in self._own:
            self._own[name] = name not in self._uncertain and self._begins_as_own(name)
        return self._own[name]

    def _begins_as_own(self, name: str) -> bool:
        first = self._mentions.get(name)
        if first is None:
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

    def is_self(self, node: ast.AST) -> bool:
        """Whether a node is the name under which a method gets its own object, class or context."""
        if not isinstance(node, ast.Name) or node.id not in ("self", "cls", "ctx"):
            return False
        place = next(self.scopes[node].places(node.id))
        return place.me == node.id and place.times[node.id] == 1

    def values(self, node: ast.AST) -> list[Value]:
        """All that a name may be bound to; nothing if that isn't certain."""
        found: list[Value] = []
        if isinstance(node, ast.Name) and node.id not in self._uncertain | self._starred:
            for place in self.scopes[node].places(node.id):
                values = place.bound.get(node.id, [])
                if not 0 < len(values) == place.times[node.id] <= MOST_PATHS:
                    return []
                found += values
        return found

    def is_class(self, node: ast.AST) -> bool:
        """Whether a node is the name of a class of this file that nothing replaced."""
        values = self.values(node)
        return bool(values) and all(isinstance(v, ast.ClassDef) and self._is_plain(v) for v in values)

    def is_own(self, node: ast.AST) -> bool:
        """Whether what is stored on a node stays in the file: self, an own class, object or function."""
        match node:
            case ast.Attribute(value=of, attr="__class__"):
                return self.is_self(of)
            case ast.Call(func=func, args=[of]) if self.is_builtin(func, "type"):
                return self.is_self(of)
        values = self.values(node)
        return self.is_self(node) or (bool(values) and all(map(self._is_own_value, values)))

    def _is_own_value(self, value: Value) -> bool:
        if isinstance(value, ast.Call):
            return self.is_class(value.func) and "__new__" not in self._mentions
        return isinstance(value, _DEFINITIONS) and self._is_plain(value)

    def _is_plain(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
        """Whether a definition's name stands for what is defined: no decorator gave it to something else."""
        makers = [maker.func if isinstance(maker, ast.Call) else maker for maker in node.decorator_list[:2]]
        return makers == [] or (len(makers) == 1 and self.paths(makers[0]) == {"dataclasses.dataclass"})

    def paths(self, node: ast.AST) -> frozenset[str]:
        """The dotted paths in libraries that an expression may stand for: {"torch.nn.functional"}."""
        known, chain = self._paths_of_nodes, []
        while isinstance(node, ast.Attribute) and node not in known:
            chain.append(node)
            node = node.value
        if node not in known:
            found: set[str] = set()
            for leaf, tail in self._leaves(node):
                found |= {_below(path, tail) for path in self._of_leaf(leaf)}
            if len(found) > MOST_PATHS:
                raise TooLarge
            known[node] = frozenset(found)
        for attribute in reversed(chain):
            of = known[attribute.value]
            is_type = attribute.attr == "__class__" and not self.is_self(attribute.value)
            known[attribute] = (
                frozenset({OBJECT_TYPE}) if is_type else frozenset(_below(p, (attribute.attr,)) for p in of)
            )
            node = attribute
        return known[node]

    def _leaves(self, node: ast.AST) -> Iterator[tuple[str | ast.Name, Tail]]:
        """The names, or paths, that an expression's value comes from, each with the attributes asked."""
        stack: list[tuple[ast.AST, Tail]] = [(node, ())]
        while stack:
            node, tail = stack.pop()
            match node:
                case ast.Name():
                    yield node, tail
                case ast.Attribute(value=of, attr="__class__") if not self.is_self(of):
                    yield OBJECT_TYPE, tail
                case ast.Attribute(value=of, attr=name):
                    stack.append((of, (name, *tail)[: MOST_PARTS + 1]))
                case ast.NamedExpr(value=value):
                    stack.append((value, tail))
                case ast.BoolOp(values=values):
                    stack += [(value, tail) for value in values]
                case ast.IfExp(body=body, orelse=orelse):
                    stack += [(body, tail), (orelse, tail)]
                case ast.Call(func=func, args=[of]) if self.is_builtin(func, "type"):
                    if not self.is_self(of):
                        yield OBJECT_TYPE, tail
                case ast.Call(func=func, args=[of, ast.Constant(value=str() as name), *_]):
                    if self.is_builtin(func, "getattr"):
                        stack.append((of, (name, *tail)[: MOST_PARTS + 1]))

    def _of_leaf(self, leaf: str | ast.Name) -> Iterable[str]:
        if isinstance(leaf, str):
            return (leaf,)
        return set().union(*(self._solved((at, leaf.id)) for at in self.scopes[leaf].places(leaf.id)))

    def _solved(self, place: Place) -> set[str]:
        """What a name may stand for, with all names that it gets its values from, in rings too."""
        if place in self._paths:
            return self._paths[place]
        self._paths[place] = set()
        left, found = [place], []  # places to look at; paths to note
        while left:
            scope, name = to = left.pop()
            for value in scope.bound.get(name, ()):
                for leaf, tail in [(value, ())] if isinstance(value, str) else self._leaves(value):
                    if isinstance(leaf, str):
                        found.append((to, _below(leaf, tail)))
                        continue
                    for at in self.scopes[leaf].places(leaf.id):
                        self._flows[at, leaf.id].append((to, tail))
                        if (at, leaf.id) not in self._paths:
                            self._paths[at, leaf.id] = set()
                            left.append((at, leaf.id))
                        found += [(to, _below(path, tail)) for path in self._paths[at, leaf.id]]
            if scope is self.module and (name not in scope.bound or name in self._starred):
                found += [(to, f"{module}.{name}") for module in self.stars]
        while found:
            to, path = found.pop()
            if path not in self._paths[to]:
                if len(self._paths[to]) == MOST_PATHS:
                    raise TooLarge
                self._paths[to].add(path)
                found += [(user, _below(path, tail)) for user, tail in self._flows[to]]
        return self._paths[place]


def _alias(target: ast.expr, value: ast.expr, scope: Scope) -> None:
    left = [(target, value)]
    while left:
        target, value = left.pop()
        if isinstance(target, ast.Name):
            scope.stands_for(target.id, value)
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            both = [*target.elts, *value.elts]
            starred = any(isinstance(part, ast.Starred) for part in both)
            left += [] if starred else zip(target.elts, value.elts, strict=False)


def _parse(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError):
            raise NotPython from None


def _below(path: str, tail: Tail) -> str:
    return ".".join(".".join([path, *tail]).split(".")[: MOST_PARTS + 1])
