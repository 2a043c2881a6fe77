"""Elements of tensors: f32 and its like, and the refinements NonNeg, Prob and Index.

Gives `Element`. Which operation keeps which refinement is each op's own rule.
"""

from __future__ import annotations

from dataclasses import dataclass

from shapescript.types.size import Size

FLOATS = ("f64", "f32", "f16", "bf16")
WHOLES = ("i64", "i32", "i16", "i8", "u8")
ELEMENT_NAMES = (*FLOATS, *WHOLES, "bool")
REFINEMENTS = ("NonNeg", "Prob", "Index")


@dataclass(frozen=True)
class Element:
    """What a tensor holds: `name` is how it lies in memory, `refinement` what the checker knows besides.

    `bound` is the N of `Index[N]`. A `Prob` is a `NonNeg`; an `Index` is an i64. A refined f64, f16 or bf16 is known
    to the checker although the language has no word for it; it is written without its refinement.
    """

    name: str
    refinement: str | None = None
    bound: Size | None = None

    @staticmethod
    def index(bound: Size) -> Element:
        """`Index[bound]`."""
        return Element("i64", "Index", bound)

    @property
    def base(self) -> Element:
        """The element without its refinement."""
        return Element(self.name)

    @property
    def is_float(self) -> bool:
        """f64, f32, f16 or bf16."""
        return self.name in FLOATS

    @property
    def is_whole(self) -> bool:
        """A whole number; a bool isn't one."""
        return self.name in WHOLES

    @property
    def is_bool(self) -> bool:
        """True or false."""
        return self.name == "bool"

    @property
    def is_nonneg(self) -> bool:
        """Whether it is known to be 0 or more."""
        return self.refinement is not None or self.name in ("u8", "bool")

    @property
    def is_prob(self) -> bool:
        """Whether it is known to lie in 0..1."""
        return self.refinement == "Prob"

    def refined(self, refinement: str | None) -> Element:
        """This float with another refinement; whole numbers and bools have none of these."""
        return Element(self.name, refinement if self.is_float else None)

    def fits(self, wanted: Element) -> bool:
        """Whether a value of this element may stand where `wanted` is asked for."""
        if self.name != wanted.name:
            return False
        if wanted.refinement is None or self == wanted:
            return True
        return wanted.refinement == "NonNeg" and self.refinement == "Prob"

    def __str__(self) -> str:
        if self.refinement == "Index":
            return f"Index[{self.bound}]"
        if self.refinement is not None and self.name == "f32":
            return self.refinement
        return self.name


F32 = Element("f32")
F64 = Element("f64")
I64 = Element("i64")
BOOL = Element("bool")
NONNEG = Element("f32", "NonNeg")
PROB = Element("f32", "Prob")


def element_named(name: str) -> Element | None:
    """The element that a type's word means; None for `Index`, which needs a bound, and for any other word."""
    if name in ELEMENT_NAMES:
        return Element(name)
    return Element("f32", name) if name in ("NonNeg", "Prob") else None
