"""A Markdown extension for the site: the second word of a fence, which tells the tests what to do, is left out."""

from __future__ import annotations

import re

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

FENCE = re.compile(r"^(\s*```python) (?:server|embedded|file|peer)$")


class _WithoutSecondWords(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        return [FENCE.sub(r"\1", line) for line in lines]


class _Fences(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        # Before superfences (25), which takes a fence with an unknown word for text.
        md.preprocessors.register(_WithoutSecondWords(md), "fences_of_tests", 28)


def makeExtension(**options: object) -> Extension:
    """Return the extension; Markdown calls this by its name."""
    return _Fences(**options)
