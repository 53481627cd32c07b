"""Find where a cluster's API is, and with which connections and credentials to ask it.

The account of a pod is read here, and all else by the official client. Its import takes longer than
everything else that a job's submit does, and in a pod, such as a launcher's, nothing needs it.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from transload.errors import ConfigError, SchedulerUnavailable

if TYPE_CHECKING:
    from urllib3.util.retry import Retry

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""The folder of a pod's own account."""
_FILE: Final = "~/.kube/config"
_CONNECTIONS: Final = 16  # that are kept open. More may be used


class Access(NamedTuple):
    """How a cluster is asked.

    Attributes:
        url: address of the API server.
        pool: its connections, a pool manager of urllib3.
        headers: returns the headers of a request, with credentials that are valid now.
    """

    url: str
    pool: Any
    headers: Callable[[], Mapping[str, str]]


class Configuration:
    """Says which cluster is meant.

    Args:
        context: a context of the file, or None for its current one.
        kubeconfig: a file with the configuration, or its text. None means ``KUBECONFIG``, else
            ``~/.kube/config``, else the account of the pod that this process runs in.
    """

    def __init__(self, context: str | None, kubeconfig: str | None) -> None:
        self._context = context
        self._kubeconfig = kubeconfig
        text = kubeconfig or ""
        self._is_text = "\n" in text or text.startswith("{")

    @property
    def location(self) -> str:
        """The context and the configuration file that select the cluster."""
        context = f"context {self._context}" if self._context else "the current context"
        if self._is_text:
            return f"{context} of a configuration that was given as text"
        path = self._kubeconfig or os.environ.get("KUBECONFIG")
        return f"{context} of {path or f'{_FILE}, or inside of a cluster'}"

    def kubectl(self) -> list[str]:
        """Return the beginning of kubectl's command line for the same cluster.

        Raises:
            SchedulerUnavailable: if kubectl is not installed here.
            ConfigError: if the configuration is no file, which kubectl needs.
        """
        program = shutil.which("kubectl")
        if program is None:
            raise SchedulerUnavailable("kubectl is not installed here: this needs that program")
        if self._is_text:
            raise ConfigError(f"{self.location}: kubectl needs a file (kubeconfig = PATH)")
        words = [program]
        if self._kubeconfig:
            words += ["--kubeconfig", os.path.expanduser(self._kubeconfig)]
        if self._context:
            words += ["--context", self._context]
        return words

    @property
    def namespace(self) -> str:
        """The namespace of the pod whose account is used, or ``""`` if none is."""
        if not self._is_of_pod():
            return ""
        return _read_account("namespace")

    def _is_of_pod(self) -> bool:
        """Tell whether this process uses the account of its own pod."""
        if self._context or self._kubeconfig:
            return False
        files = (os.environ.get("KUBECONFIG") or _FILE).split(os.pathsep)
        if any(os.path.isfile(os.path.expanduser(file)) for file in files):
            return False
        return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and os.path.isdir(ACCOUNT)

    def access(self) -> Access:
        """Return how the cluster is asked, without connecting.

        Raises:
            ConfigError: if no cluster is configured.
            SchedulerUnavailable: if the official client is needed, and cannot be imported.
        """
        from urllib3.util.retry import Retry

        # one retry, because a kept connection may be stale. The caller decides about more.
        retries = Retry(total=1, connect=0)
        if self._is_of_pod():
            return _access_of_pod(retries)
        return self._access_of_file(retries)

    def _access_of_file(self, retries: Retry) -> Access:
        try:
            from kubernetes import client, config
            from kubernetes.config import kube_config
        except ImportError as exc:
            raise SchedulerUnavailable(
                f"the Python client of kubernetes cannot be imported: {exc} (pip install "
                "kubernetes)"
            ) from exc
        made = client.Configuration()
        made.retries = retries
        # the client reads the variable only once, when it is imported
        path = self._kubeconfig or os.environ.get("KUBECONFIG") or _FILE
        source: Any = io.StringIO(path) if self._is_text else path
        try:
            found: Any = kube_config.KubeConfigMerger(source).config  # type: ignore[no-untyped-call,unused-ignore]
            if found is None:
                raise config.ConfigException(f"there is no file {path}")
            loader: Any = kube_config.KubeConfigLoader(found, self._context, config_base_path=None)  # type: ignore[no-untyped-call,unused-ignore]
            loader.load_and_set(made)
            user = loader._user
        except config.ConfigException as exc:
            raise ConfigError(f"no Kubernetes cluster is configured: {exc}") from exc
        except Exception as exc:
            # the client raises errors of any kind for a file that is not a configuration
            text = " ".join(str(exc).split())
            if self._is_text:
                text = type(exc).__name__  # the message may hold secrets
            raise ConfigError(f"{self.location}: cannot be read: {text}") from exc
        api = client.ApiClient(made)
        api.default_headers.update(self._impersonation(user.value if user else {}))

        def headers() -> Mapping[str, str]:
            credentials = made.auth_settings().values()
            return {**api.default_headers, **{each["key"]: each["value"] for each in credentials}}

        # how the client's methods are called changed with its release 37, but not its pool of
        # connections
        return Access(str(made.host), api.rest_client.pool_manager, headers)

    def _impersonation(self, user: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers for a user's ``as`` setting, which the official client ignores."""
        groups = user.get("as-groups") or []
        if len(groups) > 1 or user.get("as-user-extra"):
            raise ConfigError(
                f"{self.location}: as-user-extra and more than one as-groups are not supported"
            )
        values = {"User": user.get("as"), "Uid": user.get("as-uid"), "Group": "".join(groups)}
        return {f"Impersonate-{word}": str(value) for word, value in values.items() if value}


def _access_of_pod(retries: Retry) -> Access:
    from urllib3 import PoolManager

    host = os.environ["KUBERNETES_SERVICE_HOST"]
    if ":" in host:
        host = f"[{host}]"  # an address of IPv6
    port = os.environ.get("KUBERNETES_SERVICE_PORT") or "443"
    certificates = os.path.join(ACCOUNT, "ca.crt")
    pool = PoolManager(
        maxsize=_CONNECTIONS, retries=retries, cert_reqs="CERT_REQUIRED", ca_certs=certificates
    )
    # the token is read each time, since the cluster exchanges it
    return Access(
        f"https://{host}:{port}",
        pool,
        lambda: {"Authorization": f"Bearer {_read_account('token')}", "User-Agent": "transload"},
    )


def _read_account(name: str) -> str:
    with open(os.path.join(ACCOUNT, name), encoding="ascii") as file:
        return file.read().strip()
