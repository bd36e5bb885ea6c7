"""The policy: each way around the grader is a finding, no honest habit is, and nothing makes it fail."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from grader import policy
from grader.course import Lab, Step, load_course
from grader.implementations import apply_mistake
from grader.policy import findings

ROOT = Path(__file__).resolve().parents[1]


def a_step(number: int, *todo: str) -> Step:
    return Step(
        number=number,
        id=f"s{number}",
        title="S",
        points=1,
        section="1",
        todo=todo,
        tests=(f"test_{number}",),
        hints=(),
    )


LAB = Lab(
    name="01_small",
    folder=Path("labs"),
    solution_folder=Path("solutions"),
    title="Small",
    summary="Small.",
    test_file="test_small.py",
    steps=(a_step(1, "first"), a_step(2, "Second.step"), a_step(3, "third")),
)
HEAD = """
import logging
import math
import random
import sys
import threading
import typing
import warnings
import functools
import dataclasses
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
"""


def rules(source: str) -> set[str]:
    return {finding.rule for finding in findings(source, LAB)}


BYPASSES = [
    # imports
    ("import os", policy.IMPORT),
    ("import os.path as p", policy.IMPORT),
    ("from ctypes import *", policy.IMPORT),
    ("from . import helper", policy.IMPORT),
    ("from .helper import f", policy.IMPORT),
    ("def f():\n    import importlib", policy.IMPORT),
    ("import implementation_under_test", policy.IMPORT),
    ("import pdb", policy.IMPORT),
    # builtins
    ("eval('1')", policy.BUILTIN),
    ("f = eval", policy.BUILTIN),
    ("list(map(exec, ['1']))", policy.BUILTIN),
    ("compile('1', '', 'eval')", policy.BUILTIN),
    ("__import__('os')", policy.BUILTIN),
    ("globals()['x'] = 1", policy.BUILTIN),
    ("def f():\n    return locals()", policy.BUILTIN),
    ("vars(torch)", policy.BUILTIN),
    ("import torch as self\nvars(self)", policy.BUILTIN),
    ("open('notes.txt').read()", policy.BUILTIN),
    ("with open('notes.txt', 'w') as file:\n    pass", policy.BUILTIN),
    ("__builtins__['eval']('1')", policy.INTERNALS),
    ("__loader__.load_module('os')", policy.INTERNALS),
    ("def f(run=exec):\n    run('1')", policy.BUILTIN),
    ("ｅｖａｌ('1')", policy.BUILTIN),
    ("if False:\n    def eval(x): return x\neval('1')", policy.BUILTIN),
    ("def eval(x): return x\ndel eval\neval('1')", policy.BUILTIN),
    ("f = eval\ndef eval(x): return x\nf('1')", policy.BUILTIN),
    ("@(lambda f: eval)\ndef eval(x): return x\neval('1')", policy.BUILTIN),
    ("class A:\n    eval = 1\n    def f(self):\n        return eval('1')", policy.BUILTIN),
    ("def f():\n    global eval\n    if 0:\n        eval = 1\neval('1')", policy.BUILTIN),
    ("def f(x: 'eval(\"1\")'): pass\ntyping.get_type_hints(f)", policy.BUILTIN),
    ("@functools.singledispatch\ndef f(x): pass\n@f.register\ndef _(x: 'open(\"a\")'): pass", policy.BUILTIN),
    ("__name__ = '__main__'\nif __name__ == '__main__':\n    eval('1')", policy.BUILTIN),
    ("def f(__name__):\n    if __name__ == '__main__':\n        eval('1')", policy.BUILTIN),
    ("def f():\n    if __name__ == '__main__':\n        eval('1')", policy.BUILTIN),
    ("class A:\n    if __name__ == '__main__':\n        eval('1')", policy.BUILTIN),
    ("for x in y:\n    if __name__ == '__main__':\n        eval('1')", policy.BUILTIN),
    ("try:\n    if __name__ == '__main__':\n        eval('1')\nfinally:\n    pass", policy.BUILTIN),
    ("with x:\n    if __name__ == '__main__':\n        eval('1')", policy.BUILTIN),
    ("if x:\n    if __name__ == '__main__':\n        eval('1')", policy.BUILTIN),
    ("from x import y as __name__\nif __name__ == '__main__':\n    eval('1')", policy.BUILTIN),
    ("f({'__name__': '__main__'})\nif __name__ == '__main__':\n    eval('1')", policy.BUILTIN),
    ("f(__name__='__main__')\nif __name__ == '__main__':\n    eval('1')", policy.BUILTIN),
    ("x.__name__ = '__main__'\nif __name__ == '__main__':\n    eval('1')", policy.BUILTIN),
    ("if __name__ == '__main__':\n    pass\nelse:\n    eval('1')", policy.BUILTIN),
    ("if __name__ != '__main__':\n    eval('1')", policy.BUILTIN),
    # attributes by computed names
    ("getattr(torch, 'layer' + '_norm')", policy.COMPUTED),
    ("getattr(F, name)", policy.COMPUTED),
    ("getattr(x, '__glo' + 'bals__')", policy.COMPUTED),
    ("getattr(x, f'__{name}__')", policy.COMPUTED),
    ("getattr(x, f't{name}')", policy.COMPUTED),
    ("getattr(*pair)", policy.COMPUTED),
    ("class A:\n    def f(self, name):\n        return getattr(self, name)", policy.COMPUTED),
    ("functools.reduce(getattr, names, x)", policy.COMPUTED),
    ("g = getattr", policy.COMPUTED),
    ("setattr(x, name, 1)", policy.COMPUTED),
    ("import torch as self\nsetattr(self, name, 1)", policy.COMPUTED),
    ("getattr(x, '__globals__')", policy.INTERNALS),
    ("type('T', (torch.Tensor,), {})", policy.COMPUTED),
    ("t = type", policy.COMPUTED),
    ("functools.wraps(f, assigned=('__glo' + 'bals__',))(g)", policy.COMPUTED),
    ("functools.wraps(f, ('__glo' + 'bals__',))(g)", policy.COMPUTED),
    ("functools.wraps(f, **kinds)(g)", policy.COMPUTED),
    ("functools.wraps(*pair)(g)", policy.COMPUTED),
    ("w = functools.wraps\nw(f, **kinds)(g)", policy.COMPUTED),
    ("map(functools.wraps, fs, kinds)", policy.COMPUTED),
    ("functools.partial(functools.wraps, f, ['x'])", policy.COMPUTED),
    ("functools.partial(functools.reduce, f)", policy.COMPUTED),
    ("functools.partial(*pair)", policy.COMPUTED),
    ("functools.partial(getattr, x)", policy.COMPUTED),
    ("functools.partial(eval, '1')", policy.BUILTIN),
    ("x = [functools.partial]", policy.COMPUTED),
    ("'{0.__class__}'.format(x)", policy.COMPUTED),
    ("'{:{0.a}}'.format(x)", policy.COMPUTED),
    ("('{0.__tra' + 'ceback__}').format(x)", policy.COMPUTED),
    ("str.format(text, x)", policy.COMPUTED),
    ("text.format_map(x)", policy.COMPUTED),
    ("t = '{0.a}'\nt.format(x)", policy.COMPUTED),
    ("t = '{}'\nfor t in x:\n    t.format(x)", policy.COMPUTED),
    ("logging.Formatter(text, style='{')", policy.COMPUTED),
    ("setattr(x, 'st' + 'd', f)", policy.COMPUTED),
    ("def f(self, name):\n    setattr(self, name, 1)", policy.COMPUTED),
    ("class A:\n    __match_args__ = ('__glo' + 'bals__',)", policy.COMPUTED),
    ("class A:\n    __match_args__ = ('__globals__',)", policy.INTERNALS),
    ("match f:\n    case object(__globals__=g):\n        pass", policy.INTERNALS),
    # the interpreter's insides
    ("f.__globals__", policy.INTERNALS),
    ("f.__code__", policy.INTERNALS),
    ("f.__closure__[0].cell_contents", policy.INTERNALS),
    ("().__class__.__bases__[0].__subclasses__()", policy.INTERNALS),
    ("object.__subclasses__()", policy.INTERNALS),
    ("x.__class__.__mro__", policy.INTERNALS),
    ("type(x).mro()", policy.INTERNALS),
    ("print.__self__.eval", policy.INTERNALS),
    ("error.__traceback__.tb_frame", policy.INTERNALS),
    ("frame.f_back.f_locals", policy.INTERNALS),
    ("(x for x in y).gi_frame", policy.INTERNALS),
    ("try:\n    torch.nope\nexcept AttributeError as e:\n    m = e.obj", policy.INTERNALS),
    ("torch.__dict__['ops']", policy.INTERNALS),
    ("object.__getattribute__(x, name)", policy.INTERNALS),
    ("type.__setattr__(torch.Tensor, 'std', f)", policy.INTERNALS),
    ("torch.__getattr__('compile')", policy.INTERNALS),
    ("x.__reduce_ex__(2)", policy.INTERNALS),
    ("f.__annotations__ = {'x': text}", policy.INTERNALS),
    ("f.__annotations__['x'] = text", policy.INTERNALS),
    ("__annotations__['x'] = text", policy.INTERNALS),
    ("x.__dict__['std'] = f", policy.INTERNALS),
    ("x.__dict__.update(std=f)", policy.INTERNALS),
    ("object.__setattr__(x, 'std', f)", policy.INTERNALS),
    ("nn.Module.__setattr__(x, 'forward', f)", policy.INTERNALS),
    ("super(A, x).__setattr__('std', f)", policy.INTERNALS),
    ("np.zeros(3).ctypes.data", policy.INTERNALS),
    # objects that lie
    ("class T(torch.Tensor): pass", policy.LIAR),
    ("class T(nn.Parameter): pass", policy.LIAR),
    ("class T(np.ndarray): pass", policy.LIAR),
    ("Base = torch.Tensor\nclass T(Base): pass", policy.LIAR),
    ("class T(type(torch.zeros(1))): pass", policy.LIAR),
    ("class T(torch.zeros(1).__class__): pass", policy.LIAR),
    ("B = type(torch.zeros(1))\nclass T(B): pass", policy.LIAR),
    ("class A:\n    @classmethod\n    def __torch_function__(cls, *a): return True", policy.LIAR),
    ("class A:\n    __torch_dispatch__ = lambda *a: 1", policy.LIAR),
    ("class A:\n    @property\n    def __class__(self): return torch.Tensor", policy.LIAR),
    ("torch.Tensor._make_subclass(T, x)", policy.LIAR),
    ("x.as_subclass(T)", policy.LIAR),
    ("x.__class__ = T", policy.LIAR),
    ("class M(type): pass", policy.LIAR),
    ("class T([torch.Tensor][0]): pass", policy.LIAR),
    ("for B in [torch.Tensor]:\n    class T(B): pass", policy.LIAR),
    ("*_, B = 1, torch.Tensor\nclass T(B): pass", policy.LIAR),
    ("class T(np.ndarray[int]): pass", policy.LIAR),
    ("class A:\n    def __prepare__(self, name, bases): return {}", policy.LIAR),
    ("class A:\n    from functools import partial as __prepare__", policy.LIAR),
    ("class A:\n    def __mro_entries__(self, bases): return ()", policy.LIAR),
    ("class A:\n    def __reduce__(self): return f, ()", policy.LIAR),
    ("class A:\n    def __reduce_ex__(self, v): return f, ()", policy.LIAR),
    ("class M: pass\nclass A(metaclass=M()): pass", policy.LIAR),
    ("class A(**kinds): pass", policy.LIAR),
    ("class A(metaclass=type): pass", policy.LIAR),
    ("class A:\n    __module__ = 'torch'", policy.LIAR),
    ("class A:\n    __name__ = 'torch'", policy.LIAR),
    ("class A:\n    __annotations__ = {}", policy.LIAR),
    ("__name__ = 'torch.nn.modules.mine'", policy.LIAR),
    ("f.__module__ = 'torch'", policy.LIAR),
    ("f.__name__ = 'torch'", policy.LIAR),
    ("f.__qualname__ = 'torch'", policy.LIAR),
    ("f.__doc__ = 'torch'", policy.LIAR),
    ("setattr(f, '__module__', 'torch')", policy.LIAR),
    ("from torch.overrides import TorchFunctionMode", policy.NOT_FOR_LABS),
    ("from torch.utils._python_dispatch import TorchDispatchMode", policy.NOT_FOR_LABS),
    # parts of libraries
    ("torch._C._nn.gelu", policy.NOT_FOR_LABS),
    ("from torch import _C as c", policy.NOT_FOR_LABS),
    ("import torch._dynamo", policy.NOT_FOR_LABS),
    ("torch.ops.aten.native_layer_norm(x)", policy.NOT_FOR_LABS),
    ("import torch as t\nt.ops.aten", policy.NOT_FOR_LABS),
    ("x = torch\nx.ops.aten", policy.NOT_FOR_LABS),
    ("x = y = torch\ny.ops", policy.NOT_FOR_LABS),
    ("x = torch\nz = x\nz.ops", policy.NOT_FOR_LABS),
    ("(t := torch).ops", policy.NOT_FOR_LABS),
    ("def f():\n    import torch as t\n    return t.ops", policy.NOT_FOR_LABS),
    ("def f():\n    global t\n    import torch as t\nt.ops", policy.NOT_FOR_LABS),
    ("getattr(torch, 'ops').aten", policy.NOT_FOR_LABS),
    ("x = getattr(torch, 'nn')\nx._reduction", policy.NOT_FOR_LABS),
    ("from torch import *\ncompile(f)", policy.BUILTIN),
    ("from torch.nn.functional import *\nimportlib.import_module('os')", policy.HIDDEN),
    ("torch.library.Library('a', 'DEF')", policy.NOT_FOR_LABS),
    ("torch.hub.load('a', 'b')", policy.NOT_FOR_LABS),
    ("torch.jit.script(f)", policy.NOT_FOR_LABS),
    ("@torch.compiler.disable\ndef f(x): return x", policy.NOT_FOR_LABS),
    ("torch.save(x, 'f')", policy.NOT_FOR_LABS),
    ("import torch.utils.cpp_extension as e", policy.NOT_FOR_LABS),
    ("from torch import utils as u\nu.cpp_extension.load()", policy.NOT_FOR_LABS),
    ("import torch.multiprocessing as mp", policy.NOT_FOR_LABS),
    ("torch.utils.dlpack.from_dlpack(x)", policy.NOT_FOR_LABS),
    ("torch.testing._internal", policy.NOT_FOR_LABS),
    ("sys.modules['torch']", policy.NOT_FOR_LABS),
    ("from sys import modules", policy.NOT_FOR_LABS),
    ("from sys import *\nmodules['torch']", policy.NOT_FOR_LABS),
    ("sys._getframe(1)", policy.NOT_FOR_LABS),
    ("sys.settrace(f)", policy.NOT_FOR_LABS),
    ("sys.meta_path.insert(0, f)", policy.NOT_FOR_LABS),
    ("threading.settrace(f)", policy.NOT_FOR_LABS),
    ("np.load('f', allow_pickle=True)", policy.NOT_FOR_LABS),
    ("np.ctypeslib.as_array(p)", policy.NOT_FOR_LABS),
    ("np.lib.stride_tricks", policy.NOT_FOR_LABS),
    ("np.testing.runstring('1', {})", policy.NOT_FOR_LABS),
    ("logging.config.dictConfig({})", policy.NOT_FOR_LABS),
    ("logging.basicConfig(filename='a')", policy.NOT_FOR_LABS),
    ("logging.basicConfig(**kinds)", policy.NOT_FOR_LABS),
    ("logging.FileHandler('a')", policy.NOT_FOR_LABS),
    ("@functools.singledispatch\ndef f(x): pass", policy.NOT_FOR_LABS),
    ("functools.singledispatchmethod(f)", policy.NOT_FOR_LABS),
    ("functools.update_wrapper(g, f, ('__glo' + 'bals__',))", policy.NOT_FOR_LABS),
    ("from functools import update_wrapper as u", policy.NOT_FOR_LABS),
    ("import operator\noperator.attrgetter('a')", policy.NOT_FOR_LABS),
    ("import operator\noperator.methodcaller('a')", policy.NOT_FOR_LABS),
    ("from torch.autograd.profiler_util import attrgetter", policy.NOT_FOR_LABS),
    ("import enum\n@enum.global_enum\nclass E(enum.Enum): a = 1", policy.NOT_FOR_LABS),
    ("E._convert_('X', 'sys', f)", policy.NOT_FOR_LABS),
    ("dataclasses.make_dataclass('A', (), namespace={})", policy.NOT_FOR_LABS),
    ("x.tofile('a.py')", policy.NOT_FOR_LABS),
    ("x.dump('a.py')", policy.NOT_FOR_LABS),
    ("getattr(x, 'tofile')('a.py')", policy.NOT_FOR_LABS),
    ("torch.UntypedStorage.from_file('a')", policy.NOT_FOR_LABS),
    ("import matplotlib.pyplot as plt\nplt.switch_backend('a')", policy.NOT_FOR_LABS),
    ("import matplotlib\nmatplotlib.use('module://a')", policy.NOT_FOR_LABS),
    ("import matplotlib\nmatplotlib.use(name)", policy.NOT_FOR_LABS),
    ("from torch.nn.modules.module import register_module_forward_hook", policy.NOT_FOR_LABS),
    ("nn.modules.module.register_module_full_backward_hook(f)", policy.NOT_FOR_LABS),
    ("torch.optim.optimizer.register_optimizer_step_post_hook(f)", policy.NOT_FOR_LABS),
    ("from torch.xpu import cast", policy.NOT_FOR_LABS),
    ("torch.xpu.cast", policy.NOT_FOR_LABS),
    ("from torch.utils.data.datapipes.utils.decoder import decode", policy.NOT_FOR_LABS),
    ("torch.nn.quantized.Linear", policy.NOT_FOR_LABS),
    ("import matplotlib.backends", policy.NOT_FOR_LABS),
    ("np.f2py.compile('')", policy.NOT_FOR_LABS),
    ("torch.a.b.c.d.e.f.g.h.i.j.k.l", policy.NOT_FOR_LABS),
    ("b = a\na = torch\na = b\nb.ops", policy.NOT_FOR_LABS),
    ("class hub: pass\nfrom torch import *\nhub.load('a')", policy.NOT_FOR_LABS),
    # modules inside modules
    ("torch.sys.modules", policy.HIDDEN),
    ("warnings.sys", policy.HIDDEN),
    ("from logging import os", policy.HIDDEN),
    ("random._os.system('true')", policy.NOT_FOR_LABS),
    ("dataclasses.inspect.stack()", policy.HIDDEN),
    ("dataclasses.types", policy.HIDDEN),
    ("F.torch.ops", policy.HIDDEN),
    ("getattr(torch, 'os')", policy.HIDDEN),
    ("torch.backends.m.types.FunctionType", policy.HIDDEN),
    ("nn.modules.transformer.copy", policy.HIDDEN),
    ("from torch.optim.lr_scheduler import types", policy.HIDDEN),
    ("torch.utils.data.dataloader.dist", policy.HIDDEN),
    ("import enum\nenum.bltns.eval", policy.HIDDEN),
    # changes of a library
    ("torch.equal = f", policy.CHANGE),
    ("torch.Tensor.std = f", policy.CHANGE),
    ("nn.Module.forward = f", policy.CHANGE),
    ("sys.stdout = f", policy.CHANGE),
    ("warnings.showwarning = f", policy.CHANGE),
    ("del torch.equal", policy.CHANGE),
    ("torch.x += 1", policy.CHANGE),
    ("for torch.equal in [f]: pass", policy.CHANGE),
    ("[0 for math.isclose in [f]]", policy.CHANGE),
    ("with f() as torch.equal: pass", policy.CHANGE),
    ("(a, torch.equal) = 1, f", policy.CHANGE),
    ("T = torch.Tensor\nT.std = f", policy.CHANGE),
    ("type(torch.zeros(1)).std = f", policy.CHANGE),
    ("x.__class__.std = f", policy.CHANGE),
    ("setattr(torch, 'equal', f)", policy.CHANGE),
    ("delattr(torch.Tensor, 'std')", policy.CHANGE),
    *(
        (f"for kind in [torch.Tensor]:\n    {change}", policy.CHANGE)
        for change in (
            "kind.std = f",
            "kind.std += 1",
            "kind.std: int = 1",
            "del kind.std",
            "for kind.std in [f]: pass",
            "with f() as kind.std: pass",
            "a, kind.std = 1, f",
            "[a, *kind.std] = f",
            "[0 for kind.std in [f]]",
            "setattr(kind, 'std', f)",
            "delattr(kind, 'std')",
            "kind.__add__ = f",
            "kind._call_impl = f",
        )
    ),
    ("def f(kind=torch.Tensor): kind.max = g", policy.CHANGE),
    ("dict(a=torch.Tensor)['a'].std = f", policy.CHANGE),
    ("[torch.Tensor][0].std = f", policy.CHANGE),
    ("(lambda: torch.Tensor)().std = f", policy.CHANGE),
    ("class H: kind = torch.Tensor\nH.kind.std = f", policy.CHANGE),
    ("class H: pass\nH = torch.Tensor\nH.std = f", policy.CHANGE),
    ("class H: pass\nfor H in [torch.Tensor]: H.std = f", policy.CHANGE),
    ("class H: pass\nfrom torch import *\nH.std = f", policy.CHANGE),
    ("@f\nclass H: pass\nH.std = f", policy.CHANGE),
    ("class H:\n    def __new__(cls): return torch.Tensor\nh = H()\nh.std = f", policy.CHANGE),
    ("def f(self): self.std = g", policy.CHANGE),
    ("class A:\n    def f(self):\n        for self in [torch.Tensor]: self.std = g", policy.CHANGE),
    ("class A:\n    @staticmethod\n    def f(self): self.std = g", policy.CHANGE),
    # modules as values
    ("f(torch)", policy.MODULE),
    ("x = [torch]", policy.MODULE),
    ("class A:\n    t = torch", policy.MODULE),
    ("class A:\n    import torch as t", policy.MODULE),
    ("self.t = torch", policy.MODULE),
    ("def f(t=torch): pass", policy.MODULE),
    ("def f():\n    return torch", policy.MODULE),
    ("(lambda: torch)().ops", policy.MODULE),
    ("(torch if 1 else 2).ops", policy.MODULE),
    ("(f and torch).ops", policy.NOT_FOR_LABS),
    ("x = f and torch\nx.ops", policy.NOT_FOR_LABS),
    ("f(x and torch)", policy.MODULE),
    ("[getattr(torch, 'nn')]", policy.MODULE),
    ("a, b = torch, 1", policy.MODULE),
    ("for t in (F,): pass", policy.MODULE),
    ("f(getattr(torch, 'nn'))", policy.MODULE),
    ("[t for torch in [torch]]", policy.MODULE),
]

HABITS = [
    "@torch.compile\ndef f(x): return x\ng = torch.compile(f, dynamic=True)\nprint(g(1))",
    # imports
    "import torch.utils.checkpoint as ckpt\nckpt.checkpoint(f, x)",
    "from torch.utils.checkpoint import checkpoint",
    "from torch.utils.data import DataLoader",
    "from torch.optim.optimizer import Optimizer, ParamsT, required, _params_t",
    "from torch import *\nx = zeros(3)\nnn.Linear(1, 1)",
    "import matplotlib.pyplot as plt\nplt.rcParams['font.size'] = 9\nplt.savefig('a.png')",
    "try:\n    import matplotlib as m\nexcept ImportError:\n    m = None\nif m and 1:\n    m.use('Agg')",
    "import matplotlib.pyplot as plt\nif plt is not None:\n    plt.show()",
    "from collections.abc import Callable",
    "from numpy import random as npr\nnpr.seed(0)",
    "from copy import copy, deepcopy\nfrom time import time\ncopy(time)",
    "from torch.testing import assert_close",
    "nn = torch.nn\nG = torch.nn.functional\nG.relu(x)",
    # what only runs as a script
    "if __name__ == '__main__':\n    import argparse, os\n    open('a.txt', 'w').write('x')\n    f(torch)",
    "if '__main__' == __name__:\n    exec('1')",
    # settings and output
    "print(torch.__version__, f'{np.__version__}', torch)",
    "torch.manual_seed(0); torch.set_default_dtype(torch.float64); torch.set_num_threads(1)",
    "torch.backends.cudnn.deterministic = True",
    "torch.backends.cuda.matmul.allow_tf32 = False",
    "np.random.seed(0); random.seed(0); warnings.filterwarnings('ignore')",
    "sys.path.append('..'); sys.setrecursionlimit(10**4); sys.stdout.write('a'); sys.stdout.flush()",
    "sys.exit(0)",
    "log = logging.getLogger(__name__); logging.basicConfig(level=logging.INFO, format='%(message)s')",
    "'{:.3f}'.format(x); '{a} {b:>{n}}'.format(a=1, b=2, n=3); format(x, '.3f')",
    "TEXT = 'step {}'\nprint(TEXT.format(3), f'{x.shape}')",
    "import matplotlib\nmatplotlib.use('Agg')",
    "import matplotlib.pyplot as plt\nplt.style.use('ggplot'); plt.cm.viridis(0)",
    "torch.accelerator.current_accelerator(); torch.cuda.amp.autocast(); torch.profiler.profile()",
    "from torch.utils.data import TensorDataset, random_split\nfrom torch.utils.data.dataset import Dataset",
    "from torch.nn.modules.module import Module\nfrom torch.nn.attention import sdpa_kernel",
    "torch.optim.lr_scheduler.LambdaLR(o, f); torch.nn.utils.parameters_to_vector(x)",
    "torch.Tensor.trace(x); torch.Tensor.copy_(x, y); torch.distributions.Normal(0, 1).sample()",
    "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
    "dir(torch); help(torch.nn)",
    "assert x, 'no'\nbreakpoint()\ninput()",
    "try:\n    f()\nexcept Exception as e:\n    print(type(e).__name__, e)",
    # attributes
    "getattr(x, 'eps', 1e-8)",
    "hasattr(torch, 'float8_e4m3fn'); getattr(torch, 'float16')",
    "getattr(group, 'layer' + str(3))",
    "p.data = x; p.grad = None; m.weight.data = x; group['lr'] = 1; state['step'] += 1",
    "isinstance(x, type); isinstance(x, torch.Tensor); map(type, x)",
    "w.promised = 1; x.requires_grad = True; layer.weight = layer.bias = w; model.training = False",
    "def f(): pass\nf.calls = 0\nf.step = 1\nf.__doc__ = 'Text.'",
    "p.register_hook(f); m.register_forward_hook(f); o.register_step_post_hook(f)",
    "torch.signal; torch.random.initial_seed(); torch.trace(x); torch.select(x, 0, 0); np.array(1)",
    "match x:\n    case torch.Size() | dict(keys=k) | {'a': 1, **rest}:\n        pass",
    # classes
    "class A(torch.optim.Optimizer): pass",
    "class A(nn.Module):\n    def f(self):\n        super().__init__()\n        super(A, self).__init__()",
    "class A:\n    def f(self):\n        self.__dict__.update(a=1)\n        self.__y = self._f(vars(self))",
    "class A:\n    def f(self): return self.__class__.__name__, type(self).__name__",
    "class A:\n    def __eq__(self, other): return self.__dict__ == other.__dict__",
    "class A:\n    def __getattr__(self, name): return super().__getattr__(name)",
    "class A:\n    def __setattr__(self, name, value): super().__setattr__(name, value)",
    "class A:\n    def f(self, i, name):\n        setattr(self, name, 1)\n        getattr(self, f'layer{i}')",
    "class A:\n    n = 0\n    def f(self):\n        type(self).n += 1\n        self.__class__.n += 1",
    "class A(nn.Module):\n    def f(self): nn.Module.__init__(self); object.__setattr__(self, 'a', 1)",
    "class A:\n    def f(self):\n        self.mean = self.std = self.step = 0\n        self.max: int = 1",
    "class A:\n    mean = 0\na = A()\na.mean = 1\nA.mean = 2",
    "@dataclasses.dataclass\nclass A:\n    std: float = 0.0\na = A(1.0)\na.std = 2.0",
    "import abc\nclass A(metaclass=abc.ABCMeta): pass\nclass B(abc.ABC): pass",
    "import collections\nclass A(collections.namedtuple('A', 'x')): pass\nclass E(ValueError): pass",
    "T = typing.TypeVar('T')\nclass A(typing.Generic[T]): pass\nclass B(A[int]): pass",
    "class A: pass\nB = A\nclass C(B): pass\nD = object\nclass E(D): pass",
    "class A:\n    def __getstate__(self): return 1\n    def __setstate__(self, s): pass",
    "class A:\n    def __copy__(self): return self\n    def __deepcopy__(self, memo): return self",
    "class A:\n    def dump(self): return self.format()\n    def format(self): return self.dump()",
    "@dataclasses.dataclass\nclass A:\n    __slots__ = ('a',)\n    a: int = dataclasses.field(default=0)",
    "class A(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): ctx.n = ctx.mean = 1",
    # functions
    "functools.partial(f, 1); functools.partial(torch.clamp, min=0); g = functools.partial",
    "def dump(x): return x\ndump(1)",
    "torch.autograd.grad(f, x); torch.autograd.gradcheck(f, x); torch.func.vmap(f); torch.vmap(f)",
    "@torch.no_grad()\ndef f(x):\n    @functools.wraps(x)\n    def g(*a): return x(*a)\n    return g",
    "torch.testing.assert_close(x, y); np.testing.assert_allclose(x, y)",
    "torch.optim.AdamW(x); F.layer_norm(x, (3,)); nn.init.zeros_(x)",
    # names that are the file's own, and words
    "def f(eval, open=None):\n    vars = 3\n    return eval(vars)",
    "def eval(model): return model\neval(3)",
    "def train(model):\n    model.eval(); model.open = 1\n    for compile in x: compile()",
    "def f():\n    'Uses eval(x), torch.ops and __import__.'",
    "mode: typing.Literal['train', 'eval'] = 'eval'",
    "x: 'typing.Optional[int]' = None",
]


@pytest.mark.parametrize(("source", "rule"), BYPASSES, ids=[source[:60] for source, _ in BYPASSES])
def test_a_way_around_the_grader_is_a_finding(source: str, rule: str) -> None:
    assert rule in rules(HEAD + source)


@pytest.mark.parametrize("source", HABITS, ids=[source[:60] for source in HABITS])
def test_an_honest_habit_is_no_finding(source: str) -> None:
    assert findings(HEAD + source, LAB) == ()


def test_a_lab_may_list_another_import() -> None:
    lab = LAB.model_copy(update={"rules": LAB.rules.model_copy(update={"imports": ("os",)})})
    assert findings("import os\nfrom __future__ import annotations", lab) == ()
    assert {finding.line for finding in findings("import os\nimport torch", lab)} == {2}


WHOSE = [
    ("def first(x):\n    return eval(x)", {1}),
    ("def first(x=eval): pass", {1, 2, 3}),
    ("@eval\ndef first(x): pass", {1, 2, 3}),
    ("def first(x: print(eval('1'))): pass", {1, 2, 3}),
    ("class Second:\n    def step(self): eval('1')", {2}),
    ("class Second:\n    def _update(self): eval('1')", {2}),
    ("class Second:\n    x = eval('1')", {1, 2, 3}),
    ("class Second:\n    def prepare(): eval('1')\n    prepare()", {1, 2, 3}),
    ("class Second:\n    def prepare(): eval('1')\n    x = [prepare]", {1, 2, 3}),
    ("class Second:\n    def prepare(f): eval('1')\n    @prepare\n    def step(self): pass", {1, 2, 3}),
    ("class Second:\n    def step(self): eval('1')\n    x = (lambda f: f)(1)", {1, 2, 3}),
    ("class Second:\n    def step(self): eval('1')\n    class Inner: pass", {1, 2, 3}),
    ("def make(c): return c\n@make\nclass Second:\n    def step(self): eval('1')", {1, 2, 3}),
    ("class A:\n    def __init_subclass__(c): c.go()\nclass Second(A):\n    def go(): eval('1')", {1, 2, 3}),
    ("def make(): return eval('object')\nclass Second(make()): pass", {1, 2, 3}),
    ("import torch\nclass Second:\n    @torch.no_grad()\n    def step(self): eval('1')", {2}),
    ("class Second:\n    @property\n    def a(self): eval('1')\n    b = list(range(3))", {2}),
    ("class Base:\n    def __init_subclass__(cls): eval('1')\nclass Second(Base): pass", {1, 2, 3}),
    ("def first(): eval('1')\ndef third():\n    first = 1\n    return first", {1}),
    ("class A:\n    def f(self): eval('1')\nclass Second(A): pass\ndef third(A): return A", {2}),
    ("class First(eval('1')): pass", {1, 2, 3}),
    ("eval('1')", {1, 2, 3}),
    ("def nobody(): eval('1')", {1, 2, 3}),
    ("def help_it(): eval('1')\ndef third(): return help_it()", {3}),
    ("def deep(): eval('1')\ndef help_it(): deep()\ndef first(): help_it()\ndef third(): help_it()", {1, 3}),
    ("class Base:\n    def f(self): eval('1')\nclass Second(Base): pass", {2}),
    ("def first(): eval('1')\ndef third(): return first()", {1, 3}),
    (
        "def help_it(): eval('1')\nalias = help_it\ndef first(): return help_it()\ndef third(): alias()",
        {1, 2, 3},
    ),
    ("if torch:\n    def first(): eval('1')", {1}),
    ("def first():\n    def inner():\n        eval('1')", {1}),
]


@pytest.mark.parametrize(("source", "steps"), WHOSE, ids=[source[:60] for source, _ in WHOSE])
def test_a_finding_belongs_to_the_steps_whose_code_reaches_it(source: str, steps: set[int]) -> None:
    assert {finding.step for finding in findings(source, LAB)} == steps


def test_a_method_belongs_to_its_own_step_where_two_steps_share_a_class() -> None:
    lab = LAB.model_copy(update={"steps": (a_step(1, "A.__init__"), a_step(2, "A.step"))})
    methods = ["def __init__(self): eval('1')", "def step(self): exec('1')", "def both(self): open('a')"]
    source = "\n    ".join(["class A:", *methods])
    assert [(f.step, f.line) for f in findings(source, lab)] == [(1, 2), (1, 4), (2, 3), (2, 4)]


def test_a_finding_shows_its_line_printable_and_short() -> None:
    (finding,) = findings(f"def first():\r\n    eval('\\x1b\u202e{'a' * 300}')\r\n", LAB)
    assert (finding.line, len(finding.text)) == (2, 200)
    assert finding.text.startswith("eval(")
    assert finding.text.isprintable()


def test_findings_come_in_order_and_once_a_line() -> None:
    source = "import os, sys, ctypes\ndef third(): eval(eval('1'))\ndef first(): exec('1')"
    assert [(f.step, f.line) for f in findings(source, LAB)] == [(1, 1), (1, 3), (2, 1), (3, 1), (3, 2)]


def test_a_hostile_file_can_not_flood_the_report() -> None:
    assert len(findings("eval\n" * 5000 + "import os\n", LAB)) == 3 * (policy.MOST_LINES + 1)


@pytest.mark.parametrize(
    "source", ["", "def f(:", "x = '\0'", "x = '\ud800'", "(" * 5000, "\ufeff\ufeffx", "\t x\n y"]
)
def test_what_can_not_be_parsed_has_no_findings(source: str) -> None:
    assert findings(source, LAB) == ()


@pytest.mark.parametrize(
    "source",
    ["x" + ".y" * 20_000, "x = " + "1+" * 20_000 + "1", "x = 1\n" * 60_000, "x = 1\n" * 30_000],
    ids=["attributes", "sums", "long", "many parts"],
)
def test_what_nobody_would_write_is_one_finding_for_the_file(source: str) -> None:
    assert [(f.step, f.rule, f.line) for f in findings(source, LAB)] == [
        (n, policy.UNREADABLE, 0) for n in (1, 2, 3)
    ]


def many(line: str, count: int) -> str:
    return "\n".join(line.format(i=i, j=i + 1) for i in range(count))


SLOW = {
    "long aliases": "import torch\na0 = torch\n" + many("a{j} = a{i}" + ".x" * 30, 300),
    "long names": "import torch\n" + ("y = torch" + ".a" * 900 + "\n") * 60,
    "aliases backwards": many("a{i} = a{j}", 9000) + "\nimport torch\na9000 = torch",
    "rings": "import torch\na0 = torch\n" + many("a{j} = a{i}\na{i} = a{j}", 5000),
    "one name": "import torch\n" + many("a = b{i}\nb{i} = torch", 6000),
    "one class": many("class A: pass\nA.std = 1", 5000),
    "aliases of aliases": many("\n".join(["a{i} = a{j}"] * 16), 20) + "\nclass A(a0): pass",
    "templates": "t = '" + "{}" * 50_000 + "'\n" + "t.format(1)\n" * 8000,
    "choices": "import torch\nx = (" + " or ".join(f"torch.a{i}" for i in range(10_000)) + ")" + ".a" * 800,
    "own builtin": "eval = [" + "1," * 20_000 + "]\n" + "eval\n" * 15_000,
    "lambdas": "x = " + "lambda: " * 700 + "[" + "a," * 50_000 + "]",
    "methods": "class A:\n" + many(" def m{i}(self): self.m{j}; A", 6000),
    "class body": "class A:\n" + many(" def m{i}(): m{j}", 5000) + "\n" + many(" m{i}()", 5000),
    "stars": many("from torch.m{i} import *", 14) + "\n" + many("x{i}", 20_000),
    "imports": many("import torch.b{i}.c\ntorch.b{i}.c.d", 7000),
    "tuple": "x = (" + "1," * 55_000 + ")",
}


@pytest.mark.parametrize("name", SLOW)
def test_no_file_keeps_the_grader_busy(name: str) -> None:
    before = time.process_time()
    findings(SLOW[name][: 300_000 - 1], LAB)
    assert time.process_time() - before < 8  # a second or less where it was written


def course_files() -> dict[str, str]:
    files = [
        *ROOT.glob("labs/*/exercise.py"),
        *ROOT.glob("solutions/*/solution.py"),
        *ROOT.glob("examples/class/*/*/*.py"),
    ]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8", errors="replace") for path in files}


@pytest.mark.parametrize("name", sorted(course_files()))
def test_the_courses_own_files_have_no_findings(name: str) -> None:
    lab = next((lab for lab in load_course(ROOT).labs if lab.name in name), LAB)
    assert findings(course_files()[name], lab) == ()


def test_no_known_mistake_is_a_finding() -> None:
    for lab in load_course(ROOT).labs:
        source = lab.solution.read_text(encoding="utf-8")
        for mistake in lab.mistakes[::7]:
            assert findings(apply_mistake(source, mistake), lab) == (), mistake.id
