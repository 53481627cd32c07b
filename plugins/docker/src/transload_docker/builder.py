"""Install the packages of a role, in a container, beside the program that installs them.

This needs the standard library only, and Python 3.8.
"""

from __future__ import annotations

import importlib
import os
import shutil
import stat
import sys

READY = b'{"ready": true}'
"""The last line. From then on nothing changes, so that the container can be kept as an image."""


def main(tools: str, root: str, path: str) -> int:
    """Carry out the order on stdin, and wait until stdin closes.

    Args:
        tools: the folder of the program, and of uv, which is removed.
        root: the folder of what is installed.
        path: where programs are looked for, before those of ``tools``.

    Returns:
        The exit code of the program if it failed, else 0.
    """
    sys.path.insert(0, tools)
    os.environ["PATH"] = path + os.pathsep + tools
    program = importlib.import_module("make_environment")
    code = int(program.main())
    if code:
        return code
    for folder, _, files in os.walk(root):
        _open_to_all(folder)
        for name in files:
            _open_to_all(os.path.join(folder, name))
    shutil.rmtree(tools)
    os.write(1, READY + b"\n")
    while os.read(0, 4096):
        pass
    return 0


def _open_to_all(path: str) -> None:
    """Let any user of the image read what its owner may read, and run what that one may run."""
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return
    owned = mode & 0o500
    os.chmod(path, stat.S_IMODE(mode) | owned >> 3 | owned >> 6)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
