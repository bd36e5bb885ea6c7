"""The lines of a submission that a person should look at before its steps are marked.

This is the second line of defence. The first is the jail, the ban of finished operators and the comparison
outside: a submission that slips past the rules below has won nothing yet. Findings withhold a mark and decide
nothing. The source is read, never run.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from grader import library_source
from grader import policy_names as names
from grader.blame import steps_of_owners
from grader.course import Lab
from grader.nodes import bound_names, read_lines
from grader.syntax import MOST_PARTS, OBJECT_TYPE, NotPython, Syntax, Value
from grader.verdicts import Finding, printable

MOST_LINES = 20  # of one rule in one file: whoever looks has seen enough

IMPORT = "import outside the list"
BUILTIN = "builtin that runs text or opens files"
COMPUTED = "attribute or class by computed name"
INTERNALS = "interior of the interpreter"
LIAR = "object that can lie about itself"
NOT_FOR_LABS = "part of a library that no lab needs"
HIDDEN = "module inside a module"
CHANGE = "change of a library"
MODULE = "module as a value"
PASTE = "library source"
UNREADABLE = "too large or too deep to read"

Hit = tuple[str, int, str]  # rule, line, owner


def findings(source: str, lab: Lab) -> tuple[Finding, ...]:
    """The lines that withhold a step, ordered by step and line; never an exception, whatever the source is.

    What can't be parsed has none, since it can't be run either. A line in the code of a step's functions, or
    in a helper that this code refers to, belongs to that step; a line anywhere else to every step.
    """
    every = tuple(step.number for step in lab.steps)
    try:
        syntax = Syntax(source)
        hits = _capped([*_hits(syntax, lab), *_pastes(syntax)])
        steps = steps_of_owners(syntax, lab)
        lines = read_lines(source)
        found = {
            Finding(step, rule, line, printable(lines[line - 1].strip()))
            for rule, line, owner in hits
            for step in steps.get(owner) or every
        }
    except NotPython:
        return ()
    except Exception:  # a hostile tree: too deep, too large, or a case that nobody thought of
        found = {Finding(step, UNREADABLE, 0, "") for step in every}
    return tuple(sorted(found, key=lambda finding: (finding.step, finding.line, finding.rule)))


def _capped(hits: Iterable[Hit]) -> list[Hit]:
    lines: dict[str, set[int]] = defaultdict(set)
    kept = []
    for hit in sorted(set(hits)):
        rule, line, _ = hit
        if line in lines[rule] or len(lines[rule]) < MOST_LINES:
            lines[rule].add(line)
            kept.append(hit)
    return kept


def _hits(syntax: Syntax, lab: Lab) -> Iterator[Hit]:
    for node in syntax.nodes:
        rules = _RULES.get(type(node))
        found = [LIAR for name in bound_names(node) if name in names.LYING_HOOKS]
        if rules is not None:
            found += rules(node, syntax, lab)
        for rule in found:
            yield rule, getattr(node, "lineno", 0), syntax.owners[node]


def _pastes(syntax: Syntax) -> Iterator[Hit]:
    functions = [n for n in syntax.nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in library_source.pasted(functions):
        yield PASTE, function.lineno, syntax.owners[function]


# -------------------------------------------------------------------------------------- rules by kind of node


def _import(node: ast.Import, syntax: Syntax, lab: Lab) -> Iterator[str]:
    for alias in node.names:
        yield from _import_rules(alias.name, lab)
    if syntax.scopes[node].kind == "class":
        yield MODULE


def _import_from(node: ast.ImportFrom, syntax: Syntax, lab: Lab) -> Iterator[str]:
    if node.level or not node.module:
        yield IMPORT
        return
    yield from _import_rules(node.module, lab)
    for alias in node.names:
        path = f"{node.module}.{alias.name}"
        yield from _path_rules(path)
        if syntax.scopes[node].kind == "class" and names.is_module(path):
            yield MODULE


def _import_rules(path: str, lab: Lab) -> Iterator[str]:
    if path.partition(".")[0] not in (*lab.rules.imports, "__future__"):
        yield IMPORT
    yield from _path_rules(path)


def _name(node: ast.Name, syntax: Syntax, lab: Lab) -> Iterator[str]:
    parent = syntax.parents.get(node)
    if not isinstance(node.ctx, ast.Load):
        if node.id == "__match_args__" and not _is_spelled_out(parent):
            yield COMPUTED
        return
    if node.id in names.MACHINERY:
        yield INTERNALS
    elif syntax.is_builtin(node, *names.RUNNERS) and not _is_own_dict(node, parent, syntax):
        yield BUILTIN
    elif _is_handed_on(node, parent, syntax):
        yield COMPUTED
    if not isinstance(parent, ast.Attribute):
        yield from _use_rules(node, syntax)


def _is_handed_on(node: ast.Name, parent: ast.AST | None, syntax: Syntax) -> bool:
    """Whether getattr or its kin is a value, or `type` gets another name: then no call shows its use."""
    if syntax.is_builtin(node, "type"):
        return isinstance(parent, ast.Assign | ast.NamedExpr)
    return syntax.is_builtin(node, *names.BY_NAME) and not (
        isinstance(parent, ast.Call) and parent.func is node
    )


def _is_own_dict(node: ast.Name, parent: ast.AST | None, syntax: Syntax) -> bool:
    """Whether it is vars(self)."""
    return (
        node.id == "vars"
        and isinstance(parent, ast.Call)
        and [syntax.is_self(of) for of in parent.args] == [True]
    )


def _is_spelled_out(parent: ast.AST | None) -> bool:
    """Whether an assignment's value is a tuple of constants."""
    value = getattr(parent, "value", None)
    return isinstance(value, ast.Tuple) and all(isinstance(part, ast.Constant) for part in value.elts)


