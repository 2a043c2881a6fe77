"""The words of the language for an editor: what each built-in takes and does, and the words of declarations.

Operations on tensors are described in the registry of ops; here are the built-ins that aren't one op, and the makers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shapescript.ops.registry import REGISTRY


@dataclass(frozen=True)
class Word:
    """A built-in: how it is called, and what it does."""

    signature: str
    doc: str


def word(signature: str, doc: str) -> Word:
    """A row of the table."""
    return Word(signature, doc)


ROWS: Mapping[str, Word] = {
    # training
    "value_and_grad": word("value_and_grad(f, m, args...)", "The value of `f(m, args...)`, a scalar or a tuple that "
                           "begins with one, and its gradient by `m`: `l, g = value_and_grad(loss, m, batch)`."),
    "grad": word("grad(f, m, args...)", "The gradient of `f(m, args...)` by `m` alone."),
    "remat": word("remat(f, args...)", "`f(args...)`, computed again in the backward pass instead of kept."),
    "scan": word("scan(f, args..., carry, xs, over=n)", "Calls `f(args..., carry, x)` at each place of n, which gives "
                 "`carry, y` or the carry alone; gives the last carry and the ys."),
    "autocast": word("autocast(f, args..., to=bf16)", "`f(args...)` with its products on operands rounded to bf16, "
                     "added in f32."),
    "training": word("training(f, args...)", "`f(args...)` with dropout and batch_norm as in training."),
    "evaluating": word("evaluating(f, args...)", "`f(args...)` with dropout and batch_norm as in evaluation."),
    "sgd": word("sgd(m, lr, momentum=0, nesterov=false, weight_decay=0)", "The state of stochastic gradient descent."),
    "adam": word("adam(m, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)", "The state of Adam, as in PyTorch."),
    "adamw": word("adamw(m, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, decay_axes=0)",
                  "The state of AdamW, as in PyTorch; `decay_axes=2` decays parameters of two axes or more only."),
    "lion": word("lion(m, lr, betas=(0.9, 0.99), weight_decay=0)", "The state of Lion."),
    "update": word("update(mut m, mut opt, g, lr=)", "Takes a step of the optimizer: changes `m` and `opt`."),
    "clip": word("clip(g, norm=1.0)", "Gradients scaled down so that their global norm is at most `norm`."),
    "copy": word("copy(m)", "A model of its own with the same values."),
    "average": word("average(mut ema, m, keep=0.999)", "Moves `ema` towards `m`: keep * ema + (1 - keep) * m."),
    "dropout": word("dropout(x, rate)", "While training, values are dropped at this rate and the others scaled up."),
    "batch_norm": word("batch_norm(x, m.bn, over=[b h w])", "x normalised by the whole batch's statistics while "
                       "training, by the running ones else; `mut m.bn` updates these."),
    # data
    "shuffle": word("shuffle(data, seed=)", "The examples in another order, which depends on the seed alone."),
    "batches": word("batches(data, n, drop_last=false, workers=)", "Batches of n examples; the last may be shorter."),
    "take": word("take(data, n)", "The first n examples, or batches."),
    "skip": word("skip(data, n)", "All but the first n examples, or batches."),
    "map": word("map(data, f)", "Each example as the Python function `f` gives it."),
    "filter": word("filter(data, f)", "The examples for which the Python function `f` says yes."),
    "split": word("split(x: b n (3 H Dh) -> b H n Dh)  or  split(data, 0.9, seed=)",
                  "As many values as the number taken out of a merged axis; of a dataset, two parts."),
    "len": word("len(x)", "How many examples, batches or characters there are."),
    # what a program says and keeps
    "print": word("print(values...)", "One line of the program's output."),
    "show": word("show(name, x)", "Prints a value from a device function, whole and in order."),
    "log": word("log(name, value, step=)  or  log(x)", "Keeps a metric's value in the run's folder; of a number or a "
                "tensor alone, the natural logarithm."),
    "save": word("save(thing, path)", "Writes a model or an optimizer's state to a file."),
    "load": word("load(mut thing, path)", "Reads what `save` wrote."),
    "save_checkpoint": word("save_checkpoint(path, m, opt, step...)", "Writes several things under their names."),
    "load_checkpoint": word("load_checkpoint(path, mut m, mut opt, mut step...)", "Reads what `save_checkpoint` wrote; "
                            "a missing or an extra name is an error that changes nothing."),
    "time": word("time()", "Seconds on a clock that only goes forward."),
    # numbers
    "warmup_cosine": word("warmup_cosine(step, peak=, warmup=, total=, floor=0)", "A rate that rises, then falls as a "
                          "cosine."),
    "warmup_linear": word("warmup_linear(step, peak=, warmup=, total=, floor=0)", "A rate that rises, then falls."),
    "cosine": word("cosine(step, peak=, total=, floor=0)", "A rate that falls as a cosine."),
    "exponential": word("exponential(step, peak=, rate=)", "A rate that falls by a factor."),
    "steps": word("steps(step, peak=, every=, factor=)", "A rate that falls at given steps."),
    "int": word("int(x)", "A whole number; looks at a tensor."),
    "float": word("float(x)", "A number; looks at a tensor."),
    "bool": word("bool(x)", "true or false; looks at a tensor."),
    "str": word("str(x)", "A value as text."),
    "reversed": word("reversed(0..n)", "A range from its end."),
    "min": word("min(x, over=n)  or  min(a, b)", "The least over some axes; of numbers, the least."),
    "max": word("max(x, over=n)  or  max(a, b)", "The greatest over some axes; of numbers, the greatest."),
    # made from nothing
    "zeros": word("zeros[n D]", "A tensor of zeros."),
    "ones": word("ones[n D]", "A tensor of ones."),
    "full": word("full[n D](v)", "A tensor of one value."),
    "arange": word("arange[n]", "0, 1, 2 ... along an axis: an `Index[n]`."),
    "eye": word("eye[n m]", "1 where the two places are equal, else 0."),
    "causal": word("causal[n m]", "true where m <= n: `!causal[n m]` masks the future."),
    "normal": word("normal[b D](std=1)", "Normal numbers, new at each call."),
    "uniform": word("uniform[b D](a, b)", "Numbers from a to b, new at each call."),
    "randint": word("randint[b K](V)", "Whole numbers below V, new at each call."),
    "constant": word("constant(x)", "An initialiser: every value is x."),
    "xavier": word("xavier", "An initialiser: Glorot's uniform."),
    "kaiming": word("kaiming", "An initialiser: He's uniform, as PyTorch's layers have it."),
    "orthogonal": word("orthogonal", "An initialiser: orthogonal rows or columns."),
    # on tensors, by a pattern or by name
    "einsum": word("einsum(a, b: b H n Dh, b H m Dh -> b H n m)", "The products of values, summed over the axes that "
                   "the result leaves out."),
    "matmul": word("x |> matmul(w)", "`x @ w`: contracts the last axis of x with the first of w."),
    "repeat": word("repeat(x: b D -> b n D)", "x along new axes."),
    "rename": word("rename(x, n=m)", "x with an axis under another name."),
    "masked_fill": word("masked_fill(x, mask, v)", "v where the mask holds, else x."),
    "clamp": word("clamp(x, low, high)", "x moved between two bounds."),
    "leaky_relu": word("leaky_relu(x, slope=0.01)", "x, or slope * x where it is negative."),
    "categorical": word("categorical(logits, over=V)", "A place of V for each row, drawn by its logits."),
    "stack": word("stack(x, y, over=n)", "Values of one type side by side along a new axis."),
    "one_hot": word("one_hot(i, over=V)", "1 at the place that the index says, else 0."),
    "topk": word("topk(x, k, over=V)", "The k greatest values in falling order, and where they stand."),
    "attention": word("attention(q, k, v: b H n Dh, b H m Dh, b H m Dh -> b H n Dh, mask=causal[n m])",
                      "Attention: the softmax is over the axis that k and v share and q lacks."),
    # numbers by name
    "inf": word("inf", "Infinity."),
    "nan": word("nan", "Not a number."),
    "pi": word("pi", "3.14159..."),
}  # fmt: skip

TYPES: Mapping[str, str] = {
    "int": "a whole number of the controller",
    "float": "a number of the controller",
    "bool": "true or false; after axes, a tensor of them",
    "str": "a string",
    "f64": "64-bit floating point",
    "f32": "32-bit floating point: what a tensor is where nothing else is written",
    "f16": "16-bit floating point",
    "bf16": "16-bit floating point with f32's range",
    "i64": "64-bit whole numbers",
    "i32": "32-bit whole numbers",
    "i16": "16-bit whole numbers",
    "i8": "8-bit whole numbers",
    "u8": "8-bit whole numbers from 0",
    "Index": "whole numbers, each in 0..N: `Index[N]`",
    "NonNeg": "f32 that is never negative",
    "Prob": "f32 from 0 to 1",
    "Dataset": "examples, not yet in batches: `Dataset[Example]`",
    "Grads": "what `value_and_grad` gives for a model: `Grads[Model]`",
    "SGD": "an optimizer's state: `SGD[Model]`",
    "Adam": "an optimizer's state: `Adam[Model]`",
    "AdamW": "an optimizer's state: `AdamW[Model]`",
    "Lion": "an optimizer's state: `Lion[Model]`",
    "BatchNorm": "a built-in model of two states, mean and var: `BatchNorm[O]`",
}

DECLARATIONS: Mapping[str, tuple[str, str]] = {
    "devices": ("devices ${1:cpu}", "where the program runs: its first line"),
    "dim": ("dim ${1:D} = ${2:64}", "a size with a name"),
    "model": ("model ${1:Net}:\n    param ${2:w}: [${3:D C}] = ${4:zeros}", "a model: parameters, states, models"),
    "data": ("data ${1:Example}:\n    ${2:x}: [${3:D}]", "the fields of one example"),
    "fn": ("fn ${1:name}(${2:x: [b D]}) -> ${3:[b D]}:\n    ${0:return x}", "a function"),
    "extern fn": (
        'extern fn ${1:name}(${2:x: [b D]}) -> ${3:[b D]} = "${4:module.function}"',
        "Python that works on each example by itself",
    ),
    "import python": ("import python ${1:module}", "a module of Python, called in the controller"),
    "import": ("import ${1:module}", "another .ss file beside this one"),
}
STATEMENTS: Mapping[str, str] = {
    "return": "return $0",
    "for": "for ${1:x} in ${2:0..n}:\n    $0",
    "while": "while ${1:test}:\n    $0",
    "if": "if ${1:test}:\n    $0",
    "elif": "elif ${1:test}:\n    $0",
    "else": "else:\n    $0",
    "assert": 'assert ${1:test}, "${2:why}"',
    "break": "break",
    "continue": "continue",
    "pass": "pass",
}


def describe(name: str) -> Word | None:
    """A built-in by its name in the text; None if there is none."""
    if name in ROWS:
        return ROWS[name]
    op = REGISTRY.get(name)
    return Word(op.signature, " ".join(op.doc.split())) if op is not None else None
