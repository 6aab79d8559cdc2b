"""The URL of a database as errors and commands may show it: without what opens it.

postgresql://ann:secret@db/shop?sslpassword=other&sslmode=require → postgresql://ann:***@db/shop?sslpassword=***&sslmode=require
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_plus

if TYPE_CHECKING:
    from sqlalchemy import URL

_HIDDEN: Final = "***"
# To the last @: a password that holds one, and was not quoted, is hidden whole.
_PASSWORD: Final = re.compile(r"(://[^:/?#@]*):.*@", re.S)
_PARAMETER: Final = re.compile(r"([?&;])([^=&;#]*)=([^&;#]*)")
_SECRET_NAME: Final = re.compile(
    r"pass(?!file)|pwd|secret|token|credential|signature|^sig$|(api|access|account|private|shared)[._-]?key", re.I
)


def shown_url(url: URL | str) -> str:
    """Return a URL with `***` for its password and for the parameters that are secrets by their names."""
    text = url if isinstance(url, str) else url.render_as_string(hide_password=True)
    return _PARAMETER.sub(_parameter, _PASSWORD.sub(rf"\1:{_HIDDEN}@", text))


def _parameter(match: re.Match[str]) -> str:
    before, name, value = match.groups()
    return f"{before}{name}={_HIDDEN if _SECRET_NAME.search(unquote_plus(name)) else value}"
