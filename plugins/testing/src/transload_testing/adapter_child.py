"""Run the child process of `ChildDriver`.

The command is ``python -m transload_testing.adapter_child module:function``.
"""

from __future__ import annotations

import json
import sys

from transload.plugins import load_attribute
from transload_testing.adapter_driver import ChildJob, HostJob


def main() -> None:
    """Read the request from stdin and run the entry."""
    request = json.loads(sys.stdin.buffer.read())
    job = HostJob(**request.pop("job"))
    load_attribute(sys.argv[1])(ChildJob(job=job, **request))


if __name__ == "__main__":
    main()
