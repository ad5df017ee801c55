"""As small as Django allows."""

import os
from pathlib import Path

BASE_DIR = Path(__file__).parent
SECRET_KEY = "only for the example"
DEBUG = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "urls"
INSTALLED_APPS = ["shop"]
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("DJANGO_DB", BASE_DIR / "shop.db")}
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
