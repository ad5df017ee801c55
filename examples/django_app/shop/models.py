"""What the shop keeps in Django's database."""

from django.db import models


class Order(models.Model):
    """Something bought; the receipt comes later."""

    email = models.EmailField()
    receipt_task = models.CharField(max_length=36, default="")
    receipt_sent = models.BooleanField(default=False)
