"""Confine this process for good, through the kernel's own interfaces.

Four layers: Landlock (files, TCP, signals and abstract sockets), a seccomp filter (system calls), no
capabilities, and limits. None needs root or leaves a process behind; threads work, new processes don't.

What they leave open: names, sizes and dates of files can still be asked for, and of the folder that may be
written only each file is bounded, not their number. Who starts the child bounds the wall time, watches and
removes that folder, and passes on no open file, terminal or variable that the child must not have.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import signal
import stat
import struct
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

if sys.platform == "linux":
    import resource

    _libc = ctypes.CDLL(None, use_errno=True)

ALL_LAYERS = ("landlock", "seccomp", "capabilities", "limits")


@dataclass(frozen=True)
class Confinement:
    """What a confined process may still do."""

    scratch: Path  # the one folder that may be written
    readable: tuple[Path, ...]  # files and folders that may be read; those out of reach are ignored
    memory_bytes: int  # address space on top of what the process has now
    file_bytes: int  # of the largest file
    open_files: int
    cpu_seconds: int  # a backstop: the process dies by SIGXCPU, five seconds later by SIGKILL


def available_layers() -> tuple[str, ...]:
    """Ask what this kernel offers, such as ("landlock 7", "seccomp", "capabilities", "limits")."""
    if sys.platform != "linux":
        return ()
    abi = _landlock_abi()
    landlock = (f"landlock {abi}",) if abi > 0 else ()
    seccomp = ("seccomp",) if _offers_filter() else ()
    return (*landlock, *seccomp, "capabilities", "limits")


def confine(c: Confinement) -> tuple[str, ...]:
    """Apply every layer that this kernel offers to this process, irrevocably; return those that hold.

    The process must have one thread, because Landlock leaves older ones free; later threads inherit all.
    It dies with the thread that forked it. Raises OSError if the kernel refuses a layer that it offers.
    """
    layers = available_layers()
    if not layers:
        return ()
    if len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("a process is confined before it starts threads: those would stay free")
    with open("/proc/self/statm") as file:  # out of reach afterwards
        address_space = int(file.read().split()[0]) * resource.getpagesize() + c.memory_bytes
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _drop_capabilities()
    for layer in layers:
        if layer.startswith("landlock"):
            _restrict_files(c, int(layer.split()[1]))
    _limit(c, address_space)  # after Landlock, whose rules need a free file descriptor
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if "seccomp" in layers:  # last: it refuses what the others use
        _filter_calls()
    return layers


def runtime_paths() -> tuple[Path, ...]:
    """Return what Python and its libraries go on reading: the environment's `lib`, the system's, a few files.

    Neither the course nor packages installed in editable mode; of an environment inside the course, its
    `lib` alone.
    """
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    folders = [os.path.join(prefix, lib) for prefix in prefixes for lib in ("lib", "lib64")]
    folders += [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths = {Path(os.path.realpath(path)) for path in (*folders, *_SYSTEM_PATHS) if os.path.exists(path)}
    return tuple(sorted(path for path in paths if paths.isdisjoint(path.parents)))


_SYSTEM_PATHS = (
    *("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib"),
    *("/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo"),
    *("/etc/fonts", "/usr/share/fonts", "/usr/share/fontconfig", "/usr/local/share/fonts"),
    *("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/sys/devices/system/cpu"),
)

# --- capabilities and limits

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 38, 47
_CAPABILITY_VERSION, _CAPABILITIES = 0x20080522, 64


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _prctl(option: int, *arguments: int) -> int:
    padded = (*arguments, 0, 0, 0, 0)[:4]
    return _check(_libc.prctl(option, *map(ctypes.c_ulong, padded)))


def _drop_capabilities() -> None:
    """Give up what root may do beyond owning files; for other users there is little to give up."""
    try:
        for capability in range(_CAPABILITIES):
            _prctl(_PR_CAPBSET_DROP, capability)
    except OSError as error:  # past the last one, or nothing that this user could drop
        if error.errno not in (errno.EINVAL, errno.EPERM):
            raise
    _prctl(_PR_CAP_AMBIENT, 4)  # clear all
    _check(_libc.capset(struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24)))


def _limit(c: Confinement, address_space: int) -> None:
    for which, soft, hard in (
        (resource.RLIMIT_AS, address_space, address_space),
        (resource.RLIMIT_FSIZE, c.file_bytes, c.file_bytes),
        (resource.RLIMIT_NOFILE, c.open_files, c.open_files),
        (resource.RLIMIT_CPU, c.cpu_seconds, c.cpu_seconds + 5),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        most = resource.getrlimit(which)[1]
        if most != resource.RLIM_INFINITY:  # what was limited before stays so
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(which, (soft, hard))


# --- Landlock: files by allow-list (linux/landlock.h)

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every machine
_PATH_BENEATH = 1
_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5
_MAKE_DIR, _MAKE_REG, _REFER, _TRUNCATE, _IOCTL_DEV = 1 << 7, 1 << 8, 1 << 13, 1 << 14, 1 << 15
_EVERY_RIGHT_OF_ABI_1 = (1 << 13) - 1
_FILE_RIGHTS = _READ_FILE | _WRITE_FILE | _TRUNCATE
_READ = _READ_FILE | _READ_DIR  # nowhere the right to execute: loading a library needs none
# In the scratch folder neither links nor devices, sockets or pipes: they could mislead who tidies up.
_OWN = _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER | _TRUNCATE


def _landlock_abi() -> int:
    """The version of Landlock; not positive where there is none."""
    return int(_libc.syscall(*map(ctypes.c_long, (_CREATE_RULESET, 0, 0, 1))))


def _restrict_files(c: Confinement, abi: int) -> None:
    files = _EVERY_RIGHT_OF_ABI_1
    files |= (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0) | (_IOCTL_DEV if abi >= 5 else 0)
    tcp = 0b11 if abi >= 4 else 0  # bind, connect
    scoped = 0b11 if abi >= 6 else 0  # abstract sockets, signals
    attributes = struct.pack("QQQ", files, tcp, scoped)
    ruleset = _landlock(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        _allow(ruleset, c.scratch, _OWN & files)
        _allow(ruleset, Path(os.devnull), _FILE_RIGHTS & files)
        for path in c.readable:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                _allow(ruleset, path, _READ)
        _landlock(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(beneath).st_mode):
            rights &= _FILE_RIGHTS
        _landlock(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, beneath), 0)
    finally:
        os.close(beneath)


def _landlock(number: int, *arguments: int | bytes) -> int:
    passed = (a if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments)
    return int(_check(_libc.syscall(ctypes.c_long(number), *passed)))


# --- seccomp: system calls by deny-list

# Name, number on x86-64, number on aarch64 ("-": not there). Those that `_conditions` names are refused under
# a condition, those of `_IN_MEMORY` are denied to exist, the others are refused.
_CALLS = """
new processes and programs
  clone 56 220  clone3 435 435  fork 57 -  vfork 58 -  execve 59 221  execveat 322 281  uselib 134 -
