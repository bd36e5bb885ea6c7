"""The names that the policy knows: what leads out of a lab, and what looks as if it did but doesn't."""

from __future__ import annotations

import importlib.util
import os
import re
import string
import sys
from functools import lru_cache
from itertools import pairwise


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
MACHINERY = _dunder("builtins loader spec build_class annotations")

# --- attributes of any object

# Double-underscore attributes that lead nowhere; all others are findings.
HARMLESS = _dunder("""
    abs add and bool call contains divmod eq float floordiv ge getitem gt hash index int invert iter le
    len lt matmul mod mul ne neg next or pos pow radd repr rmul round rsub rtruediv setitem delitem str
    sub truediv xor iadd isub imul itruediv enter exit init new post_init del init_subclass set_name
    getstate setstate deepcopy copy format dir missing all name qualname module doc class dict version
    file slots members author cause context dataclass_fields
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
    reduce reduce_ex self func torch_function torch_dispatch annotations prepare mro_entries
""")
LIARS = ("_make_subclass", "_make_wrapper_subclass", "as_subclass")
LYING_HOOKS = _dunder("""
    torch_function torch_dispatch array_function array_ufunc class instancecheck subclasscheck getattribute
    prepare mro_entries reduce reduce_ex name module annotations
""")  # whoever defines one, in a class or a file, is asked what he means
IDENTITY = _dunder("name module qualname doc")  # what an object says of itself
CLASS_MAKERS = ("collections.namedtuple", "typing.NamedTuple")
METACLASSES = ("abc.ABCMeta", "enum.EnumMeta", "enum.EnumType")
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
        "torch": """ao classes compiler contrib cpp cpp_extension distributed export from_file fx hub
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
        "dataclasses": "make_dataclass",
    }.items()
    for name in names.split()
)
# What evaluates text, fetches by a computed name, or reads and writes files, in whatever library it lies.
READERS = _names("""
    singledispatch singledispatchmethod update_wrapper attrgetter methodcaller global_enum _convert_
    switch_backend tofile dump dumps fromfile memmap from_file open_memmap basichandlers
""")
GLOBAL_HOOK = re.compile(r"register_(module|optimizer_step)_\w*hook")
# Harmless where they are called in the open; handed on, nobody sees what with.
ONLY_CALLED = (
    *("functools.wraps", "functools.partial", "functools.partialmethod", "matplotlib.use"),
    *("logging.basicConfig", "logging.Formatter"),
)
# Of these packages labs need a little: what begins like this.
ONLY = {("torch", "utils"): ("checkpoint", "data"), ("numpy", "testing"): ("assert",)}
# The modules that labs need; all others of these libraries are findings.
MODULES = frozenset(
    f"{package}.{name}".lstrip(".")
    for package, names in {
        "": "torch numpy matplotlib",
        "torch": """accelerator amp autograd backends cpu cuda distributions fft func functional linalg masked
            mps nn optim profiler random return_types signal sparse special testing types utils version""",
        "torch.nn": "attention common_types functional init modules parameter utils",
        "torch.nn.modules": """activation adaptive batchnorm channelshuffle container conv distance dropout
            flatten fold instancenorm lazy linear loss module normalization padding pixelshuffle pooling rnn
            sparse transformer upsampling utils""",
        "torch.nn.utils": """clip_grad convert_parameters init parametrizations parametrize rnn spectral_norm
            stateless weight_norm""",
        "torch.optim": """adadelta adagrad adam adamax adamw asgd lbfgs lr_scheduler nadam optimizer radam
            rmsprop rprop sgd sparse_adam swa_utils""",
        "torch.autograd": """anomaly_mode forward_ad function functional grad_mode gradcheck graph profiler
            variable""",
        "torch.backends": "cpu cuda cudnn mha mkl mkldnn mps openmp opt_einsum",
        "torch.cuda": "amp memory random",
        "torch.amp": "autocast_mode grad_scaler",
        "torch.utils": "checkpoint data",
        "torch.utils.data": "dataloader dataset sampler",
        "torch.signal": "windows",
        "torch.distributions": """bernoulli beta categorical constraints distribution exponential gamma kl
            laplace multivariate_normal normal transforms uniform""",
        "numpy": "fft linalg ma polynomial random testing typing",
        "matplotlib": "axes cm colors figure gridspec lines patches pyplot style ticker",
    }.items()
    for name in names.split()
)
# The short names under which those modules hold others.
ALIASES = _names("""
    F Image artist backend_bases bit_generator cbar cbook container_abcs dist emath extbuild ft2font fwAD
    fx_traceback hooks m mcolors mhatch mimage mlab mlegend mlines mpl mtrand mtransforms projections
    python_multiprocessing rcsetup
