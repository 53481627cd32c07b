"""The program of ``utils.copy``, which copies one file between two places of fsspec."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence


def copy_file(src: str, dst: str, bufsize: int) -> None:
    """Copy one file, and create missing folders at the destination."""
    import shutil

    import fsspec

    source, source_path = fsspec.core.url_to_fs(src)
    target, target_path = fsspec.core.url_to_fs(dst)
    if source.isdir(source_path):
        raise IsADirectoryError(f"{src} is a folder; only single files are copied")
    folder = os.path.dirname(target_path)
    if folder:
        target.makedirs(folder, exist_ok=True)
    if source == target:
        source.copy(source_path, target_path)
    else:
        with source.open(source_path, "rb") as reader, target.open(target_path, "wb") as writer:
            shutil.copyfileobj(reader, writer, bufsize)


def main(argv: Sequence[str]) -> int:
    """Copy, report it, and return the exit status."""
    parser = argparse.ArgumentParser(prog="copy_main", description="copies one file")
    parser.add_argument("--src", required=True, help="where to copy from, a path or a URL")
    parser.add_argument("--dst", required=True, help="where to copy to, a path or a URL")
    parser.add_argument(
        "--bufsize", type=int, default=64 * 1024, help="bytes moved at a time, between two storages"
    )
    args = parser.parse_args(argv)
    try:
        copy_file(args.src, args.dst, args.bufsize)
    except (OSError, ValueError, ImportError) as exc:
        sys.stderr.write(f"copy: {args.src} -> {args.dst}: {type(exc).__name__}: {exc}\n")
        return 1
    sys.stdout.write(f"copied {args.src} to {args.dst}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
