"""Where the locks of a store without a folder of its own are kept."""

from __future__ import annotations

import stat
import tempfile

import pytest

from projections.errors import TableStoreUnavailable
from projections.stores.role_files import own_folder


@pytest.fixture
def shared(monkeypatch, tmp_path):
    """The shared temporary directory, and this user's folder in it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = own_folder()
    folder.rmdir()
    return folder


def test_it_is_this_user_s_alone_and_found_again(shared):
    assert stat.S_IMODE(own_folder().stat().st_mode) == 0o700
    assert own_folder() == shared


@pytest.mark.parametrize("made", ["open to others", "a link", "a link to nowhere", "a file"])
def test_what_somebody_else_may_have_put_there_is_refused(shared, tmp_path, made):
    if made == "open to others":
        shared.mkdir(mode=0o755)
    elif made == "a file":
        shared.write_text("")
    else:
        elsewhere = tmp_path / "elsewhere"
        if made == "a link":
            elsewhere.mkdir(mode=0o700)
        shared.symlink_to(elsewhere)
    with pytest.raises(TableStoreUnavailable, match="not a folder of this user alone"):
        own_folder()
