"""`transload run` on a container engine."""

from __future__ import annotations

import os
import sys

import docker
import row

sys.path.insert(0, str(row.TESTS))

from private_engine import PrivateEngine

engine = PrivateEngine()
try:
    engine.start()
    os.environ["DOCKER_HOST"] = engine.url
    client = docker.APIClient(base_url=engine.url)
    row.by_command_line(
        "docker",
        lambda said: ", ".join(each["Status"].partition(") ")[0] + ")" for each in client.containers(all=True)),
        f"image={engine.python_image()}",
    )
    client.close()
finally:
    engine.close()
