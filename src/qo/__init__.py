"""qo: a task queue that lives in the storage you already have."""

__version__ = "0.1.0.dev0"
