"""Cron: one job that submits, one that works. No process stays alive between them.

    # crontab -e
    # Every five minutes, although the report is daily, so that a machine that was off at midnight catches up: the key
    # lets one task in.
    */5 * * * *  cd /srv/app && python -m examples.cron submit
    # Works off what is there and ends. Two at a time do no harm: a task has one holder.
    *   * * * *  cd /srv/app && qo worker examples.cron:q --burst

`python -m examples.cron work` is the second job without the command line tool.
"""

import asyncio
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import qo

q = qo.Queue()
REPORTS = Path("reports")


@q.task(max_retries=10, timeout="10m")
def write_report(day: date) -> str:
    """Written so that running it twice does no harm: the same file with the same content, put in place at once."""
    REPORTS.mkdir(exist_ok=True)
    path = REPORTS / f"{day}.txt"
    draft = path.with_suffix(".draft")
    draft.write_text(f"report of {day}\n")
    draft.replace(path)
    return str(path)


def submit(day: date) -> None:
    """Once for each day, however often cron calls. The window of a key must be longer than the period."""
    task = write_report.options(key=f"report:{day}", key_window="2d").submit_sync(day)
    print(f"{day}: {'submitted' if task.created else 'there already'}, {task.id} is {task.state}")


def work() -> None:
    """Everything that could run now, then end."""
    asyncio.run(qo.Worker(q).run(burst=True))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["submit"]:
            submit(datetime.now(UTC).date())
        case ["submit", day]:
            submit(date.fromisoformat(day))
        case ["work"]:
            work()
        case _:
            sys.exit("usage: python -m examples.cron submit [DAY] | work")
