"""The build: the modules in C++, by ninja, and the parser's tables, by the grammar itself.

pyproject.toml has everything that is only said; here is what must be done. Nothing here needs torch.

`SHAPESCRIPT_NATIVE` says what to do about the modules in C++: `auto` (the default) builds them if it can, and warns
and goes on if it can't, because everything they do is also written in Python; `1` fails if it can't; `0` leaves them
out.
`CXX` names the compiler, `MAX_JOBS` the number of compilations at once.

`SHAPESCRIPT_CUDA` says what to do about the module for NVIDIA GPUs: `auto` (the default) builds it where there is nvcc,
`1` fails where there is none, `0` leaves it out. `SHAPESCRIPT_CUDA_ARCHS` are the architectures, `75;80;90` by default;
the last is kept as PTX too, for those to come. It is linked with neither a driver nor NCCL, so it loads without a GPU.
"""

from __future__ import annotations

import compileall
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PACKAGE = "shapescript"


@dataclass(frozen=True)
class Native:
    """A module in C++: its name in the package and its sources, from the root of the project."""

    name: str
    sources: tuple[str, ...]

    @property
    def extension(self) -> Extension:
        return Extension(f"{PACKAGE}.{self.name}", list(self.sources), optional=True)


X86 = platform.machine() in ("x86_64", "AMD64")

EXECUTOR = (
    *("bindings", "combine", "elementwise", "empty", "executor", "kernels", "kernels_baseline", "moves", "products"),
    *("random", "threads"),
    *(("kernels_avx2", "kernels_avx512") if X86 else ()),
)

MODULES = (
    Native("_core", ("csrc/cpu/core.cpp",)),
    Native("_transport", ("csrc/cpu/transport.cpp",)),
    Native("_executor", tuple(f"csrc/cpu/{name}.cpp" for name in EXECUTOR)),
)

CUDA_SOURCES = ("launch_tiles.cu", "launch.cu", "bindings.cpp", "nccl.cpp", "nccl_check.cpp")
CUDA = Native("_cuda", tuple(f"csrc/cuda/{name}" for name in CUDA_SOURCES))

COMPILE = (
    "-std=c++20 -O3 -fPIC -fvisibility=hidden -g0 -Wall -Wextra "
    # the same bits on every machine: no fused multiply-add where the source doesn't say so
    "-ffp-contract=off"
)
# Kernels: loops become vector code where no function sets errno and nothing looks at floating-point exceptions; that
# changes no value. Each instruction set has a file of its own, chosen at run time.
KERNEL = "-fno-math-errno -fno-trapping-math"
FLAGS = {
    "csrc/cpu/kernels_baseline.cpp": KERNEL,
    "csrc/cpu/kernels_avx2.cpp": f"{KERNEL} -mavx2 -mfma",
    "csrc/cpu/kernels_avx512.cpp": (
        f"{KERNEL} -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512"
    ),
}
LINK = "-shared -undefined dynamic_lookup" if sys.platform == "darwin" else "-shared"


# no multiplication and addition as one, as on the CPU; std::array in device code
NVCC = (
    "-std=c++20 -O3 --fmad=false --expt-relaxed-constexpr -Xfatbin -compress-all "
    "-Xcompiler -fPIC,-fvisibility=hidden,-g0"
)


class CannotBuild(Exception):
    """Why the modules in C++ couldn't be built."""


class NinjaBuild(build_ext):
    """Builds all modules by one run of ninja, which compiles again only what changed."""

    def run(self) -> None:
        wanted = os.environ.get("SHAPESCRIPT_NATIVE", "auto")
        if wanted not in ("auto", "0", "1"):
            raise SystemExit(f"SHAPESCRIPT_NATIVE is `{wanted}`; it must be auto, 0 or 1")
        if wanted == "0":
            self.extensions = []
        try:
            super().run()
        except CannotBuild as problem:
            if wanted == "1":
                raise SystemExit(f"error: the modules in C++ weren't built: {problem}") from problem
            # one of an older build, which may lie in the tree, must not be taken for this one
            for native in (*MODULES, CUDA):
                for stale in (ROOT / PACKAGE).glob(f"{native.name}.*.so"):
                    stale.unlink()
            self.extensions = []
            self.warn(f"the modules in C++ weren't built, ShapeScript will be slower without them: {problem}")

    def build_extensions(self) -> None:
        outputs = {ext.name: Path(self.get_ext_fullpath(ext.name)).resolve() for ext in self.extensions}
        for output in outputs.values():
            output.parent.mkdir(parents=True, exist_ok=True)
        folder = ninja_folder()
        (folder / "build.ninja").write_text(ninja_rules(folder, outputs))
        jobs = os.environ.get("MAX_JOBS")
        command = [ninja_program(), "-C", str(folder), *(["-j", jobs] if jobs else [])]
        built = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(built.stdout, flush=True)
        if built.returncode != 0:
            raise CannotBuild(f"ninja ended with {built.returncode}\n{built.stdout}")


