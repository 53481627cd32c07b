"""The JobSet controller of the fake cluster, after the documentation and the behaviour of JobSet
0.9 to 0.11.

What it has: child Jobs with their labels, annotations and names, the headless Service, suspension
and what resuming merges, the failure policy (rules in order, ``RestartJobSet`` and ``FailJobSet``,
both strategies of recreation), the success policy "All", counts of Jobs for each replicated job,
conditions with the reasons of the real one. What it has not: dependsOn, start-up order,
coordinator, in-place restarts, claims, time to live.
"""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

from fake_pods import now_text  # type: ignore[import-not-found]

PREFIX = "jobset.sigs.k8s.io/"
RESTARTS = f"{PREFIX}restart-attempt"
NAME = f"{PREFIX}replicatedjob-name"


def defaulted(item: dict[str, Any]) -> None:
    """Fill in what the webhook fills in at creation."""
    spec = item["spec"]
    spec.setdefault("successPolicy", {"operator": "All"})
    spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for each in spec["replicatedJobs"]:
        each.setdefault("replicas", 1)
        each.setdefault("groupName", "default")
    if "failurePolicy" in spec:
        spec["failurePolicy"].setdefault("restartStrategy", "Recreate")
    item["status"] = {"restarts": 0}


def is_true(item: dict[str, Any], *kinds: str) -> bool:
    """Tell whether an object has one of these conditions."""
    conditions = item["status"].get("conditions", ())
    return any(each["type"] in kinds and each["status"] == "True" for each in conditions)


