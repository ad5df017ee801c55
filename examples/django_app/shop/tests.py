"""$ QO_URL=memory:// python manage.py test

TransactionTestCase and not TestCase: the handler runs in a thread with a connection of its own and must see what was
committed.
"""

import json

from django.test import TransactionTestCase

from shop.models import Order
from shop.tasks import q


class Receipts(TransactionTestCase):
    """Orders get receipts."""

    def test_an_order_gets_its_receipt(self) -> None:
        """The view submits, the worker sends."""
        answer = self.client.post("/orders", json.dumps({"email": "ada@example.org"}), "application/json")
        self.assertEqual(answer.status_code, 201)
        url = f"/orders/{answer.json()['id']}"
        self.assertEqual(self.client.get(url).json()["receipt"], "pending")
        self.assertEqual(q.sync.run_once(), 1)
        expected = {"email": "ada@example.org", "receipt": "completed", "sent": True}
        self.assertEqual(self.client.get(url).json(), expected)

    def test_a_failed_order_submits_nothing(self) -> None:
        """What is rolled back leaves no task behind."""
        self.client.raise_request_exception = False
        before = q.sync.stats().pending
        self.assertEqual(self.client.post("/orders", "{}", "application/json").status_code, 500)
        self.assertEqual(q.sync.stats().pending, before)
        self.assertFalse(Order.objects.exists())