def ninja_folder() -> Path:
    """The folder of ninja's files: fixed, because pip builds in a new folder each time."""
    folder = ROOT / "build" / f"ninja-{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def ninja_program() -> str:
    """The path of ninja, which comes with the package of that name."""
    try:
        import ninja
    except ImportError:
        found = shutil.which("ninja")
        if found is None:
            raise CannotBuild("there is no ninja") from None
        return found
    return str(Path(ninja.BIN_DIR) / "ninja")


def compiler() -> str:
    """The command of the C++ compiler."""
    chosen = os.environ.get("CXX")
    for name in [chosen] if chosen else ["g++", "clang++", "c++"]:
        if shutil.which(name.split()[0]):
            return name
    raise CannotBuild(f"there is no C++ compiler `{chosen}`" if chosen else "there is no C++ compiler")


def find_nvcc() -> str | None:
    """The path of nvcc, where the module for GPUs is wanted and can be had."""
    wanted = os.environ.get("SHAPESCRIPT_CUDA", "auto")
    if wanted not in ("auto", "0", "1"):
        raise SystemExit(f"SHAPESCRIPT_CUDA is `{wanted}`; it must be auto, 0 or 1")
    if wanted == "0":
        return None
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if home and (Path(home) / "bin" / "nvcc").is_file():
            return str(Path(home) / "bin" / "nvcc")
    found = shutil.which("nvcc")
    if found is None and wanted == "1":
        raise SystemExit("SHAPESCRIPT_CUDA is 1, and there is no nvcc; CUDA_HOME may name the toolkit's folder")
    return found


def cuda_home(nvcc: str) -> Path:
    """The folder of the toolkit; a script in a folder of programs may stand before it."""
    said = subprocess.run([nvcc, "--dryrun", "-E", "-x", "cu", "/dev/null"], capture_output=True, text=True).stderr
    top = next((line.partition("TOP=")[2] for line in said.splitlines() if "TOP=" in line), "")
    return Path(top.strip()).resolve() if top else Path(nvcc).resolve().parent.parent


def architectures() -> str:
    """nvcc's options for the architectures that are asked for."""
    asked = os.environ.get("SHAPESCRIPT_CUDA_ARCHS", "75;80;90").replace(",", ";").split(";")
    numbers = [number for number in asked if number]
    if not numbers or not all(number.isdecimal() for number in numbers):
        raise SystemExit(f"SHAPESCRIPT_CUDA_ARCHS is `{';'.join(asked)}`; it must be numbers such as 75;80;90")
    each = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in numbers]
    return " ".join([*each, f"-gencode=arch=compute_{numbers[-1]},code=compute_{numbers[-1]}"])


def cuda_rules() -> list[str]:
    """The rules for what nvcc compiles and for the module that it is linked to."""
    nvcc = find_nvcc()
    if nvcc is None:
        return []
    libraries = " ".join(f"-L{quoted(cuda_home(nvcc) / name)}" for name in ("lib64", "lib"))
    return [
        "rule compile_cuda",
        f"  command = {quoted(nvcc)} -MMD -MF $out.d {NVCC} {architectures()} -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = compile $in",
        "rule link_cuda",
        f"  command = {compiler()} {LINK} $in -o $out {libraries} -lcudart_static -ldl -lrt -lpthread",
        "  description = link $out",
    ]


def nccl_headers() -> str:
    """Where NCCL's own header is found, nccl_check.cpp compares with it; the folders, as options."""
    nvcc = find_nvcc()
    site = Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "nccl" / "include"
    if nvcc is None:
        return ""
    return f"-I{quoted(cuda_home(nvcc) / 'include')}" + (f" -I{quoted(site)}" if site.is_dir() else "")