class JobSets:
    """The controller.

    Args:
        cluster: the fake cluster, whose lock is held by whoever calls.
    """

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster

    def remove(self, item: dict[str, Any]) -> None:
        """Go on with the deletion of a JobSet in the foreground, beginning with its Jobs."""
        for job in self._jobs(item):
            self.cluster.delete(
                "jobs", job["metadata"]["namespace"], job["metadata"]["name"], "Foreground"
            )
        if not self._jobs(item):
            self.cluster.save("jobsets", item, "DELETED")
            self.cluster.collect(item["metadata"]["uid"])

    def reconcile(self, item: dict[str, Any]) -> None:
        """Do what is due for one JobSet."""
        before = json.dumps(item["status"], sort_keys=True)
        jobs = self._jobs(item)
        current = [
            job
            for job in jobs
            if job["metadata"]["labels"][RESTARTS] == str(item["status"]["restarts"])
        ]
        previous = [job for job in jobs if job not in current]
        self._count(item, current)
        if is_true(item, "Completed", "Failed"):
            self._delete([job for job in current if not is_true(job, "Complete", "Failed")])
        else:
            self._delete(previous)
            self._progress(item, current, previous)
        if json.dumps(item["status"], sort_keys=True) != before:
            self.cluster.save("jobsets", item)

    def _jobs(self, item: dict[str, Any]) -> list[dict[str, Any]]:
        uid = item["metadata"]["uid"]
        return [
            job
            for job in self.cluster.items("jobs", item["metadata"]["namespace"])
            if any(owner["uid"] == uid for owner in job["metadata"].get("ownerReferences") or ())
        ]

    def _delete(self, jobs: list[dict[str, Any]]) -> None:
        for job in jobs:
            if not job["metadata"].get("deletionTimestamp"):
                self.cluster.delete(
                    "jobs", job["metadata"]["namespace"], job["metadata"]["name"], "Foreground"
                )

    @staticmethod
    def _count(item: dict[str, Any], jobs: list[dict[str, Any]]) -> None:
        rows = []
        for each in item["spec"]["replicatedJobs"]:
            mine = [job for job in jobs if job["metadata"]["labels"][NAME] == each["name"]]
            open_ = [job for job in mine if not is_true(job, "Complete", "Failed")]
            rows.append(
                {
                    "name": each["name"],
                    "ready": sum(
                        job["status"].get("ready", -1) >= job["spec"]["completions"]
                        for job in open_
                    ),
                    "succeeded": sum(is_true(job, "Complete") for job in mine),
                    "failed": sum(is_true(job, "Failed") for job in mine),
                    "active": sum(job["status"].get("active", 0) > 0 for job in open_),
                    "suspended": sum(bool(job["spec"].get("suspend")) for job in open_),
                }
            )
        item["status"]["replicatedJobsStatus"] = rows

    def _progress(
        self, item: dict[str, Any], jobs: list[dict[str, Any]], previous: list[dict[str, Any]]
    ) -> None:
        failed = [job for job in jobs if is_true(job, "Failed")]
        wanted = sum(each["replicas"] for each in item["spec"]["replicatedJobs"])
        if failed:
            return self._fail(item, failed)
        if sum(is_true(job, "Complete") for job in jobs) >= wanted:
            item["status"]["terminalState"] = "Completed"
            return self._set(item, "Completed", "AllJobsCompleted", "jobset completed successfully")
        self._serve(item)
        blocking = (
            item["spec"].get("failurePolicy", {}).get("restartStrategy") == "BlockingRecreate"
        )
        if not (previous and blocking):
            taken = {job["metadata"]["name"] for job in (*jobs, *previous)}
            for each in item["spec"]["replicatedJobs"]:
                for index in range(each["replicas"]):
                    if f"{item['metadata']['name']}-{each['name']}-{index}" not in taken:
                        self._make(item, each, index)
        return self._suspend(item)

    def _suspend(self, item: dict[str, Any]) -> None:
        suspended = bool(item["spec"].get("suspend"))
        for job in self._jobs(item):
            if bool(job["spec"].get("suspend")) == suspended or is_true(job, "Complete", "Failed"):
                continue
            job["spec"]["suspend"] = suspended
            if not suspended:
                name = job["metadata"]["labels"][NAME]
                template = next(e for e in item["spec"]["replicatedJobs"] if e["name"] == name)[
                    "template"
                ]
                pod = template["spec"]["template"]
                for key in ("labels", "annotations"):
                    job["spec"]["template"]["metadata"].setdefault(key, {}).update(
                        pod["metadata"].get(key) or {}
                    )
                selector = pod["spec"].get("nodeSelector")
                if selector:
                    job["spec"]["template"]["spec"].setdefault("nodeSelector", {}).update(selector)
            self.cluster.save("jobs", job)
        if suspended:
            self._set(item, "Suspended", "SuspendedJobs", "jobset is suspended")
        else:
            self._set(item, "Suspended", "ResumeJobs", "jobset is resumed", "False")

    def _fail(self, item: dict[str, Any], failed: list[dict[str, Any]]) -> None:
        policy = item["spec"].get("failurePolicy")
        first = failed[0]["metadata"]["name"]
        if policy is None:
            message = f"jobset failed due to one or more job failures (first failed job: {first})"
            return self._set_failed(item, "FailedJobs", message)
        for rule in policy.get("rules", ()):
            found = [job for job in failed if self._applies(rule, job)]
            if found and rule["action"] == "FailJobSet":
                name = found[0]["metadata"]["name"]
                message = f"applying FailJobSet failure policy action (first failed job: {name})"
                return self._set_failed(item, "FailJobSetFailurePolicyAction", message)
            if found and rule["action"] == "RestartJobSetAndIgnoreMaxRestarts":
                item["status"]["restarts"] += 1
                return None
            if found:
                break
        if item["status"].get("restartsCountTowardsMax", 0) >= policy.get("maxRestarts", 0):
            message = (
                f"jobset failed due to reaching max number of restarts (first failed job: {first})"
            )
            return self._set_failed(item, "ReachedMaxRestarts", message)
        item["status"]["restarts"] += 1
        item["status"]["restartsCountTowardsMax"] = (
            item["status"].get("restartsCountTowardsMax", 0) + 1
        )
        return None

    @staticmethod
    def _applies(rule: dict[str, Any], job: dict[str, Any]) -> bool:
        condition = next(each for each in job["status"]["conditions"] if each["type"] == "Failed")
        reasons, targets = rule.get("onJobFailureReasons"), rule.get("targetReplicatedJobs")
        return (not reasons or condition["reason"] in reasons) and (
            not targets or job["metadata"]["labels"][NAME] in targets
        )

    def _set_failed(self, item: dict[str, Any], reason: str, message: str) -> None:
        item["status"]["terminalState"] = "Failed"
        self._set(item, "Failed", reason, message)

    @staticmethod
    def _set(
        item: dict[str, Any], kind: str, reason: str, message: str, status: str = "True"
    ) -> None:
        conditions = item["status"].setdefault("conditions", [])
        known = next((each for each in conditions if each["type"] == kind), None)
        new = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": now_text(),
        }
        if known is None and status == "True":
            conditions.append(new)
        elif known is not None and known["status"] != status:
            known.update(new)

    def _serve(self, item: dict[str, Any]) -> None:
        network = item["spec"]["network"]
        name = network.get("subdomain") or item["metadata"]["name"]
        namespace = item["metadata"]["namespace"]
        if (
            not network["enableDNSHostnames"]
            or ("services", namespace, name) in self.cluster.objects
        ):
            return
        selector = {f"{PREFIX}jobset-name": item["metadata"]["name"]}
        spec = {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": True}
        metadata = {"name": name, "ownerReferences": [self._owner(item)]}
        self.cluster.create("services", namespace, {"metadata": metadata, "spec": spec})

    @staticmethod
    def _owner(item: dict[str, Any]) -> dict[str, Any]:
        owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "controller": True}
        return {
            **owner,
            "name": item["metadata"]["name"],
            "uid": item["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }

    def _make(self, item: dict[str, Any], each: dict[str, Any], index: int) -> None:
        name = f"{item['metadata']['name']}-{each['name']}-{index}"
        namespace = item["metadata"]["namespace"]
        job = copy.deepcopy(each["template"])
        job["metadata"].update(name=name, ownerReferences=[self._owner(item)])
        rows = item["spec"]["replicatedJobs"]
        total = sum(other["replicas"] for other in rows)
        place = sum(other["replicas"] for other in rows[: rows.index(each)]) + index
        marks = {
            "jobset-name": item["metadata"]["name"],
            "jobset-uid": item["metadata"]["uid"],
            "replicatedjob-name": each["name"],
            "restart-attempt": str(item["status"]["restarts"]),
            "replicatedjob-replicas": str(each["replicas"]),
            "global-replicas": str(total),
            "group-replicas": str(total),
            "job-index": str(index),
            "job-global-index": str(place),
            "job-group-index": str(place),
            "job-key": hashlib.sha1(f"{namespace}/{name}".encode()).hexdigest(),
            "group-name": each["groupName"],
        }
        for metadata in (job["metadata"], job["spec"]["template"].setdefault("metadata", {})):
            for key in ("labels", "annotations"):
                metadata.setdefault(key, {}).update(
                    {f"{PREFIX}{mark}": value for mark, value in marks.items()}
                )
        job["spec"]["template"]["metadata"]["labels"][f"{PREFIX}priority"] = "0"
        network = item["spec"]["network"]
        if network["enableDNSHostnames"]:
            subdomain = network.get("subdomain") or item["metadata"]["name"]
            job["spec"]["template"]["spec"]["subdomain"] = subdomain
        job["spec"]["suspend"] = bool(item["spec"].get("suspend"))
        self.cluster.create("jobs", namespace, job)
