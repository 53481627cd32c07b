"""Lightweight Python components from text: KFP takes a function's source, so the function is written and compiled."""

from __future__ import annotations

import linecache
import zlib
from collections.abc import Sequence
from typing import Any


def python_component(source: str, function: str, image: str, packages: Sequence[str] = ()) -> Any:
    """Return a lightweight Python component.

    Args:
        source: the text of one function; what it needs it imports itself.
        function: its name.
        image: the image that runs it; it needs KFP.
        packages: installed when it starts.
    """
    from kfp import dsl

    source = "from typing import *\n" + source
    file = f"<transload component {function} {len(source)}-{zlib.crc32(source.encode())}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # where inspect looks for it
    scope: dict[str, Any] = {"dsl": dsl, "__name__": f"transload_kfp.generated.{function}"}
    # not inherited: annotations must be types for KFP, not texts as in this module
    exec(compile(source, file, "exec", dont_inherit=True), scope)  # noqa: S102 - our own text
    return dsl.component(
        scope[function], base_image=image, packages_to_install=list(packages) or None, install_kfp_package=False
    )