def ninja_rules(folder: Path, outputs: dict[str, Path]) -> str:
    """The text of build.ninja: an object for each source, a library for each module."""
    headers, version = pybind11_headers(folder)
    include = f"-isystem {quoted(headers)} -isystem {quoted(sysconfig.get_paths()['include'])}"
    command = compiler()
    lines = [
        "ninja_required_version = 1.5",
        "rule compile",
        f"  command = {command} -MMD -MF $out.d {COMPILE} $flags {include} -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = compile $in",
        "rule link",
        f"  command = {command} {LINK} $in -o $out",
        "  description = link $out",
        *cuda_rules(),
    ]
    flags = {**FLAGS, "csrc/cuda/nccl_check.cpp": nccl_headers()}
    for native in (*MODULES, CUDA):
        output = outputs.get(f"{PACKAGE}.{native.name}")
        if output is None:
            continue
        objects = [folder / native.name / f"{source.replace('/', '_')}.o" for source in native.sources]
        for source, made in zip(native.sources, objects, strict=True):
            rule = "compile_cuda" if source.endswith(".cu") else "compile"
            lines.append(f"build {escaped(made)}: {rule} {escaped(ROOT / source)} | {escaped(version)}")
            lines.append(f"  flags = {flags.get(source, '')}")
        rule = "link_cuda" if native is CUDA else "link"
        lines.append(f"build {escaped(output)}: {rule} {' '.join(map(escaped, objects))}")
    return "\n".join(lines) + "\n"


def pybind11_headers(folder: Path) -> tuple[Path, Path]:
    """The folder of pybind11's headers, and a file that changes with its version.

    pip's isolated environment lies elsewhere at each build. A link of a fixed name keeps the commands the same, and
    as system headers (-MMD leaves them out) their new time stamps don't make everything compile again.
    """
    try:
        import pybind11
    except ImportError:
        raise CannotBuild("there is no pybind11") from None
    link = folder / "pybind11_include"
    new = folder / f"pybind11_include.{os.getpid()}"
    new.symlink_to(pybind11.get_include())
    os.replace(new, link)
    stamp = folder / "pybind11.version"
    if not stamp.exists() or stamp.read_text() != pybind11.__version__:
        stamp.write_text(pybind11.__version__)
    return link, stamp


def quoted(path: str | Path) -> str:
    """A path as a word of a command in build.ninja."""
    return "'" + str(path).replace("$", "$$") + "'"


def escaped(path: str | Path) -> str:
    """A path as a word of a build line in build.ninja."""
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


class CompleteBuild(build_py):
    """Makes the package whole: the parser's tables (in the tree if the install is editable), errors' pages, source."""

    def run(self) -> None:
        top = ROOT if self.editable_mode else Path(self.build_lib).resolve()
        if not self.editable_mode:  # a module that is gone from the tree must be gone from the package
            shutil.rmtree(top / PACKAGE, ignore_errors=True)
        super().run()
        make_tables(top)
        if self.editable_mode:
            # pip compiles what it copies; what stays in the tree would be compiled at every start where Python
            # is told not to keep it, and a check takes a third more
            compileall.compile_dir(top / PACKAGE, quiet=1)
        if not self.editable_mode:  # in the tree, `explain` reads docs/errors itself
            pages = top / PACKAGE / "errors"
            pages.mkdir(exist_ok=True)
            for page in (ROOT / "docs" / "errors").glob("*.md"):
                shutil.copy(page, pages)
            copy_source(top / PACKAGE / "_project")


def copy_source(folder: Path) -> None:
    """Copies what the package is built from beside its modules: `run --modal` builds it again on a rented machine."""
    folder.mkdir(exist_ok=True)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "csrc", folder / "csrc", dirs_exist_ok=True)


def make_tables(top: Path) -> None:
    """Runs `shapescript.syntax.build_tables` of the package that lies in `top`; it writes beside itself."""
    paths = [str(top), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", f"{PACKAGE}.syntax.build_tables"]
    made = subprocess.run(command, cwd=top, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
    if made.returncode != 0:
        raise SystemExit("error: the parser's tables weren't made; what is wrong with the grammar stands above")


setup(
    ext_modules=[native.extension for native in (*MODULES, *((CUDA,) if find_nvcc() is not None else ()))],
    cmdclass={"build_ext": NinjaBuild, "build_py": CompleteBuild},
)