other processes
  kill 62 129  tgkill 234 131  tkill 200 130  rt_sigqueueinfo 129 138  rt_tgsigqueueinfo 297 240
  pidfd_send_signal 424 424  pidfd_open 434 434  pidfd_getfd 438 438  ptrace 101 117  kcmp 312 272
  process_vm_readv 310 270  process_vm_writev 311 271  process_madvise 440 440  process_mrelease 448 448
  migrate_pages 256 238  move_pages 279 239  setpriority 141 140  ioprio_set 251 30
  sched_setaffinity 203 122  sched_setparam 142 118  sched_setscheduler 144 119  sched_setattr 314 274
its own place: parent's reach, limits, identity
  setsid 112 157  setpgid 109 154  prctl 157 167  prlimit64 302 261  setrlimit 160 164  personality 135 92
  mmap 9 222
sockets, also inherited ones
  socket 41 198  socketpair 53 199  connect 42 203  bind 49 200  listen 50 201  accept 43 202
  accept4 288 242  sendto 44 206  sendmsg 46 211  sendmmsg 307 269
what outlives a process or escapes its limits
  shmget 29 194  shmat 30 196  shmctl 31 195  semget 64 190  semop 65 193  semtimedop 220 192  semctl 66 191
  msgget 68 186  msgsnd 69 189  msgrcv 70 188  msgctl 71 187  mq_open 240 180  mq_unlink 241 181
  memfd_create 319 279  memfd_secret 447 447  add_key 248 217  request_key 249 218  keyctl 250 219
