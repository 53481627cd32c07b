"""What a careful team writes for Slurm today: Airflow's ResumableJobMixin around sbatch and
scontrol.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path

from airflow.sdk import BaseOperator, ResumableJobMixin

ACTIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED")


class SlurmJobOperator(ResumableJobMixin, BaseOperator):
    """Runs a command as a batch job; the job's id is kept, so a retry goes on with the job that is
    there.
    """

    template_fields = ("command", "results")
    external_id_key = "slurm_job_id"

    def __init__(self, *, command, results, **options):
        super().__init__(**options)
        self.command = command
        self.results = results

    def execute(self, context):
        """Run it."""
        return self.execute_resumable(context)

    def submit_job(self, context):
        """Submit a job; return its id."""
        Path(self.results).mkdir(parents=True, exist_ok=True)
        script = f"TRANSLOAD_TRACKER_BASE={self.results} {self.command}"
        words = ["sbatch", "--parsable", f"--output={self.results}/log", "--wrap", script]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()

    def get_job_status(self, external_id, context):
        """Return Slurm's word for the job's state."""
        said = subprocess.run(
            ["scontrol", "show", "job", external_id], check=True, capture_output=True, text=True
        )
        return re.search(r"JobState=(\w+)", said.stdout)[1]

    def is_job_active(self, status):
        """Return whether it goes on."""
        return status in ACTIVE

    def is_job_succeeded(self, status):
        """Return whether it is done."""
        return status == "COMPLETED"

    def poll_until_complete(self, external_id, context):
        """Wait; show the lines; return what the job reported."""
        while self.is_job_active(status := self.get_job_status(external_id, context)):
            time.sleep(1)
        for line in Path(self.results, "log").read_text().splitlines():
            self.log.info(line)
        if not self.is_job_succeeded(status):
            raise RuntimeError(f"job {external_id}: {status}")
        return self.get_job_result(external_id, context)

    def get_job_result(self, external_id, context):
        """Return what the job reported."""
        return json.loads(Path(self.results, "0.json").read_text())["results"]

    def on_kill(self):
        """A retry goes on with the job: nothing is cancelled here."""
