"""A logical line as a doc: where it may be broken.

Takes the tokens of a logical line, the spaces before them and the comments that stand between them; gives the doc that
`format_doc.lay` fits to the width. A line is broken inside round brackets, at the commas first, and before `|>`.
A comma after the last argument keeps a call open, and `|>` that the writer put on a line of its own keeps its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shapescript.syntax.format_doc import BREAK, SOFT, Comment, Doc, Group, IfBroken, Indent
from shapescript.syntax.format_spacing import OPENERS, OPERAND_ENDS
from shapescript.syntax.tokens import Token

LEVELS = (
    frozenset(("OR",)),
    frozenset(("AND",)),
    frozenset(("EQ", "NE", "LT", "LE", "GT", "GE")),
    frozenset(("PLUS", "MINUS")),
    frozenset(("STAR", "SLASH", "FLOORDIV", "PERCENT", "AT")),
)
"""The signs at which a long expression in brackets is broken, the loosest first."""


@dataclass(frozen=True, slots=True)
class Brackets:
    """A pair of brackets and what stands between; `callee`: a call's or a function's."""

    opener: Token
    inside: list[Piece]
    closer: Token
    callee: bool


Piece: TypeAlias = "Token | Brackets"
Items: TypeAlias = "list[tuple[Token | None, list[Piece]]]"
"""What stands between commas, each with the comma before it."""


@dataclass(frozen=True, slots=True)
class LineMaker:
    """Makes the docs of lines: `spaces` and `comments` are by the offset of the token that they stand before."""

    spaces: Mapping[int, bool]
    comments: Mapping[int, Sequence[Comment]]
    on_new_line: frozenset[int]
    callees: frozenset[int]

    def line(self, tokens: Sequence[Token]) -> list[Doc]:
        """The doc of a logical line."""
        pieces = self.nested(tokens)
        if tokens[0].type in ("FN", "EXTERN"):
            arrow = next((at for at, piece in enumerate(pieces) if first_of(piece).type == "ARROW"), len(pieces))
            return [*self.flat(pieces[:arrow]), *self.flat(pieces[arrow:], spaced=True, still=True)]
        header = tokens[-1].type == "COLON"
        return self.sequence(pieces, inside=False, by=8 if header else 4)

    def nested(self, tokens: Sequence[Token]) -> list[Piece]:
        """The tokens, those in brackets put together."""
        stack: list[tuple[Token, list[Piece]]] = []
        here: list[Piece] = []
        for token in tokens:
            if token.type in OPENERS:
                stack.append((token, here))
                here = []
            elif token.type in ("RPAREN", "RBRACK"):
                opener, outer = stack.pop()
                outer.append(Brackets(opener, here, token, opener.start in self.callees))
                here = outer
            else:
                here.append(token)
        return here

    # --- sequences

    def sequence(self, pieces: Sequence[Piece], inside: bool, by: int = 4) -> list[Doc]:
        """Pieces side by side; `inside` brackets they may be broken at their signs too."""
        pipes = [at for at, piece in enumerate(pieces) if isinstance(piece, Token) and piece.type == "PIPE"]
        if pipes:
            ends = [*pipes[1:], len(pieces)]
            broken = any(first_of(pieces[at]).start in self.on_new_line for at in pipes)
            docs: list[Doc] = list(self.sequence(pieces[: pipes[0]], inside))
            steps: list[Doc] = []
            for at, end in zip(pipes, ends, strict=True):
                steps += [BREAK, *self.token(first_of(pieces[at]), space=False), " "]
                steps += self.flat(pieces[at + 1 : end])
            return grouped([*docs, Indent(steps, by)], broken)
        signs = loosest(pieces) if inside else []
        if signs:
            ends = [*signs[1:], len(pieces)]
            parts: list[Doc] = []
            for at, end in zip(signs, ends, strict=True):
                parts += [BREAK, *self.token(first_of(pieces[at]), space=False), " "]
                parts += self.sequence(pieces[at + 1 : end], inside=True)
            return grouped([*self.sequence(pieces[: signs[0]], True), Indent(parts)])
        return self.flat(pieces)

    def flat(self, pieces: Sequence[Piece], spaced: bool = False, still: bool = False) -> list[Doc]:
        """Pieces with their spaces, broken in their brackets alone, or not even there if `still`.

        `spaced`: the first one has its space too.
        """
        docs: list[Doc] = []
        for number, piece in enumerate(pieces):
            space = (spaced or number > 0) and self.spaces[first_of(piece).start]
            if isinstance(piece, Brackets):
                docs += self.brackets(piece, space, still)
            else:
                docs += self.token(piece, space)
        return docs

    def comments_before(self, token: Token) -> list[Doc]:
        """The comments between the token before and this one."""
        return list(self.comments.get(token.start, ()))

    def token(self, token: Token, space: bool) -> list[Doc]:
        """A token with what stands before it."""
        return [*self.comments_before(token), f" {token.text}" if space else token.text]

    # --- brackets

    def brackets(self, pair: Brackets, space: bool, still: bool = False) -> list[Doc]:
        """A pair of brackets and what is in them; `still`: there is no place to break it."""
        opener: list[Doc] = self.token(pair.opener, space)
        before_closer = self.comments_before(pair.closer)
        if not pair.inside:
            return [*opener, *([Indent(before_closer)] if before_closer else []), pair.closer.text]
        if any(isinstance(piece, Token) and piece.type == "ARROW" for piece in pair.inside):
            inside = self.pattern(pair.inside)
            return grouped([*opener, Indent([SOFT, *inside, *before_closer]), SOFT, pair.closer.text])
        items, trailing = split_at(pair.inside, "COMMA")
        if pair.opener.text == "[" or still and trailing is None:
            return self.square(pair, opener, items, before_closer, still)
        if len(items) == 1 and trailing is not None and not pair.callee:  # a tuple of one: its comma isn't free
            last: list[Doc] = self.token(trailing, space=False)
            docs = [*self.item(items[0][1]), *last]
            return grouped([*opener, Indent([SOFT, *docs, *before_closer]), SOFT, pair.closer.text])
        after: list[Doc] = [*(self.comments_before(trailing) if trailing is not None else []), *before_closer]
        docs = self.listed(items)
        comma: list[Doc] = [IfBroken(",")] if pair.callee or len(items) > 1 else []
        open_group = trailing is not None
        return grouped([*opener, Indent([SOFT, *docs, *comma, *after]), SOFT, pair.closer.text], open_group)

    def square(self, pair: Brackets, opener: list[Doc], items: Items, after: list[Doc], still: bool) -> list[Doc]:
        """An index, a list of axes or a tuple of types, which stays on its line as long as it has no comments."""
        docs: list[Doc] = []
        for comma, pieces in items:
            if comma is not None:
                docs += [*self.token(comma, space=False), " "]
            docs += self.flat(pieces, still=still)
        return [*opener, Indent([*docs, *after]), pair.closer.text]

    def listed(self, items: Items) -> list[Doc]:
        """Items parted by commas."""
        docs: list[Doc] = []
        for comma, pieces in items:
            if comma is not None:
                docs += [",", *self.comments_before(comma), BREAK]
            docs += self.item(pieces)
        return docs

    def item(self, pieces: Sequence[Piece]) -> list[Doc]:
        """One argument, parameter or item: what follows `name=` may be broken."""
        if not pieces:
            return []
        head = 0
        if len(pieces) > 2 and isinstance(pieces[1], Token) and pieces[1].type == "ASSIGN":
            head = 2
        value = pieces[head:]
        if not head:
            return self.sequence(value, inside=True)
        space: list[Doc] = [" "] if self.spaces[first_of(value[0]).start] else []
        return [*self.flat(pieces[:head]), *space, *self.sequence(value, inside=True)]

    def pattern(self, pieces: Sequence[Piece]) -> list[Doc]:
        """`a, b: n, m -> n m, h=4`: the values, the pattern and the sizes each on a line where they don't fit."""
        docs: list[Doc] = []
        rest = list(pieces)
        colon = next((at for at, p in enumerate(rest) if isinstance(p, Token) and p.type == "COLON"), None)
        if colon is not None:
            docs += [*self.commas(rest[:colon], " "), *self.token(first_of(rest[colon]), False), BREAK]
            rest = rest[colon + 1 :]
        arrow = next(at for at, p in enumerate(rest) if isinstance(p, Token) and p.type == "ARROW")
        comma = next(
            (at for at in range(arrow, len(rest)) if isinstance(p := rest[at], Token) and p.type == "COMMA"), len(rest)
        )
        docs += self.sides(rest[:comma])
        if comma < len(rest):
            docs += [",", *self.comments_before(first_of(rest[comma])), BREAK]
            docs += self.commas(rest[comma + 1 :], BREAK)
        return docs

    def sides(self, pieces: Sequence[Piece]) -> list[Doc]:
        """`n, m -> n m`, in which a side may be empty."""
        docs: list[Doc] = []
        for number, piece in enumerate(pieces):
            token = first_of(piece)
            if token.type == "ARROW":
                docs += [*self.token(token, space=number > 0), *([" "] if number + 1 < len(pieces) else [])]
            elif token.type == "COMMA":
                docs += self.token(token, space=False)
            else:
                after_arrow = number > 0 and first_of(pieces[number - 1]).type == "ARROW"
                after_comma = number > 0 and first_of(pieces[number - 1]).type == "COMMA"
                space = number > 0 and not after_arrow and (after_comma or self.spaces[token.start])
                docs += self.brackets(piece, space) if isinstance(piece, Brackets) else self.token(piece, space)
        return docs

    def commas(self, pieces: Sequence[Piece], between: Doc) -> list[Doc]:
        """Items parted by commas, with `between` after each comma."""
        docs: list[Doc] = []
        for comma, item in split_at(pieces, "COMMA")[0]:
            if comma is not None:
                docs += [",", *self.comments_before(comma), between]
            docs += self.item(item)
        return docs


