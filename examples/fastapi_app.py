"""An async FastAPI app: submit in a request, ask for the state and the result in later ones.

$ uvicorn examples.fastapi_app:app               the web server
$ qo worker examples.fastapi_app:q               a worker, in another terminal, on the same machine
$ curl -X POST localhost:8000/thumbnails -H 'content-type: application/json' -d '{"url": "https://example.org/a.png"}'

For a small site one process is enough: with EMBEDDED_WORKER=1 the web server runs the tasks as well.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, HttpUrl

import qo

q = qo.Queue()  # QO_URL, else sqlite:///qo.db


class Thumbnail(BaseModel):
    """What the task returns; Pydantic models may be arguments and results."""

    url: HttpUrl
    width: int


@q.task(timeout=30, max_retries=5)
async def make_thumbnail(url: HttpUrl, width: int = 200) -> Thumbnail:
    """Stands for something that takes longer than a request should."""
    qo.current().progress({"step": "downloading"})
    return Thumbnail(url=HttpUrl(f"{url}?w={width}"), width=width)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the queue before the first request, so that a wrong URL stops the server and not a user."""
    async with q:
        if not os.environ.get("EMBEDDED_WORKER"):
            yield
            return
        # On the loop of the server, so only for async handlers that never block; else q.start(), a thread of its own.
        worker = qo.Worker(q)
        running = asyncio.create_task(worker.run(signals=False))
        yield
        worker.stop()
        await running


app = FastAPI(lifespan=lifespan)


class Order(BaseModel):
    """What a client sends."""

    url: HttpUrl
    width: int = 200
    request_id: str | None = None


@app.post("/thumbnails", status_code=202)
async def submit(order: Order) -> dict[str, Any]:
    """Durable when this answers. A client that repeats its request_id gets the task it already has."""
    key = f"thumbnail:{order.request_id}" if order.request_id else None
    task = await make_thumbnail.options(key=key).submit(order.url, width=order.width)
    return {"id": task.id, "created": task.created}


@app.get("/thumbnails/{id}")
async def status(id: str) -> dict[str, Any]:
    """Where it stands."""
    task = await _find(id)
    return {"id": task.id, "state": task.state, "attempt": task.attempt, "progress": task.progress}


@app.get("/thumbnails/{id}/result")
async def result(id: str, wait: float = 0) -> Thumbnail:
    """The result, waiting for it up to `wait` seconds (at most 20)."""
    await _find(id)
    try:
        return await q.result(id, timeout=min(wait, 20))
    except qo.ResultTimeout as error:
        raise HTTPException(409, "not done yet") from error
    except (qo.TaskFailed, qo.TaskCancelled) as error:
        raise HTTPException(422, str(error)) from error


async def _find(id: str) -> qo.Task:
    try:
        task = await q.get(id)
    # An id that is no id is an InvalidInput.
    except (qo.TaskNotFound, qo.InvalidInput) as error:
        raise HTTPException(404, "no such thumbnail") from error
    # Everybody who knows an id could read the tasks of other types otherwise.
    if task.type != make_thumbnail.type:
        raise HTTPException(404, "no such thumbnail")
    return task
