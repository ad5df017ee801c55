"""A shop that sends receipts in the background."""
