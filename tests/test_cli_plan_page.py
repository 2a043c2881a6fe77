"""`plan --html`: a page that holds every line's values and what goes between the devices."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shapescript.cli import main

PROGRAM = """\
devices cpu[0 1 2]

dim D = 784
dim C = 10

model M:
    param w: [D C] = zeros

data E:
    x: [D]
    y: [] Index[C]

fn loss(m: M, batch: [b] E) -> [] NonNeg:
    return cross_entropy(batch.x @ m.w, batch.y, over=C)

fn step(mut m: M, mut opt: SGD[M], batch: [b] E) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g)
    return l

fn main(data: Dataset[E]):
    m = M(seed=0)
    opt = sgd(m, lr=0.1)
    for batch in data |> batches(64):
        print("<b>", step(mut m, mut opt, batch))
"""
AGAIN = """
fn again():
    m = M(seed=0)
    opt = sgd(m, lr=0.1)
    batch = E(x=zeros[4 D], y=zeros[4] as [4] Index[C])
    print(step(mut m, mut opt, batch))
"""
VOID = {"meta", "br"}


class Balanced(HTMLParser):
    """Fails where a tag isn't closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.ss").write_text(PROGRAM)
    assert main(["plan", "--html", "plan.html", "train.ss"]) == 0
    assert capsys.readouterr().out == "plan.html is written\n"
    page = Path("plan.html").read_text()
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert "[b C] f32 b split" in page and "b split 22/21/21" in page
    heads = re.findall(r'<tr class="head">.*?<code>(.*?)</code>', page)
    assert [head.partition("(")[0] for head in heads] == ["fn loss", "fn step"], "a line stands under its function"
    assert "a device function: " in page and re.search(r"per step in \d+ launch", page)
    assert re.search(r'class="sends">.*all-reduce 7,840 f32 31,360 B', page)
    assert main(["plan", "--html", "no/plan.html", "train.ss"]) == 2
    assert "can't be written" in capsys.readouterr().err


def test_the_page_of_a_program_whose_steps_are_in_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("steps.ss").write_text(PROGRAM.partition("\n")[2].partition("fn main")[0] + AGAIN)
    Path("train.ss").write_text("devices cpu[0 1 2]\n\nimport steps\n\nfn main():\n    steps.again()\n")
    assert main(["plan", "--html", "plan.html", "train.ss"]) == 0
    assert "fn steps.step" in Path("plan.html").read_text()
