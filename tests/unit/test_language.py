"""The check of English sees what the rules forbid, where people read it, and nothing else."""

from __future__ import annotations

import pytest

from docs import language
from docs.sentences import of_messages, of_page, of_template

MODULE = '''
class Store:
    """Store events; raises an error where one is kept."""

    def read(self):
        """Read what nobody wrote."""

    def _own(self):
        """Private: kept; told."""

def inner():
    """Nobody reads this."""
    raise StoreError(f"stream {name!r} is gone", remedy="open it anew" if old else "wait")

@app.command()
def show(name: Annotated[str, typer.Option(help="Whoever asks.")]) -> None:
    """Show a stream; its events."""
    typer.echo("nobody is told")
    log.warning("stream.gone", name="kept")
    return "a part of a message, kept apart"

QUERY = "SELECT gone FROM kept"
'''


def problems(sentences):
    return [(one.line, one.problem.split(":")[0].strip("'")) for one in language.findings(list(sentences))]


def page(tmp_path, text):
    (tmp_path / "page.md").write_text(text)
    return problems(of_page(tmp_path / "page.md", tmp_path))


@pytest.mark.parametrize(
    ("sentence", "problem"),
    [
        ("The reader who waits is told.", "who"),
        ("The row is kept.", "kept"),
        ("It failed, so the row is absent.", "so"),
        ("That is why it waits.", "That is why"),
        (" ".join(["word"] * 43) + ".", "43 words"),
    ],
)
def test_a_sentence_of_a_page_that_breaks_a_rule_is_shown_with_its_line(tmp_path, sentence, problem):
    found = page(tmp_path, f"# A page\n\nIt is well.\n\n{sentence}\n")
    assert (5, problem) in found


def test_an_average_sentence_must_be_short_even_if_none_is_too_long(tmp_path):
    long = " ".join(["word"] * 25) + "."
    assert page(tmp_path, f"{long}\n\n" * 8) == [(1, "25 words a sentence on average")]


@pytest.mark.parametrize(
    "text",
    [
        "```text\nnobody is told\n```\n",
        "Call `kept()` first.\n",
        "The value is so large that it does not fit, so that it is refused.\n",
        "[The page](kept.md) is short.\n",
        "| a | b |\n| --- | --- |\n| one word | two; words |\n",
    ],
)
def test_code_links_and_other_uses_of_a_word_are_left_alone(tmp_path, text):
    assert page(tmp_path, text) == []


def test_errors_remedies_help_printed_lines_and_commands_are_read(tmp_path):
    (tmp_path / "store.py").write_text(MODULE)
    assert set(problems(of_messages(tmp_path / "store.py", tmp_path))) == {
        (13, "gone"), (13, "anew"), (16, "Whoever"), (16, "a semicolon in a message or docstring"),
        (18, "nobody"), (18, "told"), (19, "gone"), (20, "kept"),
    }  # fmt: skip


def test_the_text_between_the_tags_of_a_template_is_read(tmp_path):
    (tmp_path / "view.html").write_text(
        '<p class="kept">{{ told }}</p>\n<p>{% if gone %}Nobody reads it.{% endif %}</p>\n'
    )
    assert problems(of_template(tmp_path / "view.html", tmp_path)) == [(2, "Nobody")]


def test_docstrings_are_read_of_documented_names_and_their_public_members(tmp_path):
    (tmp_path / "store.py").write_text(MODULE)
    found = problems(of_messages(tmp_path / "store.py", tmp_path, {"Store"}))
    assert {(2, "kept"), (2, "a semicolon in a message or docstring"), (5, "nobody")} <= set(found)
    assert not [line for line, _ in found if line in (8, 12)]
