"""The commonest mistakes of the first minutes, with what is typed and the message.

Suites run them with the core alone (`tests/core/cli/test_common_mistakes.py`), and with all plugins
(`tests/docs/test_common_mistakes.py`).
"""

from __future__ import annotations

from pathlib import Path

from transload.plugins.distributions import install_command

_FROM_TORCHX = """\
from torchx.specs import AppDef


def train() -> AppDef:
    return AppDef("train")
"""
_WITHOUT_UNIT = """\
# /// script
# [tool.transload]
# time-limit = 10
# ///
"""
BATCH_SCRIPT = """\
#!/bin/bash
#SBATCH --mem=8G
srun python train.py
"""
MISTAKES = [
    (["run", "ls", "-l"], "put -- before it: -- ls"),
    (["run", "train.py"], "to run the file itself: transload run -- python train.py"),
    (["run", "-s", "slrm", "--", "true"], "did you mean 'slurm'?"),
    (["run", "-s", "nowhere", "--", "true"], "[schedulers.NAME] in transload.toml"),
    (["run", "-s", "nowhere", "--", "true"], "TRANSLOAD_CONFIG=FILE names one"),
    (["run", "--scratch_folder", "x", "--", "true"], "arguments of a component come after"),
    (["run", "--pass_env", "HF_*", "--", "true"], "-c pass_env=VALUE"),
    (["run", "-c", "nosuch=1", "--", "true"], "nosuch"),
    (["run", "-c", "mem=8G", "--", "true"], "use run --mem SIZE"),
    (["run", "-c", "job-name=x", "--", "true"], "use run --name NAME"),
    (["run", "-c", "working-dir=/tmp", "--", "true"], "did you mean 'working_dir'?"),
    (["run", "--gpus", "1", "--", "true"], "'--gpu'?"),
    (["run", "--working-dir", "/tmp", "--", "true"], "-c working_dir=VALUE"),
    (["run", "train.sbatch"], "transload migrate train.sbatch"),
    (["run", "train.sh"], "to run the file itself: transload run -- bash train.sh"),
    (["run", "plain.sh"], "to run the file itself: transload run -- bash plain.sh"),
    (["run", "nothere.sh"], "no such file: nothere.sh"),
    (["run", "--segment", "12h", "--", "true"], "give checkpoints (--checkpoints)"),
    (["log", "local:/transload/nope"], "such as local://transload/train-x7k2"),
    (["run", "--", "train.py"], "to run the file: python train.py"),
    (["run", "utils.ecko"], "did you mean 'utils.echo'?"),
    (["run", "utils.echo", "--mgs", "hi"], "did you mean '--msg'?"),
    (["run", "from_torchx.py:train"], "`transload migrate"),
    (["run", "nothere.py"], "nothere.py: No such file or directory"),
    (["run", "--", "no-such-program"], "no-such-program"),
    (["run", "--gpu", "many", "--", "true"], "'many'"),
    (["run", "--cpu", "500m", "--", "true"], "'500m': write cores, 0.5"),
    (["run", "--cpu", "all", "--", "true"], "must be a number of cores, such as 0.5"),
    (["run", "--secret", "A=env:B", "--", "true"], "the environment variable B is not set"),
    (["run", "--time-limit", "soon", "--", "true"], "'soon'"),
    (["run", "--time-limit", "90", "--", "true"], "such as '90s', '90m' or '90h'"),
    (["run", "units.py"], "units.py:3: [tool.transload] time-limit=10: must have a unit"),
    (["run", "--app-id", "", "--", "true"], "must not be empty (is a variable not set?)"),
    (["run", "--replicas", "1_0", "--", "true"], "must be a whole number, in plain digits"),
    (["run", "--checkpoints", "/data", "--", "true"], "write --checkpoints alone"),
    (["run"], "COMPONENT"),
    (["rum", "--", "true"], "did you mean 'run'?"),
    (["run", "--env", "HF_HOME", "--", "true"], "write --pass-env HF_HOME"),
    (["run", "--gpu", "a100:2", "--", "true"], "give 2 here, and the type by -c gpu_type=a100"),
    (["--partition", "x"], "No such option '--partition'"),
    (["status", "nope"], "transload list -s local"),
    (["log", "local://transload/nope"], "transload list -s local"),
    (["cancel", "nope"], "no such job"),
    (["results", "nope"], "no such job"),
    (["get", "nope"], "no such job"),
    (["delete", "nope"], "no such job"),
    (["info", "lcal"], "did you mean 'local'?"),
    (
        ["run", "-s", "airflow", "--", "true"],
        "airflow is an orchestrator: jobs are started from it",
    ),
]
"""What is typed, and what the message must hold, whatever is installed."""

WITHOUT_PLUGINS = [
    (["status", "slurm://transload/1"], install_command("slurm")),
    (["info", "slurm"], install_command("slurm")),
    (["info", "slurm"], install_command("slurm")),
    (["search", "run"], install_command("search")),
    (["migrate", "x.py"], install_command("torchx")),
    (["report", "nope"], install_command("report")),
]
"""What to install after the same mistakes with the core alone."""

WITH_ALL_PLUGINS = [
    (["run", "--partition", "gpu", "--", "true"], "-c partition=VALUE"),
    (["run", "--namespace", "team", "--", "true"], "-c namespace=VALUE"),
    (["run", "-s", "slurm", "-c", "partitio=gpu", "--", "true"], "did you mean 'partition'?"),
    (["run", "-s", "kubernetes", "-c", "memory=8Gi", "--", "true"], "use run --mem SIZE"),
    (["info", "slrm"], "did you mean 'slurm'?"),
    (["search", "run", "--name", "none"], "a new search needs --component"),
    (["search", "shown"], "No such command 'shown'"),
    (["search", "show", "none"], "there is no search 'none' here"),
    (["search", "delete", "none"], "there is no search 'none' here"),
    (["report", "nope"], "no such job"),
    (["migrate", "nothere"], "'nothere' does not exist"),
]
"""Likewise with all plugins."""


def write_files(folder: Path) -> None:
    """Write the files that the mistakes are about into a folder."""
    (folder / "train.py").write_text("print('trained')\n")
    (folder / "units.py").write_text(_WITHOUT_UNIT)
    (folder / "from_torchx.py").write_text(_FROM_TORCHX)
    (folder / "train.sbatch").write_text(BATCH_SCRIPT)
    (folder / "train.sh").write_text("#!/bin/sh\ntrue\n")
    (folder / "plain.sh").write_text("echo $1\n")
