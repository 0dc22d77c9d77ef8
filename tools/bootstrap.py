"""Make .venv and install what this machine needs; do nothing when that stands.

Runs under any Python 3, before anything is installed: it must be able to say that
the Python is too old. Called by the Makefile as ``bootstrap.py PROFILE [EXTRA]``.
"""

import hashlib
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.environ.get("KERNELWRIGHT_VENV") or os.path.join(ROOT, ".venv")
OLDEST = (3, 11)
NEEDED_GB = 6
# The versions that the course was last tested with, those of packages' packages too.
LOCK = os.path.join(ROOT, "tools", "locked.txt")

# What each command wants, beside the extra that the machine's GPU decides.
PROFILES = {"learn": ["pinned", "notebook"], "dev": ["dev"]}
# Modules that importing takes seconds, until they have been compiled.
USED = (
    "torch._dynamo", "torch._inductor", "torch.distributed", "triton.language",
    "matplotlib.pyplot", "IPython", "ipykernel", "jupyterlab.labapp", "nbclient",
    "rich.table", "sphinx.application", "pytest",
)  # fmt: skip

# What a chapter can do without, by the name that `make setup EXTRA=` takes.
OPTIONAL = {"fpga": "synthesis, place and route for an ECP5 FPGA (chapter 17)"}


def main(profile):
    """Bring .venv to the profile; return the exit code."""
    extras = sorted(set(PROFILES[profile] + [machine_extra()]))
    stamp = os.path.join(VENV, ".kernelwright-" + profile)
    wanted = fingerprint(extras)
    if read(stamp) == wanted:
        return 0
    problem = missing(extras)
    if problem:
        return fail(problem)
    began = time.time()
    print("Setting up .venv for %s (once; a few minutes) …" % describe(extras))
    # A .venv that belongs to another Python, or was half made, is made anew.
    if not os.path.exists(os.path.join(VENV, "pyvenv.cfg")) or not works():
        made = subprocess.run([interpreter(), "-m", "venv", "--clear", VENV])
        if made.returncode:
            return fail(
                "python -m venv failed (above). Mend: apt-get install python3-venv, "
                "or PYTHON=/your/python to use an environment that you have."
            )
    code = install(extras)
    if code:
        return fail(
            "%s could not be installed (above). Mend what it names and run the same "
            "command again: it goes on where it stopped." % ", ".join(extras)
        )
    warm_up()
    # One environment satisfies both profiles once dev is in.
    for name in ["learn", "dev"] if profile == "dev" else ["learn"]:
        own = sorted(set(PROFILES[name] + [machine_extra()]))
        with open(os.path.join(VENV, ".kernelwright-" + name), "w") as file:
            file.write(fingerprint(own))
    print("Set up in %.0f s." % (time.time() - began))
    return 0


def add(extra):
    """Install one of the optional extras into .venv; return the exit code."""
    if extra not in OPTIONAL:
        known = ", ".join(sorted(OPTIONAL))
        return fail("EXTRA=%s is no extra. Wanted: %s." % (extra, known))
    stamp = os.path.join(VENV, ".kernelwright-extra-" + extra)
    wanted = fingerprint([extra])
    if read(stamp) == wanted:
        return 0
    print("Adding %s …" % OPTIONAL[extra])
    if install([extra]):
        return fail(
            "%s could not be installed (above). Mend what it names and run the same "
            "command again; all else works without it." % extra
        )
    with open(stamp, "w") as file:
        file.write(wanted)
    return 0


