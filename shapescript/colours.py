"""A Pygments lexer: code in colours on a page, in a terminal, in a notebook.

Found by Pygments under the name `shapescript`. The words are those of the language's own lexer; what a name means is
not looked at, but for built-ins and types.
"""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text, Whitespace

from shapescript.syntax.tokens import RESERVED

TYPES = (
    "int float bool str f64 f32 f16 bf16 i64 i32 i16 i8 u8 Index NonNeg Prob Dataset Grads SGD Adam AdamW "
    "Lion BatchNorm"
).split()
BUILTINS = (
    "value_and_grad grad remat scan autocast training evaluating sgd adam adamw lion update clip copy average dropout "
    "batch_norm shuffle batches take skip map filter len print show log save load save_checkpoint load_checkpoint time "
    "warmup_cosine warmup_linear cosine exponential steps reversed zeros ones full arange eye causal normal uniform "
    "randint constant xavier kaiming orthogonal einsum matmul repeat rename rearrange split masked_fill clamp "
    "leaky_relu categorical stack one_hot topk attention sum mean max min prod var std any all norm logsumexp argmax "
    "argmin softmax log_softmax layer_norm rms_norm cumsum cumprod sort argsort flip whole conv conv_transpose "
    "max_pool "
    "avg_pool maximum minimum where abs exp expm1 log1p sqrt rsqrt square sin cos tanh sigmoid relu gelu silu softplus "
    "erf floor ceil round sign is_nan stop_gradient scatter_add cross_entropy mse binary_cross_entropy huber kl "
    "broadcast pad concat roll"
).split()
CONSTANTS = frozenset(("true", "false"))
OPERATORS = frozenset(("and", "or", "not", "as", "in"))


class ShapeScriptLexer(RegexLexer):  # type: ignore[misc]
    """The language's text as Pygments' tokens."""

    name = "ShapeScript"
    aliases: ClassVar[list[str]] = ["shapescript", "ss"]
    filenames: ClassVar[list[str]] = ["*.ss"]
    mimetypes: ClassVar[list[str]] = ["text/x-shapescript"]
    url = ""

    tokens: ClassVar = {
        "root": [
            (r"\n", Whitespace),
            (r"[^\S\n]+", Whitespace),
            (r"#[^\n]*", Comment.Single),
            (r"^(extern)([ \t]+)(fn)([ \t]+)(\w+)", bygroups(Keyword, Whitespace, Keyword, Whitespace, Name.Function)),
            (r"\b(fn)([ \t]+)(\w+)", bygroups(Keyword, Whitespace, Name.Function)),
            (r"^(model|data)([ \t]+)(\w+)", bygroups(Keyword, Whitespace, Name.Class)),
            (r"^(dim)([ \t]+)(\w+)", bygroups(Keyword, Whitespace, Name.Constant)),
            (r"^(devices)([ \t]+)(\w+)", bygroups(Keyword, Whitespace, Name.Builtin)),
            (
                r"^(import)([ \t]+)(python)([ \t]+)([\w.]+)",
                bygroups(Keyword.Namespace, Whitespace, Keyword.Namespace, Whitespace, Name.Namespace),
            ),
            (r"^(import)([ \t]+)([\w.]+)", bygroups(Keyword.Namespace, Whitespace, Name.Namespace)),
            (r"^([ \t]+)(param|state|shard|split)([ \t]+)(?=\w)", bygroups(Whitespace, Keyword, Whitespace)),
            (words(sorted(CONSTANTS), suffix=r"\b"), Keyword.Constant),
            (words(sorted(OPERATORS), suffix=r"\b"), Operator.Word),
            (words(sorted(RESERVED - CONSTANTS - OPERATORS), suffix=r"\b"), Keyword),
            (r'"(?:[^"\\\n]|\\.)*"', String.Double),
            (r"\d[\d_]*(?:\.(?!\.)\d[\d_]*)?[eE][+-]?\d+|\d[\d_]*\.(?!\.)\d[\d_]*", Number.Float),
            (r"\d[\d_]*", Number.Integer),
            (r"\|>|->|\.\.|\*\*|//|[=!<>]=|[-+*/%@<>!=]", Operator),
            (r"(\.)([a-z_]\w*)", bygroups(Punctuation, Name.Attribute)),
            (words(TYPES, suffix=r"\b"), Keyword.Type),
            (words(BUILTINS, suffix=r"(?=[(\[])"), Name.Builtin),
            (r"(\|>)([ \t]*)(\w+)", bygroups(Operator, Whitespace, Name.Function)),
            (words(("inf", "nan", "pi"), suffix=r"\b"), Name.Constant),
            (r"[a-z_]\w*(?=\()", Name.Function),
            (r"[A-Z]\w*", Name.Class),
            (r"\w+", Name),
            (r"[()\[\],:.]", Punctuation),
            (r".", Text),
        ]
    }
