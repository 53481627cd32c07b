"""Files and values with odd names never make a task fail whose job has succeeded."""

from __future__ import annotations

import sys
from pathlib import Path

from orm_airflow import OrmAirflow

from transload.specs import AppDef, Role

CODE = r"""
import os
from transload.runtime import report
folder = os.environ["TRANSLOAD_OUTPUT_DIR"].encode()
for name in (b"\xff\xfe.bin", b"two\nlines", b"a#b?c%41", b"d" * 120 + b"/" + b"e" * 120):
    path = folder + b"/" + name
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").close()
long = folder + b"/" + b"/".join([b"f" * 200] * 3)
os.makedirs(long)
open(long + b"/file", "w").close()
report(big=2**80, nothing=float("nan"), text="\x00\udcff")
"""


def test_odd_names(host: OrmAirflow, transload_home: Path) -> None:
    """Names that are no UTF-8, have two lines or are no address, and values beyond JSON, arrive."""
    role = Role("main", "", entrypoint=sys.executable, args=["-c", CODE])
    host.define(AppDef("odd", [role]), scheduler="local", push_results=True)
    host.trigger()
    host.begin_through_api().wait()
    assert host.state() == "success"
    keys = host.xcom_keys()
    assert {
        r"artifacts.\xff\xfe.bin",
        r"artifacts.two\nlines",
        r"artifacts.a\x23b\x3fc\x2541",
        "results.0",
    } <= keys
    assert not any("fff" in key for key in keys)