def _attribute(node: ast.Attribute, syntax: Syntax, lab: Lab) -> Iterator[str]:
    base = syntax.paths(node.value)
    yield from _attribute_rules(node.attr, node.value, base, syntax)
    if not isinstance(node.ctx, ast.Load):
        yield from _change_rules(node.attr, node.value, base, syntax)
    if not isinstance(syntax.parents.get(node), ast.Attribute):
        yield from _use_rules(node, syntax)


def _attribute_rules(name: str, of: ast.expr, base: frozenset[str], syntax: Syntax) -> Iterator[str]:
    """What an attribute's own name says, whatever object it is fetched from."""
    if name in names.INSIDES or (name == "obj" and isinstance(of, ast.Name) and of.id in syntax.caught):
        yield INTERNALS
    elif name in names.LIARS:
        yield LIAR
    elif names.reads(name) and not syntax.is_self(of):
        yield NOT_FOR_LABS
    elif name in ("format", "format_map") and not syntax.is_self(of) and not _is_plain_template(of, syntax):
        yield COMPUTED
    elif name.startswith("__") and name.endswith("__"):
        if name in names.ON_SUPER:
            harmless = _is_on_self(of, base, syntax)
        elif name == "__dict__":
            harmless = not base and (syntax.is_own(of) or _is_shown(of, syntax))
        else:
            harmless = name in names.HARMLESS
        if not harmless:
            yield INTERNALS


def _is_plain_template(node: ast.expr, syntax: Syntax) -> bool:
    values = [node] if isinstance(node, ast.Constant) else syntax.values(node)
    return bool(values) and all(
        isinstance(value, ast.Constant) and isinstance(value.value, str) and names.fills_plainly(value.value)
        for value in values
    )


def _is_on_self(of: ast.expr, base: frozenset[str], syntax: Syntax) -> bool:
    """Whether `of.__setattr__` or its kin is called on a method's own object."""
    if isinstance(of, ast.Call) and syntax.is_builtin(of.func, "super"):
        return not of.args or syntax.is_self(of.args[-1])
    call = syntax.parents.get(syntax.parents.get(of, of))
    on_self = isinstance(call, ast.Call) and bool(call.args) and syntax.is_self(call.args[0])
    return on_self and (syntax.is_builtin(of, "object") or "torch.nn.Module" in base)


def _is_shown(of: ast.expr, syntax: Syntax) -> bool:
    """Whether `of.__dict__` is only compared or shown."""
    parent = syntax.parents.get(syntax.parents.get(of, of))
    return isinstance(parent, ast.Compare | ast.FormattedValue) or (
        isinstance(parent, ast.Call)
        and syntax.is_builtin(parent.func, *names.ASKING, "dict", "len", "sorted")
    )