files beside Landlock: marks, owners and dates, watches, truncation before ABI 3, handles, devices
  chmod 90 -  fchmod 91 52  fchmodat 268 53  chown 92 -  fchown 93 55  lchown 94 -  fchownat 260 54
  utime 132 -  utimes 235 -  futimesat 261 -  utimensat 280 88  setxattr 188 5  lsetxattr 189 6
  fsetxattr 190 7  removexattr 197 14  lremovexattr 198 15  fremovexattr 199 16  inotify_init 253 -
  inotify_init1 294 26  fanotify_init 300 262  fanotify_mark 301 263  open 2 -  openat 257 56
  openat2 437 437  truncate 76 45  name_to_handle_at 303 264  open_by_handle_at 304 265
  mknod 133 -  mknodat 259 33  ioctl 16 29  fcntl 72 25
the machine and its file systems
  mount 165 40  umount2 166 39  open_tree 428 428  move_mount 429 429  fsopen 430 430  fsconfig 431 431
  fsmount 432 432  fspick 433 433  mount_setattr 442 442  pivot_root 155 41  chroot 161 51
  unshare 272 97  setns 308 268  quotactl 179 60  quotactl_fd 443 443  acct 163 89  swapon 167 224
  swapoff 168 225  reboot 169 142  kexec_load 246 104  kexec_file_load 320 294  init_module 175 105
  finit_module 313 273  delete_module 176 106  iopl 172 -  ioperm 173 -  modify_ldt 154 -  vhangup 153 58
  sethostname 170 161  setdomainname 171 162  settimeofday 164 170  clock_settime 227 112
  adjtimex 159 171  clock_adjtime 305 266  syslog 103 116  lookup_dcookie 212 18
ways around this filter, and rarely used parts of the kernel
  io_uring_setup 425 425  io_uring_enter 426 426  io_uring_register 427 427  io_setup 206 0
  bpf 321 280  perf_event_open 298 241  userfaultfd 323 282  seccomp 317 277
