"""A task runner that holds no thread for a job that is waited for."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterable
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from prefect.context import AsyncClientContext
from prefect.futures import PrefectConcurrentFuture, PrefectFuture, PrefectWrappedFuture
from prefect.task_engine import run_task_async
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.utilities.annotations import quote
from prefect.utilities.collections import StopVisiting, visit_collection

from transload_prefect.task import AppTask


class AppTaskRunner(ThreadPoolTaskRunner[Any]):
    """Runs job tasks in one event loop in one thread, and others as ``ThreadPoolTaskRunner`` does.

    Args:
        max_workers: threads for tasks that are not job tasks.
    """

    def __init__(self, max_workers: int | None = None) -> None:
        super().__init__(max_workers=max_workers)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[Any] = set()
        self._opening: asyncio.Future[AsyncClientContext] | None = None

    def submit(
        self,
        task: Any,
        parameters: dict[str, Any],
        wait_for: Iterable[Any] | None = None,
        dependencies: dict[str, set[Any]] | None = None,
    ) -> PrefectConcurrentFuture[Any]:
        """Submit a task, and return its future."""
        if not isinstance(task, AppTask):
            return super().submit(task, parameters, wait_for, dependencies)
        task_run_id = uuid.uuid4()
        context = copy_context()

        async def run() -> Any:
            for each in _futures_in(parameters, wait_for):
                await _ended(each)
            # one client for all tasks of the loop: each of its own is ten milliseconds and a
            # megabyte
            shared = await self._client()
            context.run(AsyncClientContext.__var__.set, shared)
            # a task takes over the context of whoever makes it: here, the flow's at the time of the
            # submit
            return await context.run(
                asyncio.ensure_future,
                run_task_async(
                    task=task.aio,
                    task_run_id=task_run_id,
                    parameters=parameters,
                    wait_for=wait_for,
                    return_type="state",
                    dependencies=dependencies,
                    context={},
                ),
            )

        future = asyncio.run_coroutine_threadsafe(run(), self._event_loop())
        self._tasks.add(future)
        future.add_done_callback(self._tasks.discard)
        return PrefectConcurrentFuture(task_run_id=task_run_id, wrapped_future=future)

    async def _client(self) -> AsyncClientContext:
        if self._opening is None:
            shared = AsyncClientContext()
            self._opening = asyncio.ensure_future(shared.__aenter__())
        opened: AsyncClientContext = await asyncio.shield(self._opening)
        return opened

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="transload-tasks", daemon=True
            )
            self._thread.start()
        return self._loop

    def cancel_all(self) -> None:
        """Cancel all tasks, and wait for their end. Their jobs are cancelled with them."""
        for future in list(self._tasks):
            future.cancel()
        super().cancel_all()

    def __exit__(self, *exc_info: Any) -> None:
        if exc_info[0] is not None:
            for future in list(self._tasks):
                future.cancel()
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(self._all_done(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
        self._loop = self._thread = self._opening = None
        super().__exit__(*exc_info)

    async def _all_done(self) -> None:
        me = asyncio.current_task()
        await asyncio.gather(
            *(each for each in asyncio.all_tasks() if each is not me), return_exceptions=True
        )
        if self._opening is not None:
            await self._opening.result().client.__aexit__(None, None, None)
        await asyncio.get_running_loop().shutdown_default_executor()


def _futures_in(*values: Any) -> list[PrefectFuture[Any]]:
    """Return the futures among a task's arguments."""
    found: list[PrefectFuture[Any]] = []

    def look(value: Any) -> Any:
        if isinstance(value, quote):
            raise StopVisiting
        if isinstance(value, PrefectFuture):
            found.append(value)
        return value

    visit_collection(values, look, max_depth=-1)
    return found


async def _ended(future: PrefectFuture[Any]) -> None:
    """Wait for another task, without blocking the event loop.

    Prefect's engine would block it: for good, if that task is one of this loop.
    """
    if not isinstance(future, PrefectWrappedFuture):
        await asyncio.to_thread(future.wait)
        return
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: object) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile: this task was cancelled
            loop.call_soon_threadsafe(over.set)

    # not asyncio.wrap_future: to cancel who waits would cancel what is waited for
    future.wrapped_future.add_done_callback(tell)
    await over.wait()
