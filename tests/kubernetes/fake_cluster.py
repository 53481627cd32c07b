"""Fake a Kubernetes cluster with its controllers and kubelet in threads of the test.

No server of Kubernetes is run in these tests. The fake was corrected by what a real one did
(``test_fake.py`` compares their objects field by field), for the few kinds of objects that the
plugin uses. It has names and versions (404, 409, 410), selectors of labels and fields, watches with
resume, merge patches, owner references, foreground deletion, Indexed Jobs with limits of failures
for each index, pod failure policies, deadlines and suspension, conditions, logs. Pods' containers,
init containers and sidecars too, are processes of this machine. Nothing is scheduled, no image
pulled, no network made. A back-off, a grace period and the second between a pod's end and the Job's
verdict are short.
"""

from __future__ import annotations

import base64
import copy
import functools
import json
import signal
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from fake_api import ApiError, merge_patch, ranges  # type: ignore[import-not-found]
from fake_jobsets import JobSets, defaulted  # type: ignore[import-not-found]
from fake_pods import Process, container_environment, expanded, now_text  # type: ignore[import-not-found]

KINDS = {
    "configmaps": ("ConfigMap", "v1"),
    "secrets": ("Secret", "v1"),
    "services": ("Service", "v1"),
    "pods": ("Pod", "v1"),
    "events": ("Event", "v1"),
    "persistentvolumeclaims": ("PersistentVolumeClaim", "v1"),
    "namespaces": ("Namespace", "v1"),
    "jobs": ("Job", "batch/v1"),
    "jobsets": ("JobSet", "jobset.x-k8s.io/v1alpha2"),
    "workflows": ("Workflow", "argoproj.io/v1alpha1"),
    "workloads": ("Workload", "kueue.x-k8s.io/v1beta2"),
}
_MOMENT_S, _BACK_OFF_S = 0.1, 0.3
_COUNTED_S = 1.0
"""So long a deleted pod that has ended is there, since its Job counts such ends once a second."""
MESSAGE = "/dev/termination-log"
ENVIRONMENT = "/transload/packages"
CHECKPOINTS, IN_CLAIM = "/transload/checkpoints", "transload-checkpoints"
INDEX = "batch.kubernetes.io/job-completion-index"
ACTIONS = {"Ignore": "ignored", "Count": "failed", "FailIndex": "given up", "FailJob": "fatal"}
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"


def _claims(pod: dict[str, Any]) -> list[str]:
    """Return the claims that a pod mounts."""
    sources = [each.get("persistentVolumeClaim") for each in pod["spec"].get("volumes") or ()]
    return [source["claimName"] for source in sources if source]


