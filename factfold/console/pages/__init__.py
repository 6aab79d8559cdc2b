"""The pages of the console, in the order of the navigation. A page is one module, and one line here."""

from __future__ import annotations

from typing import Final

from factfold.console.page import Page
from factfold.console.pages import connectors, letters, overview, schemas, stream, subscriptions, view
from factfold.console.pages import map as map_page

PAGES: Final[tuple[Page, ...]] = (
    overview.PAGE,
    map_page.PAGE,
    view.PAGE,
    stream.PAGE,
    connectors.PAGE,
    subscriptions.PAGE,
    letters.PAGE,
    schemas.PAGE,
)