""")
# Private by name, but old and public enough that courses teach them.
PRIVATE = ("_params_t", "_LRScheduler", "_Loss", "_WeightedLoss", "_single", "_pair", "_triple", "_assert")
# Methods that run while a class is made, not when somebody calls them.
RUN_AT_IMPORT = ("__init_subclass__", "__set_name__", "__prepare__", "__mro_entries__", "__class_getitem__")
SETTABLE = ("torch.backends", "sys.dont_write_bytecode")

# Functions that neither run what they are given nor hand out a class.
PLAIN_BUILTINS = (
    *("property", "staticmethod", "classmethod", "range", "dict", "list", "tuple", "set", "frozenset"),
    *("int", "float", "str", "bool", "len"),
)

# Modules that other modules hold by accident, without honest attributes of torch, numpy and matplotlib.
HELD_MODULES = (sys.stdlib_module_names | {"bltns", "np", "numpy", "torch"}) - _names(
    "abc array chunk collections copy profile random select signal time trace types typing"
)
DEEPER = sys.stdlib_module_names - {"profile"}  # in torch, where only its first floor has such functions

# What objects and classes of torch, and the module math, have as methods and functions.
METHODS = _names("""
    OptimizerPostHook OptimizerPreHook _accelerator_graph_capture_health_check _addmm_activation _apply
    _autocast_to_full_precision _autocast_to_reduced_precision _call_impl
    _clear_non_serializable_cached_data _coalesced_ _compiled_autograd_key _conj _conj_physical
    _cuda_graph_capture_health_check _dimI _dimV _dtensor__new__ _fix_weakref _get_backward_hooks
    _get_backward_pre_hooks _get_compiled_autograd_symints _get_name _group_tensors_by_device_and_dtype
    _indices _initial_step _is_all_true _is_any_true _is_view _is_zerotensor _lazy_clone
    _load_from_state_dict _make_subclass _make_wrapper_subclass _maybe_warn_non_full_backward_hook
    _named_members _neg_view _nested_tensor_size _nested_tensor_storage_offsets _nested_tensor_strides _nnz
    _optimizer_step_code _patch_step_function _philox_normal_ _philox_uniform_
    _process_value_according_to_param_policy _reduce_ex_internal _register_hook _register_hook_dict
    _register_load_state_dict_pre_hook _register_state_dict_hook _replicate_for_data_parallel
    _rev_view_func_unsafe _save_to_state_dict _sequence_nr _set_sequence_nr _slow_forward
    _sparse_mask_projection _to_dense _to_sparse _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr
    _typed_storage _update_lr _use_count _values _view_func _view_func_unsafe _wrapped_call_impl abs abs_
    absolute absolute_ acos acos_ acosh acosh_ add add_ add_module add_param_group addbmm addbmm_ addcdiv
    addcdiv_ addcmul addcmul_ addmm addmm_ addmv addmv_ addr addr_ adjoint all allclose amax amin aminmax
    angle any apply apply_ arccos arccos_ arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2
    arctan2_ arctan_ arctanh arctanh_ argmax argmin argsort argwhere as_strided as_strided_
    as_strided_scatter as_subclass asin asin_ asinh asinh_ atan atan2 atan2_ atan_ atanh atanh_ backward
    baddbmm baddbmm_ bernoulli bernoulli_ bfloat16 bincount bitwise_and bitwise_and_ bitwise_left_shift
    bitwise_left_shift_ bitwise_not bitwise_not_ bitwise_or bitwise_or_ bitwise_right_shift
    bitwise_right_shift_ bitwise_xor bitwise_xor_ bmm bool broadcast_to buffers byte cauchy_ cbrt
    ccol_indices cdouble ceil ceil_ cfloat chalf char children cholesky cholesky_inverse cholesky_solve
    chunk clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_ clip clip_ clone clone_state coalesce
    col_indices comb compile conj conj_physical conj_physical_ const_data_ptr contiguous copy_ copysign
    copysign_ corrcoef cos cos_ cosh cosh_ count_nonzero cov cpu cross crow_indices cuda cummax cummin
    cumprod cumprod_ cumsum cumsum_ data_ptr deg2rad deg2rad_ degrees dense_dim dequantize det detach
    detach_ diag diag_embed diagflat diagonal diagonal_scatter diff digamma digamma_ dim dim_order dist div
    div_ divide divide_ dot double dsplit eig element_size eq eq_ equal erf erf_ erfc erfc_ erfinv erfinv_
    eval exp exp2 exp2_ exp_ expand expand_as expm1 expm1_ exponential_ extra_repr fabs factorial fill_
    fill_diagonal_ fix fix_ flatten flip fliplr flipud float float_power float_power_ floor floor_
    floor_divide floor_divide_ fmax fmin fmod fmod_ forward frac frac_ frexp fsum gamma gather gcd gcd_ ge
    ge_ geometric_ geqrf ger get_buffer get_device get_extra_state get_last_lr get_lr get_offset
    get_parameter get_state get_submodule grad_fn graphsafe_get_state graphsafe_set_state greater greater_
    greater_equal greater_equal_ gt gt_ half hardshrink hash_tensor heaviside heaviside_ histc histogram
    hsplit hypot hypot_ i0 i0_ igamma igamma_ igammac igammac_ index index_add index_add_ index_copy
    index_copy_ index_fill index_fill_ index_put index_put_ index_reduce index_reduce_ index_select indices
    initial_seed inner int int_repr inverse ipu is_coalesced is_complex is_conj is_contiguous is_distributed
    is_floating_point is_inference is_leaf is_neg is_nonzero is_pinned is_same_size is_set_to is_shared
    is_signed isclose isfinite isinf isnan isneginf isposinf isqrt isreal istft item jvp kron kthvalue lcm
    lcm_ ldexp ldexp_ le le_ lerp lerp_ less less_ less_equal less_equal_ lgamma lgamma_ load_state_dict log
    log10 log10_ log1p log1p_ log2 log2_ log_ log_normal_ log_softmax logaddexp logaddexp2 logcumsumexp
    logdet logical_and logical_and_ logical_not logical_not_ logical_or logical_or_ logical_xor logical_xor_
    logit logit_ logsumexp long lstsq lt lt_ lu lu_solve manual_seed map2_ map_ mark_dirty
    mark_non_differentiable mark_shared_storage masked_fill masked_fill_ masked_scatter masked_scatter_
    masked_select matmul matrix_exp matrix_power max maximum maybe_clear_saved_tensors mean median min
    minimum mm mode modf module_load modules moveaxis movedim msort mtia mul mul_ multinomial multiply
    multiply_ mv mvlgamma mvlgamma_ name named_buffers named_children named_modules named_parameters
    nan_to_num nan_to_num_ nanmean nanmedian nanquantile nansum narrow narrow_copy ndim ndimension ne ne_
    neg neg_ negative negative_ nelement new new_empty new_empty_strided new_full new_ones new_tensor
    new_zeros nextafter nextafter_ nonzero nonzero_static norm normal_ not_equal not_equal_ numel numpy
    orgqr ormqr outer parameters perm permute pin_memory pinverse polygamma polygamma_ positive pow pow_
    prelu prod profile_hook_step put put_ q_per_channel_axis q_per_channel_scales q_per_channel_zero_points
    q_scale q_zero_point qr qscheme quantile rad2deg rad2deg_ radians random_ ravel reciprocal reciprocal_
    record_stream register_backward_hook register_buffer register_forward_hook register_forward_pre_hook
    register_full_backward_hook register_full_backward_pre_hook register_hook
    register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module register_parameter
    register_post_accumulate_grad_hook register_prehook register_state_dict_post_hook
    register_state_dict_pre_hook register_step_post_hook register_step_pre_hook reinforce relu relu_
    remainder remainder_ renorm renorm_ repeat repeat_interleave requires_grad_ reset_parameters reshape
    reshape_as resize resize_ resize_as resize_as_ resize_as_sparse_ resolve_conj resolve_neg retain_grad
    roll rot90 round round_ row_indices rsqrt rsqrt_ save_for_backward save_for_forward scatter scatter_
    scatter_add scatter_add_ scatter_reduce scatter_reduce_ seed select select_scatter set_ set_extra_state
    set_materialize_grads set_offset set_state set_submodule setup_context sgn sgn_ shape share_memory
    share_memory_ short sigmoid sigmoid_ sign sign_ signbit sin sin_ sinc sinc_ sinh sinh_ size
    slice_inverse slice_scatter slogdet smm softmax solve sort sparse_dim sparse_mask sparse_resize_
    sparse_resize_and_clear_ split split_with_sizes sqrt sqrt_ square square_ squeeze squeeze_ sspaddmm
    state_dict std step stft storage storage_offset storage_type stride sub sub_ subtract subtract_ sum
    sum_to_size svd swapaxes swapaxes_ swapdims swapdims_ symeig t t_ take take_along_dim tan tan_ tanh
    tanh_ tensor_split tile to to_dense to_empty to_mkldnn to_padded_tensor to_sparse to_sparse_bsc
    to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr tolist topk trace train transpose transpose_
    triangular_solve tril tril_ triu triu_ true_divide true_divide_ trunc trunc_ type type_as ulp unbind
    unflatten unfold uniform_ unique unique_consecutive unsafe_chunk unsafe_split unsafe_split_with_sizes
    unsqueeze unsqueeze_ untyped_storage values var vdot view view_as vjp vmap vsplit where xlogy xlogy_ xpu
    zero_ zero_grad
