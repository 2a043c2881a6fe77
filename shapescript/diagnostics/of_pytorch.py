"""What stands here for the words of PyTorch, numpy and Python: the help of an error about a name that isn't there.

Each value is the help itself, one line. The types checker and the parser ask; nothing here looks at a program.
"""

from __future__ import annotations

TYPES = {
    "float64": "write `f64`",
    "double": "write `f64`",
    "float32": "write `f32`, or nothing",
    "float16": "write `f16`",
    "half": "write `f16`",
    "bfloat16": "write `bf16`",
    "int64": "write `i64`",
    "long": "write `i64`",
    "int32": "write `i32`",
    "int16": "write `i16`",
    "int8": "write `i8`",
    "uint8": "write `u8`",
    "Tensor": "a tensor's type is its axes: `[b D]`",
    "string": "write `str`",
    "integer": "write `int`",
    "boolean": "write `bool`",
    "list": "a list of models is `blocks: [L] Block`; of numbers, a tensor, `[D]`",
    "List": "a list of models is `blocks: [L] Block`; of numbers, a tensor, `[D]`",
    "ModuleList": "a list of models is `blocks: [L] Block`",
    "dict": "what has named parts is a `data`, whose fields are tensors",
    "tuple": "a tuple's type is written `([b C], [])`",
    "Optional": "there is no value for nothing: leave the parameter out, or give it a default",
}

REARRANGE = "a pattern names the axes: `rearrange(x: b n D -> n b D)`"
LIKE = "a maker takes axes: `{}[b D]`"
MODULE = "the functions are here without a module's name: `relu(x)`; `import python torch` calls Python's own"

NAMES = {
    **TYPES,
    "True": "write `true`",
    "False": "write `false`",
    "None": "there is no value for nothing: leave the argument or the result out",
    "range": "write `0..n`",
    "enumerate": "count in a variable: `i = 0` before the loop, `i = i + 1` in it",
    "zip": "loop over one of them: a dataset's example has all its fields",
    "torch": MODULE,
    "nn": MODULE,
    "F": MODULE,
    "np": MODULE,
    "numpy": MODULE,
    "self": "there are no methods: what a function needs is a parameter, `m: Net`",
    "super": "there is no inheritance: a model has other models as fields",
    "no_grad": "nothing is differentiated but what `value_and_grad` calls",
    "DataLoader": "write `data |> shuffle(seed=epoch) |> batches(64)`",
    "cat": "write `concat(a, b, over=D)`",
    "concatenate": "write `concat(a, b, over=D)`",
    "hstack": "write `concat(a, b, over=D)`",
    "vstack": "write `concat(a, b, over=n)`",
    "transpose": REARRANGE,
    "permute": REARRANGE,
    "swapaxes": REARRANGE,
    "t": REARRANGE,
    "reshape": "a pattern names the axes: `rearrange(x: b (n D) -> b n D)`",
    "view": "a pattern names the axes: `rearrange(x: b (n D) -> b n D)`",
    "flatten": "a pattern merges axes: `rearrange(x: b h w -> b (h w))`",
    "unsqueeze": "axes line up by name, so none of size 1 is needed; `rearrange(x: b D -> b 1 D)` makes one",
    "squeeze": "`rearrange(x: b 1 D -> b D)` takes an axis of size 1 away",
    "expand": "write `broadcast(x, [b n D])`",
    "expand_as": "write `broadcast(x, [b n D])`",
    "tile": "write `repeat(x: n D -> n D k)`, or `broadcast(x, [b n D])`",
    "chunk": "write `a, b = x |> split(b (2 D) -> b D)`",
    "bmm": "`@` multiplies batches too, or write an `einsum`",
    "mm": "write `a @ b`",
    "dot": "write `sum(a * b, over=D)`",
    "outer": "write `einsum(a, b: n, m -> n m)`",
    "mse_loss": "write `mse(x, y)`",
    "l1_loss": "write `mean(abs(x - y), over=[b D])`",
    "nll_loss": "`cross_entropy(logits, label, over=C)` takes the logits",
    "binary_cross_entropy_with_logits": "write `binary_cross_entropy(logits, label)`, which takes logits",
    "CrossEntropyLoss": "write `cross_entropy(logits, label, over=C)`",
    "MSELoss": "write `mse(x, y)`",
    "Linear": "the library has it: `import nn`, then `lin: nn.Linear[D H]`; or `param w: [D H] = xavier` and `x @ m.w`",
    "tril": "`causal[n m]` is true where m is at or before n: `masked_fill(s, !causal[n m], -inf)`",
    "triu": "`!causal[n m]` is true where m comes after n",
    "randn": "write `normal[b D](std=1)`",
    "rand": "write `uniform[b D](0, 1)`",
    "randn_like": "write `normal[b D](std=1)`, with the axes of the value",
    "rand_like": "write `uniform[b D](0, 1)`, with the axes of the value",
    "zeros_like": LIKE.format("zeros"),
    "ones_like": LIKE.format("ones"),
    "full_like": "a maker takes axes: `full[b D](v)`",
    "empty": LIKE.format("zeros"),
    "tensor": "a number is a tensor where one is asked for; more come from Python, `numbers.load() as [D]`",
    "multinomial": "write `categorical(logits, over=V)`",
    "argwhere": "a result of unknown size isn't possible: `where(c, a, b)` chooses place by place",
    "nonzero": "a result of unknown size isn't possible: `where(c, a, b)` chooses place by place",
    "item": "write `float(x)` or `int(x)`",
    "sub": "write `a - b`",
    "add": "write `a + b`",
    "mul": "write `a * b`",
    "div": "write `a / b`",
    "pow": "write `x ** 2`",
    "neg": "write `-x`",
    "open": "files are Python's, one call away: `import python files`",
    "input": "reading is Python's, one call away; `main`'s parameters are those of the command line",
}
"""What stands here for a name that isn't known."""

