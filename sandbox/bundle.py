"""Write what a gVisor box is made of: a read-only root, its binds, and the OCI configuration.

The root is a directory of empty mount points and links. The host gives it /usr, the interpreter
that runs the crew, and single third-party packages, all read-only. Nothing else of the host is
visible.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import py_compile
import shutil
import sys
import sysconfig

GUEST = pathlib.Path(__file__).parent / "guest"
CAPABILITIES = [
    f"CAP_{name}"
    for name in "SYS_ADMIN SETUID SETGID KILL SYS_RESOURCE CHOWN DAC_OVERRIDE SYS_PTRACE".split()
]
ENVIRONMENT = ["PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Root:
    """The root directory of every box of a crew, with what is bound into it."""

    path: pathlib.Path
    binds: tuple[tuple[str, str], ...]  # host path, path in the box; all read-only
    python: str  # the interpreter, as a path in the box


def make_root(path: pathlib.Path, packages: tuple[str, ...]) -> Root:
    """Make the root directory with copies of the guest files, and list its binds."""
    for name in ("dev", "etc", "opt/guest", "opt/packages", "proc", "sys", "tmp", "usr"):
        (path / name).mkdir(parents=True)
    (path / "etc/passwd").write_text("root:x:0:0::/:/bin/false\n")
    (path / "etc/group").write_text("root:x:0:\n")
    copy_guest(path / "opt/guest")
    binds = [("/usr", "/usr")]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        host = pathlib.Path("/") / name
        if host.is_symlink():
            (path / name).symlink_to(os.readlink(host))
        elif host.is_dir():
            (path / name).mkdir()
            binds.append((str(host), str(host)))
    binds += package_binds(path, packages)
    python, python_binds = interpreter(path)
    return Root(path=path, binds=(*binds, *python_binds), python=python)


def copy_guest(target: pathlib.Path) -> None:
    """Copy the guest files and compile them, since a box cannot write compiled files itself."""
    for file in sorted(GUEST.glob("*.py")):
        copy = target / file.name
        shutil.copyfile(file, copy)
        py_compile.compile(str(copy), dfile=f"/opt/guest/{file.name}", doraise=True)


def package_binds(path: pathlib.Path, packages: tuple[str, ...]) -> list[tuple[str, str]]:
    """Find installed packages and modules of one file, with the shared libraries that wheels keep
    beside them (under the name of the distribution) and the folders that tell their versions."""
    binds, told = [], importlib.metadata.packages_distributions()
    for package in packages:
        home = package_home(package)
        if home is None:
            continue
        found = [home, home.with_name(f"{package}.libs")]
        for name in told.get(package, ()):
            written, version = name.replace("-", "_"), importlib.metadata.version(name)
            found += home.parent.glob(f"{written}-{version}.dist-info")
            found += {home.with_name(f"{form}.libs") for form in (name, written, written.lower())}
        for source in found:
            point = path / "opt/packages" / source.name
            if source.exists() and not point.exists():
                point.mkdir() if source.is_dir() else point.touch()
                binds.append((str(source), f"/opt/packages/{source.name}"))
    return binds


def package_home(package: str) -> pathlib.Path | None:
    """Find the folder of an installed package, or the file of a module; None where there is none or
    the interpreter itself brings it."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return pathlib.Path(spec.submodule_search_locations[0])
    if not spec.has_location or package in sys.stdlib_module_names:
        return None
    return pathlib.Path(spec.origin)


def interpreter(path: pathlib.Path) -> tuple[str, list[tuple[str, str]]]:
    """Name the interpreter inside the box; one outside /usr is bound to /opt/python."""
    prefix = pathlib.Path(sys.base_prefix).resolve()
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if prefix.is_relative_to("/usr"):
        return f"{prefix}/bin/{name}", []
    (path / "opt/python").mkdir()
    binds = [(str(prefix), "/opt/python")]
    if (path / "lib").is_symlink():
        binds += library_binds(path, sorted((prefix / "lib").glob("libpython*.so*")))
    return f"/opt/python/bin/{name}", binds


def library_binds(path: pathlib.Path, libraries: list[pathlib.Path]) -> list[tuple[str, str]]:
    """Let the loader find the interpreter's own library, and first.

    It looks into /usr/lib/<machine> and then /lib. The host may have a library of the same name for
    another build of Python in the former: that one is covered. Else a link in /lib is enough.
    """
    machine = sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"
    binds, links = [], []
    for library in libraries:
        cover = pathlib.Path("/usr/lib") / machine / library.name
        if cover.is_file() and not library.is_symlink():
            binds.append((str(library), str(cover)))
        elif not cover.exists():
            links.append(library.name)
    if links:
        (path / "lib").unlink()
        (path / "lib").mkdir()
        for entry in os.listdir("/usr/lib"):
            (path / "lib" / entry).symlink_to(f"/usr/lib/{entry}")
        for name in links:
            (path / "lib" / name).symlink_to(f"/opt/python/lib/{name}")
    return binds


def write_bundle(folder: pathlib.Path, root: Root, arguments: list[str]) -> None:
    """Write the OCI configuration of one box."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config(root, arguments), indent=1))


def config(root: Root, arguments: list[str]) -> dict:
    """Give the OCI configuration of a box that runs the guest's Python with these arguments."""
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {
            "destination": "/dev",
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["nosuid", "noexec"],
        },
        tmpfs("/dev/shm"),
        tmpfs("/tmp"),
    ]
    for source, destination in root.binds:
        mounts.append(
            {
                "destination": destination,
                "type": "bind",
                "source": source,
                "options": ["rbind", "ro", "nosuid", "nodev"],
            }
        )
    sets = ("bounding", "effective", "permitted")
    return {
        "ociVersion": "1.0.2",
        "hostname": "box",
        "root": {"path": str(root.path), "readonly": True},
        "mounts": mounts,
        "process": {
            "cwd": "/",
            "args": [root.python, *arguments],
            "env": ENVIRONMENT,
            "user": {"uid": 0, "gid": 0},
            "capabilities": {name: CAPABILITIES for name in sets},
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 65536, "soft": 65536}],
            "noNewPrivileges": True,
        },
        "linux": {
            "namespaces": [{"type": t} for t in ("pid", "network", "ipc", "uts", "mount")],
        },
    }


def tmpfs(destination: str) -> dict:
    """Describe the mount of an empty folder of 16 MiB in memory."""
    options = ["nosuid", "nodev", "mode=1777", "size=16m"]
    return {"destination": destination, "type": "tmpfs", "source": "tmpfs", "options": options}
