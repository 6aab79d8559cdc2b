"""Chromium of the system, for the console's pictures and for its tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, sync_playwright

EXECUTABLE: Final = shutil.which("chromium")
NOT_FOUND: Final = "there is no chromium"
REMEDY: Final = "install it (Debian: apt-get install chromium)"
# As root, and without what looks for its maker's servers.
_FLAGS: Final = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync"]  # fmt: skip


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the browser until the block ends. Exits with a remedy if it is not installed."""
    if EXECUTABLE is None:
        raise SystemExit(f"error: {NOT_FOUND}\n  remedy: {REMEDY}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=_FLAGS)
        yield browser
        browser.close()
