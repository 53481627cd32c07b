"""Run Python functions as jobs, by `transload.submit` and `transload.map`."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast

from transload.errors import AppNotFound, ConfigError, SpecError
from transload.runner import Launch
from transload.runner.api import check_keywords, default_runner
from transload.runner.environments import (
    environment_of,
    is_installed_folder,
    scheduler_of,
    script_of_function,
    with_open_settings,
)
from transload.runner.function_main import PLACE, PROGRAM
from transload.runner.job import Job
from transload.runtime.forks import fork_lock
from transload.schedulers.environments import read_header
from transload.specs import (
    NO_ENVIRONMENT,
    AppDef,
    CfgVal,
    Environment,
    Resource,
    Role,
    Workspace,
    named_resources,
)
from transload.specs.app import as_environment
from transload.specs.checks import as_list, check_given
from transload.specs.settings import OverrideOptions

if TYPE_CHECKING:
    from transload.runner import Runner
    from transload.runner.plan import Destination
    from transload.schedulers.environments import Header

T = TypeVar("T")
_lock = fork_lock()


class FunctionJob(Job, Generic[T]):
    """The `Job` of a function that was submitted. `transload.attach` finds it again by its handle."""

    def result(self, timeout: float | None = None, *, trust: bool = False) -> T:
        """Do what `Job.result` does."""
        return cast("T", super().result(timeout, trust=trust))


class SubmitOptions(OverrideOptions, total=False):
    """The keyword arguments of `submit`, as `map` takes them."""

    kwargs: Mapping[str, Any] | None
    scheduler: str | None
    resource: Resource | str | None
    cfg: Mapping[str, CfgVal] | None
    workspace: str | Workspace | None
    pass_env: Sequence[str]
    tracker_base: str | None
    runner: Runner | None
    environment: Environment | str | None


def submit(
    fn: Callable[..., T],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    scheduler: str | None = None,
    resource: Resource | str | None = None,
    cfg: Mapping[str, CfgVal] | None = None,
    workspace: str | Workspace | None = None,
    pass_env: Sequence[str] = (),
    tracker_base: str | None = None,
    runner: Runner | None = None,
    environment: Environment | str | None = None,
    **overrides: Unpack[OverrideOptions],
) -> FunctionJob[T]:
    """Submit a Python function, without waiting for it.

    It needs the package cloudpickle here, and nothing where it runs. On a scheduler that shares
    this machine's disk, it works in the current directory and imports what this process can.
    Elsewhere a workspace travels, and modules are imported from there.

    Args:
        fn: the function.
        args: its arguments.
        kwargs: its arguments by name.
        scheduler: where to run it. The default is the configured one, else ``local``.
        resource: what it needs, or the name of a resource.
        cfg: run options of the scheduler.
        workspace: local folders that travel with it. Where no disk is shared, the default is the
            package of the function, or the folder of its module.
        pass_env: patterns (``HF_*``) of variables that are passed on.
        tracker_base: where its result goes. The default is where the scheduler keeps results.
        runner: submits. The default is the one that this process shares.
        environment: what must be installed where it runs, as a file or ``none`` (see `Launch`). The
            default is what the settings say, else the header of the function's script. Its Python
            must have the version of this one.
        overrides: ``name, env, image, retries, retry_delay, time_limit, cpu, gpu, mem``, as `run`
            takes them.

    Raises:
        SpecError: if the function or an argument cannot be pickled, or another argument is not
            valid.
        ConfigError: for an unknown scheduler or option, or if cloudpickle is not installed.
        SubmitError: if the scheduler did not accept it. Nothing runs.
    """
    check_given(
        scheduler=scheduler,
        workspace=workspace,
        tracker_base=tracker_base,
        environment=environment,
    )
    check_keywords(overrides, "kwargs")
    runner = runner or default_runner()
    script = script_of_function(fn)
    header = None if script is None else read_header(script)
    name = scheduler or scheduler_of(header) or runner.settings.scheduler
    wanted = _environment(environment, runner.destination(name, cfg), header)
    shares = runner.scheduler(name).shares_disk
    body, library = _pickled(fn, args, kwargs or {})
    if workspace is None and not shares:
        travels = _code_of(fn)
    elif isinstance(workspace, Workspace):
        travels = workspace
    else:
        travels = Workspace.from_str(workspace)
    folder = tempfile.mkdtemp(prefix="transload-call-")
    try:
        _write_call(folder, body, shares, in_environment=wanted is not None)
        role = Role("main", "", entrypoint="python3", args=["-u", PROGRAM])
        if shares and wanted is None:
            role.entrypoint = sys.executable
        role.workspace = Workspace(
            {folder: PLACE, library: f"{PLACE}/library/cloudpickle", **travels.projects}
        )
        if isinstance(resource, str):
            role.resource = named_resources[resource]
        elif resource is not None:
            role.resource = resource
        app = AppDef(_name_of(fn), [role])
        if header is not None:
            app = with_open_settings(app, {role.name: header}, is_command=True)
        launch = Launch(
            app=app,
            scheduler=name,
            cfg=cfg or {},
            pass_env=as_list(pass_env, "pass_env"),
            tracker_base=tracker_base,
            environment=wanted or Environment(NO_ENVIRONMENT),
            overrides=overrides,
        )
        handle = runner.schedule(runner.dryrun(launch))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return FunctionJob(handle, runner)


def map(  # noqa: A001
    fn: Callable[..., T],
    items: Iterable[Any],
    *,
    parallelism: int = 8,
    **options: Unpack[SubmitOptions],
) -> Iterator[T]:
    """Call a function for each item as a job of its own, and return the results in order.

    Each result is returned when it is there. When a call fails, or the caller stops reading, the
    jobs that still run are cancelled.

    Args:
        fn: the function, which gets the item.
        items: the items.
        parallelism: how many jobs run at a time.
        options: see `submit`.

    Raises:
        SpecError: if ``parallelism`` is not 1 or more.
    """
    if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
        raise SpecError(f"parallelism={parallelism!r}: must be 1 or more")
    return _results(fn, list(items), parallelism, options)


def _results(
    fn: Callable[..., T], items: list[Any], parallelism: int, options: SubmitOptions
) -> Iterator[T]:
    from concurrent.futures import ThreadPoolExecutor

    running: set[FunctionJob[T]] = set()
    over = threading.Event()

    def call(item: Any) -> T:
        job = submit(fn, item, **options)
        running.add(job)
        if over.is_set():
            job.cancel()
        result = job.result()
        running.discard(job)
        return result

    pool = ThreadPoolExecutor(parallelism, thread_name_prefix="transload-map")
    try:
        yield from pool.map(call, items)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        over.set()
        for job in list(running):
            with contextlib.suppress(AppNotFound):
                job.cancel()
        pool.shutdown()


# -- what travels


def _environment(
    given: Environment | str | None, to: Destination, header: Header | None
) -> Environment | None:
    """Return what a function needs installed, with the version of Python that it must have."""
    named = as_environment(given, "environment")
    configured = as_environment(to.environment, "environment (settings)")
    wanted = named or configured or environment_of(header)
    if wanted is None or wanted.is_none:
        return None
    return replace(wanted, python="{}.{}".format(*sys.version_info[:2]))


def _pickled(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[bytes, str]:
    """Return a call as a pickle, and the folder of the package that reads it."""
    try:
        import cloudpickle
    except ImportError as exc:
        raise ConfigError(
            "functions travel by cloudpickle, which is not installed: pip install cloudpickle"
        ) from exc
    if not callable(fn):
        raise SpecError(f"{fn!r}: must be a function")
    by_value = _is_nowhere(_module_of(fn))
    with _lock:  # what is registered is so for the whole process
        if by_value:
            cloudpickle.register_pickle_by_value(_module_of(fn))
        try:
            body = cloudpickle.dumps((fn, tuple(args), dict(kwargs)))
        except Exception as exc:
            why = f"{type(exc).__name__}: {exc}"
            raise SpecError(f"{_name_of(fn)}: cannot be pickled: {why}") from exc
        finally:
            if by_value:
                cloudpickle.unregister_pickle_by_value(_module_of(fn))
    return body, os.path.dirname(os.path.abspath(cloudpickle.__file__))


def _is_nowhere(module: Any) -> bool:
    """Tell whether a new process could not import a module by its name.

    `__main__` always travels in the pickle.
    """
    if module is None or module.__name__ == "__main__":
        return False
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ not in sys.builtin_module_names
    folder = _import_folder(module)
    return folder is None or folder not in {os.path.realpath(path or ".") for path in sys.path}


def _module_of(fn: Callable[..., Any]) -> Any:
    return sys.modules.get(getattr(_inner(fn), "__module__", None) or "")


def _inner(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a partial function calls."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def _name_of(fn: Callable[..., Any]) -> str:
    """Return a name for a function. A partial has that of the function that it calls."""
    fn = _inner(fn)
    name = getattr(fn, "__name__", type(fn).__name__)
    return name if name.isidentifier() else "function"


def _full_name(module: Any) -> str:
    """Return the name by which a module is imported, which ``python -m`` hides."""
    spec = getattr(module, "__spec__", None)
    name: str = module.__name__ if spec is None else spec.name
    return name


def _import_folder(module: Any) -> str | None:
    """Return the folder of the module path in which a module or its package lies, if it is known."""
    file: str | None = getattr(module, "__file__", None)
    if file is None:
        return None
    folder = os.path.dirname(os.path.realpath(file))
    depth = _full_name(module).count(".") + (os.path.basename(file) == "__init__.py")
    for _ in range(depth):
        folder = os.path.dirname(folder)
    return folder


def _code_of(fn: Callable[..., Any]) -> Workspace:
    """Return the package that a function lies in, or the folder of its module.

    What is installed, or was typed into an interpreter, does not travel.
    """
    module = _module_of(fn)
    folder = _import_folder(module)
    if folder is None or is_installed_folder(folder):
        return Workspace()
    package = _full_name(module).partition(".")[0]
    if os.path.isdir(os.path.join(folder, package)):
        return Workspace({os.path.join(folder, package): package})
    return Workspace({folder: ""})


def _write_call(folder: str, body: bytes, shares: bool, *, in_environment: bool) -> None:
    """Write the pickled call, facts of this process, and the program that the job runs.

    In a separate environment, the packages that are installed here are not found.
    """
    with open(f"{folder}/call.pkl", "wb") as file:
        file.write(body)
    call: dict[str, Any] = {"python": sys.version_info[:2], "cwd": None, "path": []}
    if shares:
        call["cwd"] = os.getcwd()
        call["path"] = [os.path.abspath(each) for each in sys.path]
    if shares and in_environment:
        call["path"] = [each for each in call["path"] if not is_installed_folder(each)]
    with open(f"{folder}/call.json", "w", encoding="utf-8") as target:
        json.dump(call, target)
    program = os.path.join(os.path.dirname(__file__), "function_main.py")
    shutil.copy(program, f"{folder}/{os.path.basename(PROGRAM)}")