METHODS = {
    "T": REARRANGE,
    "mT": REARRANGE,
    "shape": "a dim's name is its size, in an expression too: `1 / sqrt(D)`; `b` is the count of rows",
    "size": "a dim's name is its size, in an expression too: `1 / sqrt(D)`; `b` is the count of rows",
    "dtype": "the type says it: `[b D]` is f32",
    "device": "the `devices` line says where everything lies",
    "to": "the `devices` line says where everything lies; `x as f16` changes the element",
    "cuda": "the `devices` line says where everything lies: `devices cuda[0]`",
    "cpu": "the `devices` line says where everything lies: `devices cpu`",
    "float": "write `x as f32`",
    "double": "write `x as f64`",
    "half": "write `x as f16`",
    "long": "write `x as i64`",
    "int": "write `x as i32`",
    "bool": "write `x != 0`",
    "type": "write `x as f32`",
    "detach": "write `stop_gradient(x)`",
    "item": "write `float(x)` or `int(x)`, in a controller function",
    "numpy": "hand it to a function of Python: `import python module`, `module.function(x)`",
    "tolist": "hand it to a function of Python: `import python module`, `module.function(x)`",
    "backward": "gradients are values: `l, g = value_and_grad(loss, m, batch)`",
    "grad": "gradients are values: `l, g = value_and_grad(loss, m, batch)`",
    "requires_grad_": "gradients are values: `value_and_grad` differentiates by its model",
    "clone": "leave it out: a value never changes",
    "copy_": "a tensor isn't changed in place: give the name the new value",
    "contiguous": "leave it out: how a value lies in memory is the compiler's",
    "ndim": "the type says it: `[b D]` has two axes",
    "dim": "the type says it: `[b D]` has two axes",
    "numel": "multiply the sizes: `n * D`",
}
"""What stands here for a method or attribute of a tensor; one that is also a function is told of otherwise."""

OVER_AN_AXIS = frozenset(
    "sum mean max min prod var std argmax argmin softmax log_softmax logsumexp cumsum cumprod sort argsort norm any "
    "all".split()
)
"""Methods that are functions here which work along an axis."""

PLAIN = frozenset(
    "relu sigmoid tanh gelu silu exp log sqrt rsqrt abs square sin cos floor ceil round sign erf masked_fill clamp "
    "matmul repeat split flip roll topk where maximum minimum".split()
)
"""Methods that are functions here."""

OF_MODELS = {
    "parameters": "a model is handed over whole: `adamw(m, lr=1e-3)`, `norm(g)`",
    "named_parameters": "a model is handed over whole: `adamw(m, lr=1e-3)`, `norm(g)`",
    "state_dict": 'write `save(m, "model.safetensors")`',
    "load_state_dict": 'write `load(mut m, "model.safetensors")`',
    "to": "the `devices` line says where everything lies",
    "cuda": "the `devices` line says where everything lies: `devices cuda[0]`",
    "train": "dropout and batch_norm act as in training inside `value_and_grad`, and nowhere else",
    "eval": "dropout and batch_norm act as in training inside `value_and_grad`, and nowhere else",
    "zero_grad": "leave it out: `value_and_grad` gives the gradients anew each time",
    "forward": "a function takes the model: `fn logits(m: Net, x: [b D]) -> [b C]:`",
    "step": "write `update(mut m, mut opt, g)`",
    "param_groups": "a rate that changes goes with the step: `update(mut m, mut opt, g, lr=lr)`",
}
"""What stands here for a method of a model or an optimizer."""

PARAMETERS = {
    "p": "rate",
    "batch_size": "n",
    "min": "low",
    "max": "high",
    "label_smoothing": "smoothing",
    "ignore_index": "ignore",
    "max_norm": "norm",
    "input": "x",
    "learning_rate": "lr",
    "fill_value": "value",
    "padding": "pad",
    "kernel_size": "size",
}
"""A parameter's name there, and here."""