def _change_rules(name: str, of: ast.expr, base: frozenset[str], syntax: Syntax) -> Iterator[str]:
    """What storing or deleting an attribute says."""
    own = syntax.is_own(of)
    for path in base:
        if not f"{path}.{name}".startswith(names.SETTABLE):
            yield CHANGE
    if name in names.LYING_HOOKS or (name in names.IDENTITY and not own):
        yield LIAR
    elif not own and (name in names.METHODS or (name.startswith("__") and name.endswith("__"))):
        yield CHANGE


def _use_rules(node: ast.expr, syntax: Syntax) -> Iterator[str]:
    """What the whole dotted name says, and whether it hands on a module under another name."""
    yield from _handed_on(syntax.paths(node), node, syntax)


def _handed_on(paths: Iterable[str], node: ast.expr, syntax: Syntax) -> Iterator[str]:
    for path in paths:
        yield from _path_rules(path)
        if names.is_module(path) and not _stays(node, syntax):
            yield MODULE
        if path in names.ONLY_CALLED and not _is_called(node, syntax):
            yield COMPUTED


def _is_called(node: ast.expr, syntax: Syntax) -> bool:
    """Whether a function is called, or gets a name that the rules follow."""
    parent = syntax.parents.get(node)
    if isinstance(parent, ast.Attribute) or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        return True
    if isinstance(parent, ast.Assign):
        return all(isinstance(target, ast.Name) for target in parent.targets)
    return isinstance(parent, ast.Call) and parent.func is node


def _path_rules(path: str) -> Iterator[str]:
    root, *parts = path.split(".")
    if names.is_held(path):
        yield HIDDEN
    if len(parts) >= MOST_PARTS or not names.is_needed(path):
        yield NOT_FOR_LABS
    for part in parts:
        private = part.startswith("_") and not part.startswith(("__", "_foreach_"))
        if names.reads(part) or (private and part not in names.PRIVATE):
            yield NOT_FOR_LABS
    if root == "sys" and parts and parts[0] not in (*names.SYS, "*"):
        yield NOT_FOR_LABS
    if len(parts) > 1 and not parts[1].startswith(names.ONLY.get((root, parts[0]), "")):
        yield NOT_FOR_LABS
    if any(".".join([root, *parts[:end]]) in names.NOT_FOR_LABS for end in range(1, len(parts) + 1)):
        yield NOT_FOR_LABS


def _stays(node: ast.AST, syntax: Syntax) -> bool:
    """Whether a module is only asked something, or gets a name that the rules follow."""
    parent = syntax.parents.get(node)
    if isinstance(parent, ast.Attribute) or isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
        return True  # then the rules look at the longer name, or at what is stored
    while isinstance(parent, ast.BoolOp):  # "if plt and verbose"
        node, parent = parent, syntax.parents.get(parent)
    match parent:
        case ast.Expr() | ast.Compare() | ast.UnaryOp() | ast.FormattedValue() | ast.Delete() | ast.Assert():
            return True
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            return test is node
        case ast.Call(func=func):
            # A module that is called is a function of the same name.
            return func is node or syntax.is_builtin(func, *names.ASKING)
        case ast.Assign(targets=targets, value=value):
            plain = all(isinstance(target, ast.Name) for target in targets)
            return value is not node or (plain and syntax.scopes[parent].kind != "class")
    return False


def _call(node: ast.Call, syntax: Syntax, lab: Lab) -> Iterator[str]:
    if syntax.is_builtin(node.func, *names.BY_NAME):
        yield from _by_name(node, syntax)
    elif syntax.is_builtin(node.func, "type") and not _has_one(node):
        yield COMPUTED
    for path in syntax.paths(node.func):
        yield from _call_of(path, node, syntax)


def _call_of(path: str, node: ast.Call, syntax: Syntax) -> Iterator[str]:
    """What the arguments say of a call to a function of a library."""
    keywords = {keyword.arg for keyword in node.keywords}
    if path == "functools.wraps" and not _has_one(node):
        yield COMPUTED  # it fetches and sets the attributes that the others name
    elif path in ("functools.partial", "functools.partialmethod"):
        first = node.args[0] if node.args else node
        if isinstance(first, ast.Starred) or any(p.startswith("functools.") for p in syntax.paths(first)):
            yield COMPUTED
    elif path == "logging.basicConfig" and not keywords.isdisjoint({None, "filename", "handlers", "style"}):
        yield NOT_FOR_LABS
    elif path == "logging.Formatter" and (len(node.args) > 2 or not keywords.isdisjoint({None, "style"})):
        yield COMPUTED  # its other styles read attributes as str.format does
    elif path == "matplotlib.use" and not _is_name_of_backend(node):
        yield NOT_FOR_LABS