""")


def reads(name: str) -> bool:
    """Whether a name, in whatever library, evaluates text, fetches by name, uses files or hooks in."""
    return name in READERS or GLOBAL_HOOK.fullmatch(name) is not None


def is_module(path: str) -> bool:
    package, _, name = path.rpartition(".")
    return name in _submodules(package) if package else path.isidentifier()


@lru_cache(maxsize=1000)
def _submodules(package: str) -> frozenset[str]:
    """Names of the modules in an installed package, without importing it."""
    root, *rest = package.split(".")
    try:
        spec = importlib.util.find_spec(root)
        folder = os.path.join(((spec and spec.submodule_search_locations) or [])[0], *rest)
        return frozenset(name.removesuffix(".py") for name in os.listdir(folder))
    except (ImportError, ValueError, IndexError, OSError):
        return frozenset()


def is_needed(path: str) -> bool:
    """Whether the module that a path leads to is none, or one that labs need."""
    module, *parts = path.split(".")
    if module not in MODULES:
        return True
    for part in parts:
        if not is_module(f"{module}.{part}"):
            break
        module = f"{module}.{part}"
    return module in MODULES


def is_held(path: str) -> bool:
    """Whether a path goes through a module that a library holds by accident."""
    root, *parts = path.split(".")
    if any(part in HELD_MODULES or (part == "types" and root != "torch") for part in parts):
        return True
    if root not in MODULES:
        return False
    return any(
        part in ALIASES or (root == "torch" and part in DEEPER and above not in ("Tensor", "cuda"))
        for above, part in pairwise(parts)
    )


@lru_cache(maxsize=10_000)
def fills_plainly(template: str) -> bool:
    """Whether a template for str.format asks nothing of the objects that it shows, and is short."""
    if len(template) > 1000:
        return False
    left = [template]
    try:
        while left:
            for _, name, spec, _ in string.Formatter().parse(left.pop()):
                if name and "." in name:
                    return False
                left += [spec] if spec else []
    except ValueError:
        return True  # it can't be filled
    return True