"""
_IN_MEMORY = ("clone3", "openat2")  # their flags are out of a filter's sight; libc goes on without them
_NEWEST = 450  # calls beyond this list, and those of the x32 machine, are denied to exist
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # audit architecture, column

_Test = tuple[int, int, bool, int]  # a 32-bit word of the arguments, a mask, whether it must equal, a value
_ALL = 0xFFFFFFFF
_CLONE_THREAD, _CLONE_NEW = 0x00010000, 0x7E020000  # a thread; any new namespace
_SMALL_STACK = ~((1 << 20) - 1) & _ALL  # no bit of these set: less than 1 MiB
_MAP_STACK, _TRUNC, _TRUNC_AND_MODE = 0x20000, 0o1000, 0o1003
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # type into the terminal
_F_SETOWN, _F_SETOWN_EX, _F_SETLEASE = 8, 15, 1024  # signals to others; keep others from opening a file


def _conditions(pid: int) -> list[tuple[str, tuple[_Test, ...]]]:
    """Calls that are refused when all of their tests hold; word 2n is the lower half of argument n."""
    return [
        ("clone", ((0, _CLONE_THREAD | _CLONE_NEW, False, _CLONE_THREAD),)),
        ("kill", ((0, _ALL, False, pid),)),
        ("tgkill", ((0, _ALL, False, pid),)),
        ("sched_setaffinity", ((0, _ALL, False, 0),)),
        ("prlimit64", ((0, _ALL, False, 0), (0, _ALL, False, pid))),
        *(("prlimit64", ((half, _ALL, False, 0),)) for half in (4, 5)),  # a new limit
        *(("prctl", ((0, _ALL, True, option),)) for option in (_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE)),
        *(("ioctl", ((2, _ALL, True, request),)) for request in (_TIOCSTI, _TIOCLINUX)),
        *(("fcntl", ((2, _ALL, True, command),)) for command in (_F_SETOWN, _F_SETOWN_EX, _F_SETLEASE)),
        # Threads are bounded by the address space, if none makes do with a sliver of it.
        ("mmap", ((2, _SMALL_STACK, True, 0), (3, _ALL, True, 0), (6, _MAP_STACK, True, _MAP_STACK))),
        # Opening for reading only, or for no access at all, and truncating nevertheless.
        *(("open", ((2, _TRUNC_AND_MODE, True, _TRUNC | mode),)) for mode in (0, 3)),
        *(("openat", ((4, _TRUNC_AND_MODE, True, _TRUNC | mode),)) for mode in (0, 3)),
    ]


_LOAD, _AND, _IF_EQUAL, _IF_GREATER, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16  # in struct seccomp_data


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


_REFUSE = _instruction(_RETURN, _ERRNO | errno.EPERM)
_DENY_TO_EXIST = _instruction(_RETURN, _ERRNO | errno.ENOSYS)


def filter_program(machine: str, pid: int) -> bytes:
    """Return the filter in classic BPF for "x86_64" or "aarch64" and a process of this id."""
    numbers = system_calls(machine)
    program = [_unconditional(machine)]
    for name, tests in _conditions(pid):
        if name not in numbers:
            continue
        length = 3 * len(tests) + 2
        program.append(_instruction(_IF_EQUAL, numbers[name], 0, length))
        for done, (word, mask, equal, value) in enumerate(tests, start=1):
            leave = length - 1 - 3 * done
            jumps = (0, leave) if equal else (leave, 0)
            program += [_instruction(_LOAD, _ARGUMENTS_AT + 4 * word), _instruction(_AND, mask)]
            program.append(_instruction(_IF_EQUAL, value, *jumps))
        program += [_REFUSE, _instruction(_LOAD, _NUMBER_AT)]
    return b"".join([*program, _instruction(_RETURN, _ALLOW)])


@functools.cache
def _unconditional(machine: str) -> bytes:
    """The part of the filter that is the same in every process; the number of the call is loaded after it."""
    conditional = {name for name, _ in _conditions(0)}
    program = [
        _instruction(_LOAD, _ARCHITECTURE_AT),
        *(_instruction(_IF_EQUAL, _MACHINES[machine][0], 1, 0), _REFUSE),
        _instruction(_LOAD, _NUMBER_AT),
        *(_instruction(_IF_GREATER, _NEWEST, 0, 1), _DENY_TO_EXIST),
    ]
    for name, number in system_calls(machine).items():
        if name not in conditional:
            answer = _DENY_TO_EXIST if name in _IN_MEMORY else _REFUSE
            program += [_instruction(_IF_EQUAL, number, 0, 1), answer]
    return b"".join(program)


@functools.cache
def system_calls(machine: str) -> dict[str, int]:
    """Return name and number of every call that the filter refuses, always or under a condition."""
    column = _MACHINES[machine][1]
    words = [word for line in _CALLS.splitlines() if line.startswith(" ") for word in line.split()]
    rows = zip(words[::3], words[1::3], words[2::3], strict=True)
    return {name: int(numbers[column]) for name, *numbers in rows if numbers[column] != "-"}


class _FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def _offers_filter() -> bool:
    """Whether the kernel takes filters: asked for one at no address, it complains of the address."""
    machine = os.uname().machine
    if machine not in _MACHINES or sys.maxsize < 1 << 32:
        return False
    _unconditional(machine)  # made once where a server asks first, and inherited by its children
    try:
        _prctl(_PR_SET_SECCOMP, 2)
    except OSError as error:
        return error.errno == errno.EFAULT
    return False


def _filter_calls() -> None:
    program = filter_program(os.uname().machine, os.getpid())
    described = _FilterProgram(len(program) // 8, program)
    _prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(described))