class Cluster:
    """Objects, their history, and the controllers."""

    def __init__(self, folder: Path, namespaces: tuple[str, ...] = ("default", "team")) -> None:
        self.folder = folder
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.history: list[tuple[int, str, str, dict[str, Any]]] = []
        self.version, self.floor = 100, 0
        self.processes: dict[str, Process] = {}
        self.logs: dict[
            str, Process
        ] = {}  # name of a pod, "/" and its container if that is a sidecar
        self.beside: dict[str, dict[str, Process]] = {}  # uid of a pod → its other containers
        self.forgotten: set[str] = (
            set()
        )  # pods that their kubelet, which begins again, does not know yet
        self.seen_late_s = (
            0.0  # how long a kubelet takes to see the end of a program, and of its pod
        )
        self.ended: dict[
            str, dict[str, tuple[int, str, float]]
        ] = {}  # uid of a Job → of a pod → index, how, when
        self.began: dict[str, float] = {}  # uid of a Job → when
        self.finished: dict[str, float] = {}  # uid of a Job → when
        self.requests: list[str] = []
        self.sent = 0  # bytes of logs
        self.calls: set[tuple[str, str, str]] = set()  # group, resource, verb
        self.fail: dict[tuple[str, str], ApiError] = {}
        self.lost: tuple[str, str] | None = (
            None  # of the next such request, which is done, no answer arrives
        )
        self.unschedulable = "0/3 nodes are available"  # what is said of a pod without a node
        self.leaves = False  # after that the server is away
        self.away = False  # connections are cut before anything is done
        self.rights: set[tuple[str, str, str]] | None = (
            None  # group, resource, verb, or None for everything
        )
        self.only = ""  # the one namespace that the user may do anything in, or "" for all
        self.namespaces = namespaces
        self.open = True
        self.jobsets: JobSets | None = JobSets(self)  # None: not installed
        self.has_kueue = False
        self._dirty = threading.Event()
        self._thread = threading.Thread(target=self._control, daemon=True)
        self._thread.start()

    def heard(self, headers: Any) -> None:
        """Take note of the headers of a request. Tests replace this."""

    def may(self, group: str, resource: str, verb: str) -> bool:
        """Tell whether the user may do something, in every namespace."""
        return self.rights is None or (group, resource, verb) in self.rights

    # -- storage

    def get(self, plural: str, namespace: str, name: str) -> dict[str, Any]:
        """Return an object."""
        found = self.objects.get((plural, namespace, name))
        if found is None:
            raise ApiError(404, "NotFound", f'{plural} "{name}" not found')
        return found

    def items(self, plural: str, namespace: str | None = None) -> list[dict[str, Any]]:
        """Return the objects of a kind."""
        with self.lock:
            return [
                item
                for (kind, space, _), item in sorted(self.objects.items())
                if kind == plural and namespace in (None, space)
            ]

    def create(
        self, plural: str, namespace: str, item: dict[str, Any], *, only_try: bool = False
    ) -> dict[str, Any]:
        """Make an object. With ``only_try`` (``dryRun=All``) only say whether it could be made."""
        item = copy.deepcopy(item)
        metadata = item["metadata"]
        if namespace not in self.namespaces:
            raise ApiError(404, "NotFound", f'namespaces "{namespace}" not found')
        if (plural, namespace, metadata["name"]) in self.objects:
            raise ApiError(409, "AlreadyExists", f'{plural} "{metadata["name"]}" already exists')
        if only_try:
            return item
        kind, version = KINDS[plural]
        item.update(kind=kind, apiVersion=version)
        metadata.update(namespace=namespace, uid=str(uuid.uuid4()), creationTimestamp=now_text())
        if "stringData" in item:
            plain = item.pop("stringData")
            item["data"] = {
                key: base64.b64encode(value.encode()).decode() for key, value in plain.items()
            }
        if plural in ("jobs", "jobsets", "pods"):
            metadata["generation"] = 1
        if plural == "jobs":
            item["status"] = {}
            defaults = {
                "backoffLimit": 2147483647,
                "manualSelector": False,
                "podReplacementPolicy": "Failed",
            }
            item["spec"] = {**defaults, "suspend": False, **item["spec"]}
            labels = item["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {})
            for name, value in (
                ("job-name", metadata["name"]),
                ("controller-uid", metadata["uid"]),
            ):
                labels.update({name: value, f"batch.kubernetes.io/{name}": value})
        if plural == "jobsets":
            defaulted(item)
        self.save(plural, item, "ADDED")
        return item

    def save(self, plural: str, item: dict[str, Any], event: str = "MODIFIED") -> None:
        """Store an object under a new version, and tell the watches."""
        with self.lock:
            self.version += 1
            item["metadata"]["resourceVersion"] = str(self.version)
            key = (plural, item["metadata"]["namespace"], item["metadata"]["name"])
            if event == "DELETED":
                self.objects.pop(key, None)
            else:
                self.objects[key] = item
            self.history.append((self.version, event, plural, copy.deepcopy(item)))
            self.changed.notify_all()
            self._dirty.set()

    def patch(
        self, plural: str, namespace: str, name: str, change: dict[str, Any]
    ) -> dict[str, Any]:
        """Merge a change into an object."""
        old = self.get(plural, namespace, name)
        wanted = (change.get("metadata") or {}).get("resourceVersion")
        if wanted and wanted != old["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        new: dict[str, Any] = merge_patch(copy.deepcopy(old), change)
        self.save(plural, new)
        return new

    def _running(self, uid: str) -> list[Process]:
        """Return the processes of a pod."""
        return [
            each
            for each in (self.processes.get(uid), *self.beside.get(uid, {}).values())
            if each is not None
        ]

    def replace(
        self, plural: str, namespace: str, name: str, item: dict[str, Any]
    ) -> dict[str, Any]:
        """Replace an object."""
        old = self.get(plural, namespace, name)
        item = copy.deepcopy(item)
        for key in ("uid", "creationTimestamp", "namespace"):
            item["metadata"][key] = old["metadata"][key]
        self.save(plural, item)
        return item

    def delete(self, plural: str, namespace: str, name: str, policy: str = "Background") -> None:
        """Delete an object.

        Pods get their grace period, and Jobs in the foreground wait for their pods.
        """
        item = self.get(plural, namespace, name)
        if plural == "pods":
            self.end_pod(item)
        elif plural in ("jobs", "jobsets") and policy == "Foreground":
            if not item["metadata"].get("deletionTimestamp"):
                mark = {"deletionTimestamp": now_text(), "deletionGracePeriodSeconds": 0}
                item["metadata"].update(mark, finalizers=["foregroundDeletion"])
                self.save(plural, item)
        else:
            self.save(plural, item, "DELETED")
            self.collect(item["metadata"]["uid"])

    def collect(self, uid: str) -> None:
        """Delete what an object owned that is gone."""
        for (plural, namespace, name), item in list(self.objects.items()):
            owners = item["metadata"].get("ownerReferences") or ()
            if (
                any(owner["uid"] == uid for owner in owners)
                and (plural, namespace, name) in self.objects
            ):
                self.delete(plural, namespace, name)

    def compact(self) -> None:
        """Forget the history, so that earlier watches get 410."""
        with self.lock:
            self.floor = self.version
            self.history.clear()

    # -- pods

    def end_pod(self, pod: dict[str, Any]) -> None:
        """Ask a pod to end. It is removed when its process is gone."""
        uid = pod["metadata"]["uid"]
        process = self.processes.get(uid)
        if process is None:
            self.save("pods", pod, "DELETED")
            return
        if not pod["metadata"].get("deletionTimestamp"):
            grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
            pod["metadata"].update(deletionTimestamp=now_text(), deletionGracePeriodSeconds=grace)
            self.save("pods", pod)
            for each in self._running(uid):
                each.signal(signal.SIGTERM)
                # a second stands for the grace period
                timer = threading.Timer(1.0, each.signal, (signal.SIGKILL,))
                timer.daemon = True
                timer.start()

    def evict(self, pod: dict[str, Any], reason: str = "PreemptionByScheduler") -> None:
        """End a pod as a scheduler does that needs its place."""
        with self.lock:
            pod["status"]["conditions"].append(
                self._pod_condition("DisruptionTarget", "True", reason, "preempting")
            )
            self.save("pods", pod)
            for process in self._running(pod["metadata"]["uid"]):
                process.signal(signal.SIGKILL)

    def _start_pod(self, job: dict[str, Any], index: int, failures: int, ignored: int) -> None:
        made = copy.deepcopy(job["spec"]["template"])
        name = f"{job['metadata']['name']}-{index}"
        metadata = made["metadata"]
        metadata.update(generateName=f"{name}-", name=f"{name}-{uuid.uuid4().hex[:5]}")
        metadata.setdefault("labels", {}).update({INDEX: str(index)})
        annotations = {
            INDEX: str(index),
            FAILURES: str(failures),
            **({IGNORED: str(ignored)} if ignored else {}),
        }
        metadata.setdefault("annotations", {}).update(annotations)
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job["metadata"]["name"],
            "controller": True,
        }
        metadata["ownerReferences"] = [
            {**owner, "uid": job["metadata"]["uid"], "blockOwnerDeletion": True}
        ]
        metadata["finalizers"] = ["batch.kubernetes.io/job-tracking"]
        made["spec"]["hostname"] = name
        made["status"] = {"phase": "Pending"}
        pod = self.create("pods", job["metadata"]["namespace"], made)
        container = pod["spec"]["containers"][0]
        if "unschedulable" in (pod["spec"].get("nodeSelector") or {}):
            condition = self._pod_condition(
                "PodScheduled", "False", "Unschedulable", self.unschedulable
            )
            pod["status"]["conditions"] = [condition]
            return self.save("pods", pod)
        pod["spec"]["nodeName"] = "node-1"
        pod["status"].update(startTime=now_text(), observedGeneration=1)
        self._tell(pod, {"waiting": {"reason": "ContainerCreating"}}, "ContainersNotReady")
        if container["image"].startswith("missing"):
            message = f'failed to pull and unpack image "{container["image"]}"'
            self._tell(
                pod,
                {"waiting": {"reason": "ErrImagePull", "message": message}},
                "ContainersNotReady",
            )
            later = threading.Timer(0.2, self._back_off, (pod, container["image"]))
            later.daemon = True
            return later.start()
        if not all(self._has_claim(pod, name) for name in _claims(pod)):
            return self._event(
                pod, "FailedMount", "Unable to attach or mount volumes: claim not found"
            )
        return self._run_pod(pod, container)

    def _has_claim(self, pod: dict[str, Any], name: str) -> bool:
        """Tell whether a claim exists. What is kept in one is a folder of this machine."""
        return ("persistentvolumeclaims", pod["metadata"]["namespace"], name) in self.objects

    def claim(self, name: str) -> Path:
        """Return the folder that stands for what a claim keeps."""
        return self.folder / "claims" / name

    def add_claim(self, namespace: str, name: str, *modes: str) -> None:
        """Make a claim."""
        spec = {"accessModes": [*modes]}
        self.create("persistentvolumeclaims", namespace, {"metadata": {"name": name}, "spec": spec})

    def _back_off(self, pod: dict[str, Any], image: str) -> None:
        with self.lock:
            if ("pods", pod["metadata"]["namespace"], pod["metadata"]["name"]) in self.objects:
                message = f'Back-off pulling image "{image}"'
                self._tell(
                    pod,
                    {"waiting": {"reason": "ImagePullBackOff", "message": message}},
                    "ContainersNotReady",
                )

    def _event(self, about: dict[str, Any], reason: str, message: str) -> None:
        metadata = about["metadata"]
        involved = {"kind": about["kind"], "name": metadata["name"], "uid": metadata["uid"]}
        event = {
            "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:6]}"},
            "involvedObject": involved,
        }
        event.update(type="Warning", reason=reason, message=message)
        self.create("events", metadata["namespace"], event)

    def _run_pod(self, pod: dict[str, Any], container: dict[str, Any]) -> None:
        metadata = pod["metadata"]

        def secret(name: str, key: str) -> str:
            data = self.get("secrets", metadata["namespace"], name)["data"]
            return base64.b64decode(data[key]).decode()

        own = self.folder / metadata["uid"]  # stands for what a container has of its own
        own.mkdir(parents=True)
        claim = self.claim(next(iter(_claims(pod)), ""))
        for mount in container.get("volumeMounts") or ():
            if "subPath" in mount:
                (claim / mount["subPath"]).mkdir(parents=True, exist_ok=True)
        (own / "message").touch()
        (own / "environment").mkdir()
        self._lay_config_maps(pod, own)
        places = {
            MESSAGE: own / "message",
            CHECKPOINTS: claim / IN_CLAIM,
            ENVIRONMENT: own / "environment",
        }

        def here(text: str) -> str:
            for place, found in places.items():
                text = text.replace(place, str(found))
            return text

        env = {
            name: here(text) for name, text in container_environment(pod, container, secret).items()
        }
        command = [
            here(expanded(each, env))
            for each in (*container["command"], *container.get("args", ()))
        ]
        firsts = pod["spec"].get("initContainers") or ()
        todo: list[tuple[str, str, list[str], dict[str, str]]] = []
        for each in firsts:
            if each["name"] != "workspace":  # that writes to a folder of the container's own
                words = [
                    here(expanded(word, env)) for word in (*each["command"], *each.get("args", ()))
                ]
                own_env = container_environment(pod, each, secret)
                todo.append((each["name"], each["image"], words, own_env))
        return self._start_next(pod, todo, command, env)

    def _lay_config_maps(self, pod: dict[str, Any], own: Path) -> None:
        """Lay what a pod mounts of ConfigMaps into folders with the names of the volumes."""
        for volume in pod["spec"].get("volumes") or ():
            if "configMap" not in volume:
                continue
            folder = own / volume["name"]
            folder.mkdir()
            source = volume["configMap"]
            found = self.get("configmaps", pod["metadata"]["namespace"], source["name"])
            for item in source.get("items") or ():
                data = base64.b64decode(found["binaryData"][item["key"]])
                (folder / item["path"]).write_bytes(data)

    def _start_next(
        self,
        pod: dict[str, Any],
        todo: list[tuple[str, str, list[str], dict[str, str]]],
        command: list[str],
        env: dict[str, str],
    ) -> None:
        """Start the next init container of a pod (name, image, words, variables), or its program."""
        if not todo:
            return self._start_main(pod, command, env)
        name, _, words, own_env = todo[0]
        ended = functools.partial(self._after_init, pod, todo, now_text(), command, env)
        try:
            made = Process(words, own_env, ended)
        except OSError:
            return ended(128, "StartError")
        self.logs[f"{pod['metadata']['name']}/{name}"] = made
        runs = {"name": name, "state": {"running": {"startedAt": now_text()}}}
        pod["status"]["initContainerStatuses"] = [runs]
        return self.save("pods", pod)

    def _after_init(
        self,
        pod: dict[str, Any],
        todo: list[tuple[str, str, list[str], dict[str, str]]],
        started: str,
        command: list[str],
        env: dict[str, str],
        code: int,
        reason: str = "",
    ) -> None:
        """Go on when an init container has ended, with the next or with the pod's end."""
        reason = reason or ("Error" if code else "Completed")
        end = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now_text()}
        said = self.folder / pod["metadata"]["uid"] / "message"
        if code and said.read_text():
            end["message"] = said.read_text()
        with self.lock:
            report = {"name": todo[0][0], "state": {"terminated": end}}
            pod["status"]["initContainerStatuses"] = [report]
            if not code:
                return self._start_next(pod, todo[1:], command, env)
            self._tell(pod, {"waiting": {"reason": "PodInitializing"}}, "ContainersNotReady")
        return self._finish_pod(pod, failed=True)

    def _start_main(self, pod: dict[str, Any], command: list[str], env: dict[str, str]) -> None:
        metadata = pod["metadata"]
        started = now_text()
        pod["status"]["phase"] = "Running"
        self._tell(pod, {"running": {"startedAt": started}})
        uid = metadata["uid"]
        for each in pod["spec"]["containers"][1:]:
            name = each["name"]
            words = [expanded(word, env) for word in (*each["command"], *each.get("args", ()))]
            ended = functools.partial(self._beside_ended, pod, name, started)
            made = Process(words, env, ended)
            self.beside.setdefault(uid, {})[name] = self.logs[f"{metadata['name']}/{name}"] = made
            self._report(pod, name, {"running": {"startedAt": started}})
        try:
            process = Process(command, env, lambda code: self._pod_ended(pod, code, started))
        except OSError:
            self._pod_ended(pod, 128, started, "StartError")
            return
        self.processes[uid] = self.logs[metadata["name"]] = process

    def _beside_ended(self, pod: dict[str, Any], name: str, started: str, code: int) -> None:
        end = {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": started}
        with self.lock:
            self._report(pod, name, {"terminated": {**end, "finishedAt": now_text()}})
            self.changed.notify_all()

    def _report(self, pod: dict[str, Any], name: str, state: dict[str, Any]) -> None:
        """Store the state of a container beside the program."""
        runs = "running" in state
        report = {
            "name": name,
            "ready": runs,
            "started": runs,
            "restartCount": 0,
            "lastState": {},
            "state": state,
        }
        others = [
            each for each in pod["status"].get("containerStatuses") or () if each["name"] != name
        ]
        pod["status"]["containerStatuses"] = [*others, report]
        self.save("pods", pod)

    def _others_run(self, uid: str) -> bool:
        return any(not each.ended for each in self.beside.get(uid, {}).values())

    def _pod_ended(self, pod: dict[str, Any], code: int, started: str, reason: str = "") -> None:
        time.sleep(self.seen_late_s)
        reason = reason or ("Completed" if code == 0 else "Error")
        if reason == "StartError":
            started = "1970-01-01T00:00:00Z"
        end = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now_text()}
        if reason != "StartError" and (
            said := (self.folder / pod["metadata"]["uid"] / "message").read_bytes()
        ):
            end["message"] = said[:4096].decode(errors="replace")
        uid = pod["metadata"]["uid"]
        if self._others_run(uid):
            with self.lock:
                self._tell(pod, {"terminated": end}, "ContainersNotReady")
                self.changed.wait_for(lambda: not self._others_run(uid))
        codes = [each["state"]["terminated"]["exitCode"] for each in self._others_ended(pod)]
        with self.lock:  # for a moment its phase is still Running
            self._tell(pod, {"terminated": end}, "PodCompleted" if code == 0 else "PodFailed")
        time.sleep(_MOMENT_S + self.seen_late_s)
        self._finish_pod(pod, failed=any((code, *codes)))

    def _others_ended(self, pod: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the reports of the containers beside the program, all of which have ended."""
        uid = pod["metadata"]["uid"]
        with self.lock:
            wanted = set(self.beside.get(uid, {}))

            def ended() -> list[dict[str, Any]]:
                reports = pod["status"].get("containerStatuses") or ()
                return [
                    each
                    for each in reports
                    if each["name"] in wanted and "terminated" in each["state"]
                ]

            self.changed.wait_for(lambda: len(ended()) == len(wanted))
            return ended()

    def _finish_pod(self, pod: dict[str, Any], *, failed: bool) -> None:
        """Give a pod its last phase, and count it. A pod that was deleted is removed."""
        with self.lock:
            self.processes.pop(pod["metadata"]["uid"], None)
            pod["status"]["phase"] = "Failed" if failed else "Succeeded"
            disrupted = any(
                each["type"] == "DisruptionTarget" for each in pod["status"]["conditions"]
            )
            how = self._judge(pod, disrupted=disrupted) if failed else "done"
            owner, index = (
                pod["metadata"]["ownerReferences"][0]["uid"],
                int(pod["metadata"]["annotations"][INDEX]),
            )
            deleted = pod["metadata"].get("deletionTimestamp")
            held = [
                each["spec"]["suspend"]
                for each in self.items("jobs")
                if each["metadata"]["uid"] == owner
            ]
            if not (
                deleted and any(held)
            ):  # a suspended Job lets the pods go that it ends, and does not count them
                self.ended.setdefault(owner, {})[pod["metadata"]["uid"]] = (
                    index,
                    how,
                    time.monotonic(),
                )
            self.save("pods", pod)
            if deleted:  # for a moment it is there with its last phase; a Job counts it then
                timer = threading.Timer(_COUNTED_S, self._remove_pod, (pod,))
                timer.daemon = True
                timer.start()

    def _remove_pod(self, pod: dict[str, Any]) -> None:
        with self.lock:
            key = ("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
            if self.open and key in self.objects:
                self.save("pods", pod, "DELETED")

    def _judge(self, pod: dict[str, Any], *, disrupted: bool) -> str:
        """Return what the pod failure policy of its Job makes of a failed pod."""
        owner = pod["metadata"]["ownerReferences"][0]["name"]
        job = self.objects.get(("jobs", pod["metadata"]["namespace"], owner), {"spec": {}})
        ends: dict[str, int] = {}
        for kind in ("initContainerStatuses", "containerStatuses"):
            for each in pod["status"].get(kind) or ():
                end = each["state"].get("terminated") or {}
                ends[each["name"]] = int(end.get("exitCode") or 0)
        for rule in job["spec"].get("podFailurePolicy", {}).get("rules", ()):
            codes = rule.get("onExitCodes")
            found = disrupted
            if codes is not None:
                code = ends.get(codes["containerName"], 0)
                found = bool(code) and (code in codes["values"]) == (codes["operator"] == "In")
            if found:
                return ACTIONS[rule["action"]]
        return "failed"

    def _tell(self, pod: dict[str, Any], state: dict[str, Any], unready: str = "") -> None:
        """Store what a kubelet reports of a pod's container, and why it is not ready."""
        runs, name = "running" in state, pod["spec"]["containers"][0]["name"]
        report = {
            "name": name,
            "ready": runs,
            "started": runs,
            "restartCount": 0,
            "lastState": {},
            "state": state,
        }
        message = (
            f"containers with unready status: [{name}]" if unready == "ContainersNotReady" else ""
        )
        made = [self._pod_condition("PodReadyToStartContainers", str("terminated" not in state))]
        made.append(
            self._pod_condition("Initialized", "True", unready if unready == "PodCompleted" else "")
        )
        made += [
            self._pod_condition(kind, str(runs), unready, message)
            for kind in ("Ready", "ContainersReady")
        ]
        made.append(self._pod_condition("PodScheduled", "True"))
        kept = [
            each
            for each in pod["status"].get("conditions", ())
            if each["type"] == "DisruptionTarget"
        ]
        others = [
            each for each in pod["status"].get("containerStatuses") or () if each["name"] != name
        ]
        pod["status"].update(containerStatuses=[report, *others], conditions=made + kept)
        self.save("pods", pod)

    @staticmethod
    def _pod_condition(
        kind: str, status: str, reason: str = "", message: str = ""
    ) -> dict[str, Any]:
        words = {name: text for name, text in (("reason", reason), ("message", message)) if text}
        times = {"lastProbeTime": None, "lastTransitionTime": now_text(), "observedGeneration": 1}
        return {"type": kind, "status": status, **times, **words}

    # -- the Job controller

    def _control(self) -> None:
        while self.open:
            self._dirty.wait(0.1)
            self._dirty.clear()
            with self.lock:
                for job in self.items("jobs"):
                    if self.open:
                        self._reconcile(job)
                for item in self.items("jobsets"):
                    if self.open and self.jobsets is not None:
                        deleted = item["metadata"].get("deletionTimestamp")
                        (self.jobsets.remove if deleted else self.jobsets.reconcile)(item)

    def _pods_of(self, job: dict[str, Any]) -> list[dict[str, Any]]:
        uid = job["metadata"]["uid"]
        return [
            pod
            for pod in self.items("pods", job["metadata"]["namespace"])
            if any(owner["uid"] == uid for owner in pod["metadata"]["ownerReferences"])
        ]

    def _reconcile(self, job: dict[str, Any]) -> None:
        before = json.dumps(job["status"], sort_keys=True)
        pods = self._pods_of(job)
        if job["metadata"].get("deletionTimestamp"):
            for pod in pods:
                self.end_pod(pod)
            if not self._pods_of(job):
                self.save("jobs", job, "DELETED")
            return
        if any(
            each["type"] in ("Complete", "Failed") for each in job["status"].get("conditions", ())
        ):
            self._expire(job)
            return
        if job["spec"]["suspend"]:
            self._suspend(job, pods)
        else:
            self._progress(job, pods)
        if json.dumps(job["status"], sort_keys=True) != before:
            self.save("jobs", job)

    def _expire(self, job: dict[str, Any]) -> None:
        """Delete a Job that has ended long enough ago."""
        limit = job["spec"].get("ttlSecondsAfterFinished")
        since = self.finished.setdefault(job["metadata"]["uid"], time.monotonic())
        if limit is not None and time.monotonic() - since >= limit:
            self.save("jobs", job, "DELETED")
            self.collect(job["metadata"]["uid"])

    def _suspend(self, job: dict[str, Any], pods: list[dict[str, Any]]) -> None:
        status = job["status"]
        if not any(
            each["type"] == "Suspended" and each["status"] == "True"
            for each in status.get("conditions", ())
        ):
            status["conditions"] = [self._condition("Suspended", "JobSuspended", "Job suspended")]
            status.update(ready=0, terminating=0, failedIndexes="", uncountedTerminatedPods={})
            status.pop("startTime", None)
        done, failed, active, _ = self._tally(job, pods)
        for pod in active:
            self.end_pod(pod)
        status.update(
            terminating=len(active), completedIndexes=ranges(done), failedIndexes=ranges(failed)
        )
        status.pop("active", None)

    @staticmethod
    def _condition(kind: str, reason: str = "", message: str = "") -> dict[str, Any]:
        now = now_text()
        words = {"reason": reason, "message": message}
        return {
            "type": kind,
            "status": "True",
            **words,
            "lastTransitionTime": now,
            "lastProbeTime": now,
        }

    def _progress(self, job: dict[str, Any], pods: list[dict[str, Any]]) -> None:
        spec, status = job["spec"], job["status"]
        if "startTime" not in status:
            status["startTime"] = now_text()
            self.began[job["metadata"]["uid"]] = time.monotonic()
        for each in status.setdefault("conditions", []):
            if each["type"] == "Suspended" and each["status"] == "True":
                each.update(status="False", reason="JobResumed", message="Job resumed")
        kept = [each for each in status["conditions"] if each["type"] == "Suspended"]
        done, failed, active, counts = self._tally(job, pods)
        ends = self.ended.get(job["metadata"]["uid"], {}).items()
        uncounted = [
            uid for uid, (_, how, at) in ends if how != "done" and time.monotonic() - at < _MOMENT_S
        ]
        status["uncountedTerminatedPods"] = {"failed": uncounted} if uncounted else {}
        status["failedIndexes"] = ranges(failed)
        status["terminating"] = sum(
            bool(pod["metadata"].get("deletionTimestamp")) for pod in active
        )
        counted = {"completedIndexes": ranges(done), "active": len(active) - status["terminating"]}
        counted.update(
            succeeded=len(done), failed=sum(bad + ignored for bad, ignored, _ in counts.values())
        )
        for name, value in counted.items():
            status.pop(name, None)
            status.update({name: value} if value else {})
        status["ready"] = sum(pod["status"]["phase"] == "Running" for pod in active)
        limit = spec.get("activeDeadlineSeconds")
        decision = None
        if limit is not None and time.monotonic() - self.began[job["metadata"]["uid"]] >= limit:
            decision = ("DeadlineExceeded", "Job was active longer than specified deadline")
        elif any(how == "fatal" for _, (_, how, _) in ends):
            decision = ("PodFailurePolicy", "a pod matched a FailJob rule")
        elif len(failed) > spec.get("maxFailedIndexes", spec["completions"]):
            decision = (
                "MaxFailedIndexesExceeded",
                "Job has exceeded the specified maximal number of failed indexes",
            )
        elif len(done) + len(failed) == spec["completions"] and failed:
            decision = ("FailedIndexes", "Job has failed indexes")
        if decision is not None:
            for pod in active:
                self.end_pod(pod)
            kinds = ("FailureTarget",) if active else ("FailureTarget", "Failed")
            status["conditions"] = kept + [self._condition(kind, *decision) for kind in kinds]
        elif len(done) == spec["completions"]:
            why = ("CompletionsReached", "Reached expected number of succeeded pods")
            status["conditions"] = kept + [
                self._condition(kind, *why) for kind in ("SuccessCriteriaMet", "Complete")
            ]
            status["completionTime"] = now_text()
        else:
            most = spec.get("parallelism", spec["completions"])
            for pod in active[most:]:
                self.end_pod(pod)
            present = {int(pod["metadata"]["annotations"][INDEX]) for pod in active}
            for index in range(spec["completions"]):
                failures, ignored, last = counts.get(index, (0, 0, 0.0))
                is_due = time.monotonic() - last > _BACK_OFF_S and len(present) < most
                if index not in present | done | failed and is_due:
                    present.add(index)
                    self._start_pod(job, index, failures, ignored)

    def _tally(
        self, job: dict[str, Any], pods: list[dict[str, Any]]
    ) -> tuple[set[int], set[int], list[dict[str, Any]], dict[int, tuple[int, int, float]]]:
        done = set()
        counts: dict[int, tuple[int, int, float]] = {}
        for index, how, moment in self.ended.get(job["metadata"]["uid"], {}).values():
            if time.monotonic() - moment < _MOMENT_S:
                self._dirty.set()  # it is counted a moment later
                counts[index] = (0, 0, time.monotonic())
                continue
            failures, ignored, last = counts.get(index, (0, 0, 0.0))
            if how == "done":
                done.add(index)
            else:
                too_many = job["spec"]["backoffLimitPerIndex"] + 1
                counts[index] = (
                    failures + {"failed": 1, "given up": too_many}.get(how, 0),
                    ignored + (how == "ignored"),
                    max(last, moment),
                )
        failed = {
            index
            for index, (count, *_) in counts.items()
            if count > job["spec"]["backoffLimitPerIndex"]
        }
        active = [pod for pod in pods if pod["status"]["phase"] not in ("Succeeded", "Failed")]
        return done, failed - done, active, counts

    # -- the end

    def close(self) -> None:
        """End the controllers and every process."""
        with self.lock:
            self.open = False
            beside = [each for some in self.beside.values() for each in some.values()]
            running = [*self.processes.values(), *beside]
            self.changed.notify_all()
        self._dirty.set()
        self._thread.join(10)
        for process in running:
            process.signal(signal.SIGKILL)
        for process in running:
            process.join()
