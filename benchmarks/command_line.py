"""Running a job by the command line: CPU with the keeper counted in, and wall time, against
TorchX 0.7.0.

A command and a Python function are set against what they should cost no more than.
"""

from __future__ import annotations

import os
import sys
import tempfile

from measure import adopt_orphans, figure, interleaved, process_cost, report, script

RUNS = 5


def main() -> None:
    """Measure and print."""
    adopt_orphans()
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "TRANSLOAD_HOME": f"{home}/state", "PYTHONWARNINGS": "ignore"}
        os.chdir(home)
        echo = [script("transload"), "run", "utils.echo", "--msg", "hi"]
        peer_echo = [script("torchx"), "run", "-s", "local_cwd", "utils.echo", "--msg", "hi"]
        nap = [script("transload"), "run", "utils.binary", "--entrypoint", "sleep", "--", "0.2"]
        peer_nap = [
            script("torchx"),
            "run",
            "-s",
            "local_cwd",
            "utils.binary",
            "--entrypoint",
            "sleep",
            "--",
            "0.2",
        ]
        bare = [sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '0.2'])"]
        cpu, peer_cpu = interleaved(
            RUNS, lambda: process_cost(echo, env)[1], lambda: process_cost(peer_echo, env)[1]
        )
        wall, peer_wall = interleaved(
            RUNS, lambda: process_cost(echo, env)[0], lambda: process_cost(peer_echo, env)[0]
        )
        late, peer_late, floor = interleaved(
            RUNS,
            lambda: process_cost(nap, env)[0],
            lambda: process_cost(peer_nap, env)[0],
            lambda: process_cost(bare, env)[0],
        )
        true = [script("transload"), "run", "--", "true"]
        call = [sys.executable, "-c", "import transload; transload.submit(abs, -1).result()"]
        plain, component = interleaved(
            RUNS, lambda: process_cost(true, env)[1], lambda: process_cost(echo, env)[1]
        )
        function, command = interleaved(
            RUNS, lambda: process_cost(call, env)[0], lambda: process_cost(true, env)[0]
        )
    report(
        [
            figure("run utils.echo, CPU, keeper counted in", "s", cpu, peer_cpu, target=0.5),
            figure("run utils.echo, wall", "s", wall, peer_wall, target=0.5),
            figure(
                "a 0.2 s job by the command line, wall",
                "s",
                late,
                peer_late,
                target=0.5,
                bare_python_subprocess=floor,
            ),
            figure("run -- true, CPU, against run utils.echo", "s", plain, component, target=1.0),
            figure(
                "a function submitted and back, wall, against run -- true",
                "s",
                function,
                command,
                target=2.0,
            ),
        ]
    )


if __name__ == "__main__":
    main()