def missing(extras):
    """Return one line that says what this machine lacks, or None."""
    if interpreter() is None:
        found = "%d.%d" % sys.version_info[:2]
        return (
            "Python %s is too old: wanted 3.%d or newer. Mend: install python3.12 "
            "and run the same command again." % (found, OLDEST[1])
        )
    probe = subprocess.run(
        [interpreter(), "-c", "import venv, ensurepip"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if probe.returncode:
        return (
            "%s has no venv module. Mend: apt-get install python3-venv (Debian, "
            "Ubuntu), or PYTHON=/your/python to use an environment that you have."
            % interpreter()
        )
    if not host_compiler():
        text = (
            "No C++ compiler: the emulator needs g++ 12 (or clang++ 16) or newer. "
            "Mend: apt-get install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora)."
        )
        if "cpu" in extras:
            return text
        print("Note: " + text + " Kernels still run on the GPU.")
    free = shutil.disk_usage(os.path.dirname(VENV)).free / 1e9
    if free < NEEDED_GB and not os.path.exists(os.path.join(VENV, "pyvenv.cfg")):
        return (
            "%.1f GB free on this disk: wanted %d GB for PyTorch and its partners. "
            "Mend: free some, or KERNELWRIGHT_VENV=/a/larger/disk/venv."
            % (free, NEEDED_GB)
        )
    return None


def interpreter():
    """Return the first Python that is new enough, the usual one first."""
    names = ["python3", "python3.13", "python3.12", "python3.11", "python"]
    for name in [sys.executable] + names:
        path = name if os.path.isabs(name) else shutil.which(name)
        if path and version(path) >= OLDEST:
            return path
    return None


def version(path):
    """Ask an interpreter for its version; (0, 0) where it does not run."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        run = subprocess.run(
            [path, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return tuple(int(part) for part in run.stdout.split()[:2]) or (0, 0)
    except (OSError, ValueError):
        return (0, 0)


def host_compiler():
    """Return a C++ compiler's path: $CXX, g++ or clang++."""
    for name in [os.environ.get("CXX"), "g++", "clang++"]:
        if name and shutil.which(name):
            return shutil.which(name)
    return None


def machine_extra():
    """Return ``cpu``, ``gpu`` (CUDA 12 driver) or ``gpu13``."""
    tool = shutil.which("nvidia-smi")
    if not tool:
        return "cpu"
    run = subprocess.run([tool], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    found = re.search(rb"CUDA Version: *(\d+)", run.stdout)
    if run.returncode or not found:
        return "cpu"
    return "gpu13" if int(found.group(1)) >= 13 else "gpu"


def install(extras):
    """Install the project's extras, by uv where it can, else by pip; return a code."""
    wanted = ["--constraint", LOCK, "-e", "%s[%s]" % (ROOT, ",".join(extras))]
    # Who asks something of pip gets pip.
    if not os.environ.get("PIP_ARGS") and fetch_uv():
        uv = [os.path.join(VENV, "bin", "uv"), "pip", "install", "--python", python()]
        looks, environment = as_pip_is_told()
        if show_progress(uv + looks + wanted, env=environment) == 0:
            return 0
        print("uv could not (above): pip tries.", flush=True)
    own = os.environ.get("PIP_ARGS", "").split()
    return show_progress(pip("install") + own + wanted)


def python():
    """Return the interpreter of .venv."""
    return os.path.join(VENV, "bin", "python")


def pip(*words):
    """Return a command of .venv's pip."""
    return [python(), "-m", "pip", "--disable-pip-version-check", *words]


def fetch_uv():
    """Install uv into .venv: it unpacks in seconds what takes pip a minute."""
    locked = re.search(r"(?m)^uv==.*", read(LOCK))
    wanted = locked.group() if locked else "uv"
    run = subprocess.run(
        pip("install", "--quiet", wanted),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return run.returncode == 0


def as_pip_is_told():
    """Return options and an environment by which uv looks and trusts as pip does."""
    run = subprocess.run(
        pip("config", "list"), stdout=subprocess.PIPE, universal_newlines=True
    )
    settings = re.findall(r"(?m)^[\w:]+\.([\w-]+)='(.*)'$", run.stdout)
    options = {
        "index-url": "--default-index",
        "extra-index-url": "--index",
        "find-links": "--find-links",
    }
    found = ["--index-strategy", "unsafe-best-match"]  # all of them, as pip does
    for name, places in settings:
        for place in places.split() if name in options else ():
            # A folder that is not there stops uv; pip goes on.
            if os.path.exists(re.sub("^file://", "", place)) or "http" in place:
                found += [options[name], place]
    trusted = [("SSL_CERT_FILE", value) for name, value in settings if name == "cert"]
    return found, dict(trusted, **os.environ)


def show_progress(command, env=None):
    """Run an installer and keep one line of what it is at; its errors in full."""
    began = time.time()
    terminal = sys.stdout.isatty()
    run = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        env=env,
    )
    # Read in a thread: pip is silent for a minute while it unpacks, and the clock
    # must be seen to go on.
    lines = queue.Queue()
    reader = threading.Thread(target=lambda: [lines.put(line) for line in run.stdout])
    reader.start()
    log, step, shown = [], "starting", began
    while reader.is_alive() or not lines.empty():
        try:
            log.append(lines.get(timeout=1))
            step = step_of(log[-1]) or step
        except queue.Empty:
            pass
        if terminal or time.time() - shown > 10:
            text = "[%3.0f s] %s" % (time.time() - began, step)
            print(("\r" + text[:78].ljust(78)) if terminal else text[:78], end="")
            print("", end="" if terminal else "\n", flush=True)
            shown = time.time()
    if terminal:
        print("\r" + " " * 78 + "\r", end="")
    if run.wait():
        print("".join(log[-25:]))
    return run.returncode


def step_of(line):
    """Say in two words what an installer's line means; None where it is a detail."""
    if "Installing collected packages" in line:
        return "unpacking, package 1 to %d" % (line.count(",") + 1)
    found = re.match(r"\s*(Collecting|Downloading|Building) (\S+)", line)
    if found is None:
        found = re.match(r"(Resolved|Prepared) (\d+ packages?)", line)
    return " ".join(found.groups()).lower() if found else None


def warm_up():
    """Compile now what else the learner's first cells and kernel would wait for."""
    environment = dict(os.environ)
    # Unlike pip, uv leaves modules as text: what is used is compiled by importing it.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    imports = [
        "import contextlib, importlib",
        "for name in %r:" % (USED,),
        "    with contextlib.suppress(ImportError): importlib.import_module(name)",
    ]
    subprocess.run([python(), "-c", "\n".join(imports)], env=environment)
    if host_compiler():
        code = "from kernelwright.emulator import warm_up; warm_up()"
        subprocess.run([python(), "-c", code])


def works():
    """Say whether the interpreter of .venv runs and is new enough."""
    return version(python()) >= OLDEST


def fingerprint(extras):
    """Change when the versions, the extras or the folder do."""
    text = (read(os.path.join(ROOT, "pyproject.toml")) + read(LOCK)).encode()
    return hashlib.sha256(text + repr((extras, ROOT)).encode()).hexdigest()


def describe(extras):
    """Say in a word what the machine is."""
    if "cpu" in extras:
        return "a machine without an NVIDIA GPU"
    return "an NVIDIA GPU (CUDA %s driver)" % ("13" if "gpu13" in extras else "12")


def read(path):
    """Return a file's text, empty where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def fail(line):
    """Print one line and return the exit code of a set-up that did not happen."""
    print("Kernelwright: " + line, file=sys.stderr)
    return 2


if __name__ == "__main__":
    code = main(sys.argv[1] if len(sys.argv) > 1 else "learn")
    for name in sys.argv[2:]:
        code = code or add(name)
    sys.exit(code)
