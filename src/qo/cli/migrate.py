"""`qo migrate`: bring the store to this version."""

from importlib.resources import files

import click

from qo import __version__
from qo.cli.frame import queue_of, store_options, with_queue
from qo.cli.said import Said
from qo.cli.show import emit
from qo.errors import ConfigError
from qo.queue import Queue
from qo.stores.sqlite.schema import VERSION
from qo.stores.sqlite.store import SqliteStore
from qo.units import show_url


def schema() -> str:
    """The files that make the tables, as they are: all versions, oldest first."""
    folder = files("qo.stores.sqlite") / "sql"
    return "\n".join((folder / f"schema_{number}.sql").read_text("utf-8") for number in range(1, VERSION + 1))


@click.command("migrate", short_help="Bring the store to this version of qo.")
@click.option("--sql", is_flag=True, help="Print the schema instead, where the store has one; changes nothing.")
@store_options()
def command(said: Said, sql: bool) -> None:
    """Create what the store needs, or bring it to this version of qo.

    Every command and worker does this when it opens the store; this one does nothing else, for deployments that want
    it done once, before the workers start.
    """
    if sql:
        store = queue_of(said).open_store()
        if not isinstance(store, SqliteStore):
            raise ConfigError(f"{show_url(queue_of(said).url)} has no SQL schema")
        click.echo(schema(), nl=False)
        return

    async def work(queue: Queue) -> str:
        return show_url(queue.url)

    url = with_queue(said, work, create=True)
    if said.json:
        emit({"url": url, "ready": True, "version": __version__})
    else:
        click.echo(f"{url} is ready for qo {__version__}")
