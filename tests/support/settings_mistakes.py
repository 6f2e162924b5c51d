"""What is wrong with settings."""

from typing import Any

import pytest

from gateway.settings_sources import SettingsError, load


def mistakes(**sources: Any) -> list[str]:
    """A line for each mistake."""
    with pytest.raises(SettingsError) as caught:
        load(**sources)
    return str(caught.value).splitlines()
