"""make pictures: the console's pages on the running shop, as pictures for the how-to.

The shop is the demonstration on real servers, in small. Chromium of the system takes the pictures.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import gettempdir
from typing import Final

from playwright.sync_api import Page

from docs.chromium import chromium
from eventstore.inspection import Selection
from factfold.console.definitions import Definitions, find_definitions
from factfold.console.parts import Places
from factfold.console.server import Server
from factfold.console.sources import Sources
from factfold.stack import LocalStack, start_lightly
from factfold.stack.state import StackInfo
from sample_app.demo import Services, Sizes, tell
from sample_app.receipts.printing import GROUP, TOPIC
from sample_app.road import Road
from sample_app.shipping import shipping
from sample_app.story import Story

FOLDER: Final = Path("docs/pictures/console")
SMALL: Final = Sizes(customers=40, articles=20, first_orders=120, sessions=30, live_orders=30)
WIDTH, HEIGHT = 1280, 800
# Links that lead from a page to what its picture shows.
_FOLLOWED: Final = {"view": ("#rows a",), "letters": ("#letters a",),
                    "subscriptions": ("#instances a",)}  # fmt: skip
_SHOP: Final = [f"sample_app.{part}" for part in
                ("customers", "orders", "payments", "inventory", "browsing", "fulfilment", "views")]  # fmt: skip
_SETTLE_MS: Final = 12_000  # two samples of trends, and parts that take long


def main() -> None:
    """Play the shop's day in small, and take the pictures in its evening."""
    start_lightly()
    stack = LocalStack("pictures", ephemeral=True)
    stack.up()
    try:
        os.environ["FACTFOLD_KAFKA__BOOTSTRAP_SERVERS"] = stack.info.bootstrap_servers
        story = Story("The shop, to be looked at")
        tell(story, stack.info, SMALL, look=lambda road, services: take(stack.info, road, services))
    finally:
        stack.down()


def take(info: StackInfo, road: Road, services: Services) -> None:
    """Open a console over the shop and take a picture of each page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    url = road.engine.url.render_as_string(hide_password=False)
    places = Places(store_url=url, source_url=url, views_url=road.views_url, connect_url=info.connect_url, kafka=True,
                    checkpoints=_checkpoints())  # fmt: skip
    with Sources(places, _declared(services), patience=5.0) as sources, chromium() as browser:
        server = Server(sources, host="127.0.0.1", port=0, allow_actions=True)
        with server.serving():
            _take_each(browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}), server.url, _addresses(road))


def _take_each(page: Page, url: str, addresses: Mapping[str, str]) -> None:
    page.goto(url)
    page.wait_for_timeout(_SETTLE_MS)
    for name, path in addresses.items():
        page.goto(url.partition("/?")[0] + path)
        for link in _FOLLOWED.get(name, ()):
            page.locator(link).first.click()
        page.screenshot(path=str(FOLDER / f"{name}.png"))


def _checkpoints() -> Path:
    """The folder of the router that the demonstration has started."""
    return max(Path(gettempdir()).glob("factfold-router-*"), key=lambda folder: folder.stat().st_mtime)


def _addresses(road: Road) -> dict[str, str]:
    paid = Selection(types=("order.shipped",))
    event = next(road.store.read_selected(paid, newest_first=True, limit=1))
    return {
        "overview": "/",
        "charts": "/?kind=group&name=shop",
        "map": "/map",
        "view": "/view?group=shop&view=order_details",
        "stream": f"/stream?stream={event.stream}&at={event.version}",
        "connectors": "/connectors?name=shop_tables",
        "subscriptions": "/subscriptions?process=fulfilment&ended=1",
        "letters": f"/letters?home=topic:{TOPIC}:{GROUP}",
        "schemas": "/schemas?type=order.placed",
    }


def _declared(services: Services) -> Definitions:
    """What the shop's modules declare, and the subscriptions that its services make."""
    definitions = find_definitions(_SHOP)
    made = (services.remediation.subscription(), shipping(database=services.parcels), services.receipts.subscription())
    definitions.subscriptions.update({f"sample_app:{one.group}": one for one in made})
    return definitions


if __name__ == "__main__":
    main()
