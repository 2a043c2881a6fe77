"""What the site's build does beside MkDocs: a hook, named in mkdocs.yml.

Adds the reference's pages, gives programs without a language the colours of ShapeScript, and turns links to files
outside docs/ into what they name, since the site doesn't have these files.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))

from build_reference import pages  # noqa: E402
from mkdocs.structure.files import File  # noqa: E402

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PLAIN_FENCE = re.compile(r"^```(?: (\S+))?\n(.*?)^```$", re.M | re.S)
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
PROGRAM = re.compile(r"(# \w+\.ss\n|devices |fn |model |data |dim |import )")
OUTSIDE = re.compile(r"\[([^\]]+)\]\((\.\./[^)]+)\)")
LIBRARY = "../shapescript/library/nn.ss"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The reference, and the errors' list."""
    made = dict(pages())
    made["errors/index.md"] = errors(Path(config.docs_dir) / "errors")
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def errors(folder: Path) -> str:
    """The page that lists the errors."""
    lines = ["# Errors", "", "`shapescript explain CODE` prints a page with the checker's words.", ""]
    for path in sorted(folder.glob("*.md")):
        title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        code, _, words = title.partition(": ")
        lines.append(f"- [{code}]({path.name}): {words}")
    return "\n".join(lines) + "\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page's text as MkDocs takes it."""
    return PLAIN_FENCE.sub(coloured, markdown) if page.file.src_uri.startswith("reference/") else prepared(markdown)


def prepared(markdown: str) -> str:
    """A written page: its programs coloured, its links within the site."""
    markdown = OUTSIDE.sub(
        lambda found: f"[{found[1]}](reference/nn.md)" if found[2] == LIBRARY else found[1], markdown
    )
    markdown = markdown.replace("](errors)", "](errors/index.md)")
    # each fence in its turn, so that the end of one is never taken for the beginning of the next
    return FENCE.sub(lambda found: PLAIN_FENCE.sub(coloured, found[0]), markdown)


def coloured(fence: re.Match[str]) -> str:
    """A fence that names no language, with ShapeScript's if it holds a program."""
    file, text = fence.groups()
    title = f' title="{file}"' if file else ""
    return f"```{'shapescript' if file or PROGRAM.match(text) else 'text'}{title}\n{text}```"