def grouped(parts: Sequence[Doc], broken: bool = False) -> list[Doc]:
    """A group; the comments before it don't break it."""
    lead = next((at for at, part in enumerate(parts) if not isinstance(part, Comment)), len(parts))
    return [*parts[:lead], Group(parts[lead:], broken)]


def first_of(piece: Piece) -> Token:
    """The token with which a piece begins."""
    return piece.opener if isinstance(piece, Brackets) else piece


def last_of(piece: Piece) -> Token:
    """The token with which a piece ends."""
    return piece.closer if isinstance(piece, Brackets) else piece


def split_at(pieces: Sequence[Piece], kind: str) -> tuple[Items, Token | None]:
    """The items between separators, each with the separator before it; and the separator after the last, if any."""
    items: Items = [(None, [])]
    for piece in pieces:
        if isinstance(piece, Token) and piece.type == kind:
            items.append((piece, []))
        else:
            items[-1][1].append(piece)
    trailing = items.pop()[0] if len(items) > 1 and not items[-1][1] else None
    return items, trailing


def loosest(pieces: Sequence[Piece]) -> list[int]:
    """Where the signs stand that bind loosest of those between operands."""
    found: dict[int, list[int]] = {}
    for at, piece in enumerate(pieces):
        if not isinstance(piece, Token) or at == 0 or last_of(pieces[at - 1]).type not in OPERAND_ENDS:
            continue
        for level, kinds in enumerate(LEVELS):
            if piece.type in kinds:
                found.setdefault(level, []).append(at)
    return found[min(found)] if found else []