def _has_one(node: ast.Call) -> bool:
    """Whether a call has one argument, in its place."""
    return len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.Starred)


def _is_name_of_backend(node: ast.Call) -> bool:
    match node.args:
        case [ast.Constant(value=str() as name)]:
            return "://" not in name
    return False


def _by_name(node: ast.Call, syntax: Syntax) -> Iterator[str]:
    """getattr and its kin: a name written out is an attribute like any other, a computed one is a finding."""
    assert isinstance(node.func, ast.Name)
    match node.args:
        case [ast.Starred(), *_] | [_, ast.Starred(), *_]:
            yield COMPUTED
        case [of, ast.Constant(value=str() as name), *_]:
            base = syntax.paths(of)
            yield from _attribute_rules(name, of, base, syntax)
            if node.func.id in ("setattr", "delattr"):
                yield from _change_rules(name, of, base, syntax)
            else:
                yield from _handed_on({f"{path}.{name}" for path in base}, node, syntax)
        case [of, _, *_] if node.func.id in ("setattr", "delattr"):
            if not syntax.is_own(of):
                yield COMPUTED
        case [of, name, *_]:
            own = syntax.is_self(of) and (node.func.id != "getattr" or _begins_plainly(name))
            if not own and (syntax.paths(of) or not _begins_plainly(name)):
                yield COMPUTED


def _begins_plainly(name: ast.expr) -> bool:
    """Whether a computed name starts with text such that no name of the interpreter's can come out."""
    while isinstance(name, ast.BinOp) and isinstance(name.op, ast.Add):
        name = name.left
    match name:
        case (
            ast.JoinedStr(values=[ast.Constant(value=str() as start), *_])
            | ast.Constant(value=str() as start)
        ):
            return start[:1].isalpha() and not any(
                inside.startswith(start) for inside in (*names.INSIDES, *names.LIARS)
            )
    return False


def _class(node: ast.ClassDef, syntax: Syntax, lab: Lab) -> Iterator[str]:
    for base in node.bases:
        made = base.value if isinstance(base, ast.Subscript) else base  # Generic[T]
        paths = syntax.paths(made)
        for path in paths:
            _, _, name = path.rpartition(".")
            if path.startswith(OBJECT_TYPE) or name in (*names.TENSORS, *names.LYING_MODES):
                yield LIAR
        if syntax.is_builtin(made, "type") or not (paths or _is_plain_base(made, syntax)):
            yield LIAR
    for keyword in node.keywords:
        if keyword.arg in (None, "metaclass"):
            paths = syntax.paths(keyword.value)
            if not paths or not paths.issubset(names.METACLASSES):
                yield LIAR


def _is_plain_base(base: Value, syntax: Syntax) -> bool:
    """Whether it is a class of this file, a builtin or a named tuple, and nothing that only running shows."""
    match base:
        case ast.Call(func=func):
            return not syntax.paths(func).isdisjoint(names.CLASS_MAKERS)
        case ast.Name() as used:
            values = syntax.values(used)
            followed = bool(values) and all(_is_class(value, syntax) for value in values)
            return followed or _is_unbound(used, syntax)
    return False


def _is_class(value: Value, syntax: Syntax) -> bool:
    if isinstance(value, ast.Name):
        return syntax.is_class(value) or _is_unbound(value, syntax)
    return isinstance(value, ast.ClassDef)


def _is_unbound(node: ast.Name, syntax: Syntax) -> bool:
    return all(node.id not in place.bound for place in syntax.scopes[node].places(node.id))


def _constant(node: ast.Constant, syntax: Syntax, lab: Lab) -> Iterator[str]:
    if isinstance(node.value, str) and not names.SPELLED.isdisjoint(node.value.split(".")):
        yield INTERNALS


def _match_class(node: ast.MatchClass, syntax: Syntax, lab: Lab) -> Iterator[str]:
    for name in node.kwd_attrs:
        yield from _attribute_rules(name, node.cls, frozenset(), syntax)


_RULES: dict[type[ast.AST], Callable[..., Iterator[str]]] = {
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.ClassDef: _class,
    ast.Constant: _constant,
    ast.MatchClass: _match_class,
}
