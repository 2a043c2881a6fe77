"""What the site's build does beside MkDocs: a hook, named in mkdocs.yml.

Adds the reference's pages and, on an error's page, what the checker says about its program; gives programs without a
language the colours of ShapeScript, and turns links to files outside docs/ into what they name, since the site doesn't
have these files.
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))

from build_reference import pages  # noqa: E402
from mkdocs.structure.files import File  # noqa: E402

from shapescript.cli.explaining import words_about  # noqa: E402
from shapescript.diagnostics.explain import NoExplanation, explain  # noqa: E402

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PLAIN_FENCE = re.compile(r"^```(?: (\S+))?\n(.*?)^```$", re.M | re.S)
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
PROGRAM = re.compile(r"(# \w+\.ss\n|devices |fn |model |data |dim |import )")
ERROR = re.compile(r"errors/(E\d+|W\d+)\.md")
OUTSIDE = re.compile(r"\[([^\]]+)\]\((\.\./[^)]+)\)")
BAR = "\\|"
BAR_IN_CODE = re.compile(r"`([^`\n]*\\\|[^`\n]*)`")  # in a table: MkDocs shows the backslash
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
    if page.file.src_uri.startswith("reference/"):
        return PLAIN_FENCE.sub(coloured, markdown)
    error = ERROR.fullmatch(page.file.src_uri)
    return prepared(explained(error[1], markdown) if error else markdown)


def explained(code: str, markdown: str) -> str:
    """An error's page with the checker's words after its wrong program, as `shapescript explain` prints it."""
    try:
        page = explain(code)
    except NoExplanation:
        return markdown
    words = words_about(page.programs[0]) if page.programs else ""
    shown: list[str] = []
    end = programs = 0
    for fence in FENCE.finditer(markdown):
        between = markdown[end : fence.start()]
        own = not PLAIN_FENCE.match(fence[0]) or not PLAIN_FENCE.match(fence[0])[1]  # not another file's
        shown += [between if between.strip() or programs != 1 or not own else "\nMended:\n\n", fence[0]]
        programs += own
        if own and programs == 1 and words:
            shown.append(f"\n\nThe checker says:\n\n```text\n{words.rstrip()}\n```\n")
        end = fence.end()
    return "".join(shown) + markdown[end:]


def prepared(markdown: str) -> str:
    """A written page: its programs coloured, its links within the site."""
    markdown = OUTSIDE.sub(
        lambda found: f"[{found[1]}](reference/nn.md)" if found[2] == LIBRARY else found[1], markdown
    )
    markdown = markdown.replace("](errors)", "](errors/index.md)")
    markdown = BAR_IN_CODE.sub(lambda found: f"<code>{escape(found[1]).replace(BAR, '&#124;')}</code>", markdown)
    # each fence in its turn, so that the end of one is never taken for the beginning of the next
    return FENCE.sub(lambda found: PLAIN_FENCE.sub(coloured, found[0]), markdown)


def coloured(fence: re.Match[str]) -> str:
    """A fence that names no language, with ShapeScript's if it holds a program."""
    file, text = fence.groups()
    title = f' title="{file}"' if file else ""
    return f"```{'shapescript' if file or PROGRAM.match(text) else 'text'}{title}\n{text}```"
