"""Run Python functions as jobs, by `transload.submit` and `transload.map`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast

from transload.components.programs.call_main import KEY, MODULES, PLACE, PROGRAM
from transload.errors import AppNotFound, SpecError, SubmitError
from transload.runner import Launch
from transload.runner.environments import (
    environment_of,
    is_installed_folder,
    scheduler_of,
    script_of_function,
    with_open_settings,
)
from transload.runner.factory import default_runner
from transload.runner.job import Job
from transload.runner.shortcuts import check_keywords
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
    from transload.runner.function_call import Call
    from transload.runner.planning import Destination
    from transload.schedulers.environments import Header

T = TypeVar("T")


class FunctionJob(Job, Generic[T]):
    """A `Job` of a function that was submitted, whose `result` has a type."""

    def result(self, timeout: float | None = None, *, safe: bool = False) -> T:
        """Do what `Job.result` does."""
        return cast("T", super().result(timeout, safe=safe))


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
    safe: bool
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
    safe: bool = False,
    environment: Environment | str | None = None,
    **overrides: Unpack[OverrideOptions],
) -> FunctionJob[T]:
    """Submit a Python function, without waiting for it.

    It needs the package cloudpickle here, and nothing where it runs. Its own module travels with
    it, and so do the modules that it and its arguments come from, with all that these import.
    Modules that are installed there, or found on its disk or in a folder of ``workspace``, do not
    travel. ``workspace`` must hold data files, and modules that a function of the main program
    imports only as it runs.

    The returned value is signed with a random key that only this job and this user have. It is
    unpickled only if the signature is right. The job gets the key as a secret. The key lies in the
    state folder until the job is deleted.

    Args:
        fn: the function.
        args: its arguments.
        kwargs: its arguments by name.
        scheduler: where to run it. The default is the configured one, else ``local``.
        resource: what it needs, or the name of a resource.
        cfg: run options of the scheduler.
        workspace: local folders that travel with it.
        pass_env: patterns (``HF_*``) of variables that are passed on.
        tracker_base: where its result goes. The default is where the scheduler keeps results.
        runner: submits. The default is the one that this process shares.
        safe: no key is made, and nothing is unpickled. What the function returns must be JSON
            (lists, dicts with texts as names, texts, numbers, bools, None). What it raises comes
            back as text. This is for schedulers that cannot give a job a secret. Who can write to
            the folder of results can change the result.
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
    shares = runner.scheduler(name).capabilities.shares_disk
    if isinstance(workspace, str):
        given = Workspace.from_str(workspace)
    else:
        given = workspace or Workspace()
    roots = [os.path.expanduser(path) for path, target in given.projects.items() if not target]
    made, package, title = _pickled((fn, args, dict(kwargs or {})), fn, roots, shares)
    folder = tempfile.mkdtemp(prefix="transload-call-")
    try:
        _write_call(folder, made, shares, in_environment=wanted is not None)
        travels = Workspace(
            {folder: PLACE, package: f"{PLACE}/library/cloudpickle", **given.projects}
        )
        program = sys.executable if shares and wanted is None else "python3"
        role = Role("main", "", entrypoint=program, args=["-u", PROGRAM], workspace=travels)
        if isinstance(resource, str):
            role.resource = named_resources[resource]
        elif resource is not None:
            role.resource = resource
        app = AppDef(title, [role])
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
        if safe:
            handle = runner.schedule(runner.dryrun(launch))
        else:
            handle = _submit_with_key(runner, launch, app.roles[0])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return FunctionJob(handle, runner)


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


def _submit_with_key(runner: Runner, launch: Launch, role: Role) -> str:
    """Submit a function whose job gets a new key as a secret, which is kept here before."""
    from transload.runner.function_keys import forget_key, keep_key, new_key

    key = new_key()
    role.secrets[KEY] = f"env:{KEY}"
    runner = runner.with_environ({**runner._environ, KEY: key})
    plan = runner.dryrun(launch)
    keep_key(plan.handle, key)
    try:
        return runner.schedule(plan)
    except BaseException as exc:
        forget_key(plan.handle)
        if isinstance(exc, SubmitError) and exc.secrets:
            exc.add_note(
                "with safe=True a function needs no secret: what it returns must be JSON then"
            )
        raise


def _write_call(folder: str, made: Call, shares: bool, *, in_environment: bool) -> None:
    """Write the pickled call, facts of this process, modules, and the program that the job runs.

    In a separate environment, the packages that are installed here are not found.
    """
    with open(f"{folder}/call.pkl", "wb") as file:
        file.write(made.body)
    for path, source in made.modules.items():
        target = os.path.join(folder, MODULES, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)
    call: dict[str, Any] = {"python": sys.version_info[:2], "cwd": None, "path": []}
    if shares:
        call["cwd"] = os.getcwd()
        call["path"] = [os.path.abspath(each) for each in sys.path]
    if shares and in_environment:
        call["path"] = [each for each in call["path"] if not is_installed_folder(each)]
    with open(f"{folder}/call.json", "w", encoding="utf-8") as file:
        json.dump(call, file)
    package = os.path.dirname(os.path.dirname(__file__))
    program = os.path.join(package, "components", "programs", "call_main.py")
    shutil.copy(program, f"{folder}/{os.path.basename(PROGRAM)}")


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
        app = submit(fn, item, **options)
        running.add(app)
        if over.is_set():
            app.cancel()
        result = app.result()
        running.discard(app)
        return result

    pool = ThreadPoolExecutor(parallelism, thread_name_prefix="transload-map")
    try:
        yield from pool.map(call, items)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        over.set()
        for app in list(running):
            with contextlib.suppress(AppNotFound):
                app.cancel()
        pool.shutdown()


def _pickled(
    call: Any, fn: Callable[..., Any], folders: Iterable[str] = (), shares: bool = False
) -> tuple[Call, str, str]:
    """Return a pickled call, the folder of the package that reads it, and a name for it.

    See `pickle_call`.
    """
    from transload.errors import ConfigError

    try:
        import cloudpickle  # noqa: F401 - may be missing

        from transload.runner.function_call import PACKAGE, name_of, pickle_call
    except ImportError as exc:
        raise ConfigError(
            "functions travel by cloudpickle, which is not installed: pip install cloudpickle"
        ) from exc
    if not callable(fn):
        raise SpecError(f"{fn!r}: must be a function")
    return pickle_call(call, fn, folders=folders, shares=shares), PACKAGE, name_of(fn)
