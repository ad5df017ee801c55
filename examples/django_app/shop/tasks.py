"""The queue and its tasks.

$ qo worker shop.tasks:q

A worker imports this file before Django is ready, a view imports it after: `setup` does nothing the second time.
"""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
django.setup()

from django.db import close_old_connections  # noqa: E402

import qo  # noqa: E402
from shop.models import Order  # noqa: E402

q = qo.Queue()  # QO_URL, else sqlite:///qo.db


@q.task(max_retries=8, timeout=60)
def send_receipt(order_id: int) -> str:
    """Takes the id and not the order: by the time it runs the row may have changed. Safe to run twice."""
    close_old_connections()  # the worker's threads live long; Django does this for requests only
    order = Order.objects.get(pk=order_id)
    if not order.receipt_sent:
        order.receipt_sent = True
        order.save(update_fields=["receipt_sent"])
    return f"receipt for {order.email}"
