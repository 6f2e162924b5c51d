"""Which pages there are."""

from collections.abc import Callable, Mapping

from scripts.reference.commands_page import commands_page
from scripts.reference.errors_page import errors_page
from scripts.reference.fields_page import fields_page
from scripts.reference.headers_page import headers_page
from scripts.reference.metrics_page import metrics_page
from scripts.reference.settings_page import settings_page

PAGES: Mapping[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "metrics.md": metrics_page,
    "headers.md": headers_page,
    "errors.md": errors_page,
    "fields.md": fields_page,
    "commands.md": commands_page,
}
