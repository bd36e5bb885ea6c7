"""The names that the policy knows: what leads out of a lab, and what looks as if it did but doesn't."""

from __future__ import annotations

import sys


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _dunder(names: str) -> frozenset[str]:
    return frozenset(f"__{name}__" for name in names.split())


# --- builtins

RUNNERS = ("eval", "exec", "compile", "__import__", "globals", "locals", "vars", "open")
BY_NAME = ("getattr", "setattr", "delattr", "hasattr")
ASKING = (
    "dir",
    "getattr",
    "hasattr",
    "help",
    "id",
    "print",
    "repr",
    "str",
    "type",
)  # nothing gets out of these
MACHINERY = _dunder("builtins loader spec build_class")

# --- attributes of any object

# Double-underscore attributes that lead nowhere; all others are findings.
HARMLESS = _dunder("""
    abs add and bool call contains divmod eq float floordiv ge getitem gt hash index int invert iter le
    len lt matmul mod mul ne neg next or pos pow radd repr rmul round rsub rtruediv setitem delitem str
    sub truediv xor iadd isub imul itruediv enter exit init new post_init del init_subclass set_name
    getstate setstate deepcopy copy format dir missing all name qualname module doc class dict version
    file annotations slots members author cause context dataclass_fields
""")
ON_SUPER = _dunder("setattr delattr getattr")  # harmless as super().__setattr__ or object.__setattr__
INSIDES = _names("""
    tb_frame tb_next f_back f_globals f_locals f_builtins f_code f_trace gi_frame gi_code cr_frame cr_code
    ag_frame ag_code co_consts co_code co_names co_varnames co_filename co_freevars co_cellvars
    func_globals func_code func_closure mro ctypes
""")
# Names that nobody writes as text, unless to fetch an attribute by it.
SPELLED = (INSIDES - {"mro", "ctypes"}) | _dunder("""
    globals code closure subclasses mro bases base builtins loader spec import traceback getattribute
    reduce reduce_ex self func torch_function torch_dispatch
""")
LIARS = ("_make_subclass", "_make_wrapper_subclass", "as_subclass")
LYING_HOOKS = _dunder(
    "torch_function torch_dispatch array_function array_ufunc class instancecheck subclasscheck getattribute"
)
TENSORS = ("Tensor", "Parameter", "UninitializedParameter", "Buffer", "ndarray")
LYING_MODES = ("TorchDispatchMode", "TorchFunctionMode")

# --- parts of libraries

SYS = _names("""
    argv byteorder dont_write_bytecode exc_info executable exit flags float_info getdefaultencoding
    getrecursionlimit getrefcount getsizeof hexversion implementation int_info intern maxsize maxunicode
    path platform setrecursionlimit stderr stdin stdout version version_info
""")
NOT_FOR_LABS = frozenset(
    f"{module}.{name}"
    for module, names in {
        "torch": """ao classes compile compiler contrib cpp cpp_extension distributed export from_file fx hub
            jit library load monitor multiprocessing ops onnx overrides package quantization save
            serialization storage""",
        "torch.cuda": "CUDAPluggableAllocator",
        "torch.testing": "FileCheck",
        "numpy": """DataSource core ctypeslib distutils f2py fromfile fromregex genfromtxt get_include lib
            load loadtxt memmap save savetxt savez savez_compressed source""",
        "threading": "settrace setprofile settrace_all_threads setprofile_all_threads excepthook",
        "logging": "config handlers FileHandler",
        "typing": "get_type_hints ForwardRef evaluate_forward_ref",
        "typing_extensions": "get_type_hints ForwardRef evaluate_forward_ref get_annotations",
        "operator": "attrgetter methodcaller",
    }.items()
    for name in names.split()
)
# Of these packages labs need a little: what begins like this.
ONLY = {("torch", "utils"): ("checkpoint", "data"), ("numpy", "testing"): ("assert",)}
# Private by name, but old and public enough that courses teach them.
PRIVATE = ("_params_t", "_LRScheduler", "_Loss", "_WeightedLoss", "_single", "_pair", "_triple", "_assert")
# Methods that run while a class is made, not when somebody calls them.
RUN_AT_IMPORT = ("__init_subclass__", "__set_name__", "__prepare__", "__mro_entries__", "__class_getitem__")
SETTABLE = ("torch.backends", "sys.dont_write_bytecode")

# Modules that other modules hold by accident, without honest attributes of torch, numpy and matplotlib.
HELD_MODULES = (sys.stdlib_module_names | {"bltns", "np", "numpy", "torch"}) - _names(
    "abc array chunk collections copy random select signal time trace types typing"
)
