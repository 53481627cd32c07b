"""Run a command in a root of another release of Debian, with the Slurm of that release.

The root is made if need be.

    python root.py trixie FOLDER COMMAND…

FOLDER becomes the root; this machine's ``/tmp``, processes, network, and the folders of this
project and of this Python are there too. Only root can do that, and a Python outside of ``/usr``.
It takes debootstrap, and 700 MB.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

RELEASES = {"trixie": "24.11", "sid": "26.05"}
"""Release of Debian → of its Slurm."""

_PACKAGES = (
    *(
        "slurmctld",
        "slurmd",
        "slurm-client",
        "slurmdbd",
        "slurm-wlm-basic-plugins",
        "slurm-wlm-mysql-plugin",
        "munge",
    ),
    *(
        "mariadb-server",
        "openssh-server",
        "openssh-client",
        "python3",
        "iproute2",
        "procps",
        "util-linux",
    ),
    *("libsqlite3-0", "libffi8", "busybox-static"),
)
_OWN = {"trixie": ("charliecloud",), "sid": ("charliecloud", "apptainer")}
_ENTER = """
set -e
root=$1; shift
mount --rbind "$root" "$root"
for folder in /proc /sys /dev /tmp $SEEN; do mkdir -p "$root$folder"; mount --rbind "$folder" "$root$folder"; done
here=$PWD
cd "$root"
mkdir -p .old
pivot_root . .old
umount -l /.old
cd "$here"
exec "$@"
"""


def missing() -> str | None:
    """Return why there can be no such root here, or None."""
    if os.geteuid() != 0:
        return "only root can make a root of its own"
    if shutil.which("debootstrap") is None:
        return "debootstrap not installed"
    return (
        "this Python is in /usr"
        if sys.base_prefix.startswith("/usr/") or sys.base_prefix == "/usr"
        else None
    )


def made(release: str, folder: Path) -> None:
    """Make the root, if it is not there."""
    done = folder / "made"
    if done.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    packages = f"--include={','.join(_PACKAGES)}"
    subprocess.run(["debootstrap", "--variant=minbase", packages, release, str(folder)], check=True)
    install = ["apt-get", "install", "-q", "-y", "--no-install-recommends", *_OWN[release]]
    subprocess.run(["chroot", str(folder), *install], check=True)
    for conf in folder.glob("etc/apptainer/apptainer.conf"):
        # root need not have all capabilities on this machine
        conf.write_text(
            conf.read_text().replace(
                "root default capabilities = full", "root default capabilities = no"
            )
        )
    # names are asked of nobody: a controller that looks up the client's waits ten seconds for an
    # answer
    (folder / "etc" / "hosts").write_text(f"127.0.0.1 localhost {platform.node()}\n")
    (folder / "etc" / "resolv.conf").write_text("")
    done.touch()


def command(folder: Path, words: list[str]) -> list[str]:
    """Return the command that runs another one in the root."""
    return [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        _ENTER,
        "sh",
        str(folder),
        *words,
    ]


if __name__ == "__main__":
    _release, _folder, *_words = sys.argv[1:]
    made(_release, Path(_folder).resolve())
    _seen = {
        Path(path).resolve() for path in (Path(__file__).parents[2], sys.base_prefix, sys.prefix)
    }
    _kept = {
        name: value for name, value in os.environ.items() if name.startswith(("TRANSLOAD_", "NOX_"))
    }
    _env = {
        **_kept,
        "PATH": "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/root",
        "USER": "root",
        "LANG": "C.UTF-8",
        "SEEN": " ".join(map(str, sorted(_seen))),
    }
    _command = command(Path(_folder).resolve(), _words)
    os.execvpe(_command[0], _command, _env)
