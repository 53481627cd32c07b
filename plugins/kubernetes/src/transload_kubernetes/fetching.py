"""Fetch an uploaded archive into a pod, by an init container. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_FETCH: Final = """
import hashlib, io, sys, tarfile
url, target = sys.argv[1:]
try:
    import fsspec
    data = fsspec.open(url, "rb").open().read()
except ImportError:
    import urllib.request
    data = urllib.request.urlopen(url).read()
archive = tarfile.open(fileobj=io.BytesIO(data))
digest = hashlib.sha256()
for entry in archive.getmembers()[1:]:
    path = entry.name[2:] if entry.name.startswith("./") else entry.name
    path += "/" if entry.isdir() else ""
    digest.update(("%s\\0%o\\0" % (path, entry.mode & 0o777)).encode("utf-8", "surrogateescape"))
    if entry.isreg() or entry.islnk():
        digest.update(archive.extractfile(entry).read())
    else:
        digest.update(entry.linkname.encode("utf-8", "surrogateescape"))
    digest.update(b"\\0")
if digest.hexdigest() != url.rpartition("/")[2].partition(".")[0]:
    sys.exit("transload: %s is not what was uploaded there: nothing of it was used" % url)
archive.extractall(target)
"""


def fetching(
    name: str, url: str, target: str, image: str, main: Mapping[str, Any], mount: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the init container that fetches an archive, checks it and unpacks it.

    Args:
        name: that of the container.
        url: where the archive is (fsspec). Its name is the digest of what is in it.
        target: the folder to unpack it into.
        image: one with Python, and fsspec unless the URL is one of ``http`` or ``file``.
        main: the container of the program, whose variables, mounts and rights it shares.
        mount: the volume that has the folder.
    """
    return {
        "name": name,
        "image": image,
        "command": ["python3", "-c", _FETCH.replace("$", "$$"), url.replace("$", "$$"), target],
        "env": main["env"],
        "volumeMounts": [*main["volumeMounts"], mount],
        **{key: main[key] for key in ("securityContext", "imagePullPolicy") if key in main},
    }
