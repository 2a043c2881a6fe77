# The standard library: `import nn`, then `nn.Linear[D H]` for a field of a model and `x |> nn.linear(m.up)` in a function.
#
# Each layer is a model, its sizes in brackets, and a function that takes the value first and the model second, so that
# layers follow each other with `|>`. What has no parameters (relu, dropout, max_pool) is built in. Everything here is f32.

# --- products ---------------------------------------------------------------------------------------------------------

model Linear[I O]:
    param w: [I O] = xavier
    param b: [O]   = zeros

fn linear(x: [.. i], m: Linear[i o]) -> [.. o]:
    return x @ m.w + m.b

# a table with a row for each of V words
model Embedding[V D]:
    param w: [V D] = normal(std=1)

fn embed(words: [..] Index[v], m: Embedding[v d]) -> [.. d]:
    return m.w[words]

# the two layers after each attention of a transformer
model FeedForward[D F]:
    up: Linear[D F]
    down: Linear[F D]

fn feed_forward(x: [.. d], m: FeedForward[d f]) -> [.. d]:
    return x |> linear(m.up) |> gelu |> linear(m.down)

# --- normalisations ---------------------------------------------------------------------------------------------------

model LayerNorm[D]:
    param gain: [D] = ones
    param bias: [D] = zeros

fn layer_normed(x: [.. d], m: LayerNorm[d]) -> [.. d]:
    return layer_norm(x, over=d) * m.gain + m.bias

model RmsNorm[D]:
    param gain: [D] = ones

fn rms_normed(x: [.. d], m: RmsNorm[d]) -> [.. d]:
    return rms_norm(x, over=d) * m.gain

# the built-in `BatchNorm` keeps the statistics; a loss that trains one is called `value_and_grad(loss, mut m, batch)`
model BatchNorm[O]:
    statistics: BatchNorm[O]
    param gain: [O] = ones
    param bias: [O] = zeros

fn batch_normed(x: [b o], mut m: BatchNorm[o]) -> [b o]:
    return batch_norm(x, mut m.statistics, over=b) * m.gain + m.bias

# of pictures, channels first
fn batch_normed2d(x: [b o h w], mut m: BatchNorm[o]) -> [b o h w]:
    y = batch_norm(x, mut m.statistics, over=[b h w])
    return y * m.gain + m.bias

# --- convolutions, channels first -------------------------------------------------------------------------------------

# a K x K window
model Conv[I O K]:
    param w: [O I K K] = kaiming
    param b: [O]       = zeros

# `stride` must divide both sides of the picture
fn conv2d(x: [b i h w], m: Conv[i o k], stride: int = 1) -> [b o h/stride w/stride]:
    return conv(x, m.w, over=[h w], stride=stride, pad=same) + m.b

# along one axis: a window of K
model Conv1d[I O K]:
    param w: [O I K] = kaiming
    param b: [O]     = zeros

fn conv1d(x: [b i n], m: Conv1d[i o k], stride: int = 1) -> [b o n/stride]:
    return conv(x, m.w, over=n, stride=stride, pad=same) + m.b

# --- attention --------------------------------------------------------------------------------------------------------

# H heads, each of D/H features
model Attention[D H]:
    param w_q: [D H D/H] = normal(std=0.02)
    param w_k: [D H D/H] = normal(std=0.02)
    param w_v: [D H D/H] = normal(std=0.02)
    param w_o: [H D/H D] = normal(std=0.02)

# each place looks at all; `masked`: at none behind its own
fn attend(x: [b n d], m: Attention[d h], masked: bool = false, rotated: bool = false) -> [b n d]:
    q = einsum(x, m.w_q: b n d, d h e -> b h n e)
    k = einsum(x, m.w_k: b j d, d h e -> b h j e)
    v = einsum(x, m.w_v: b j d, d h e -> b h j e)
    if rotated:
        q = rotary(q)
        k = rotary(k)
    if masked:
        y = attention(q, k, v: b h n e, b h j e, b h j e -> b h n e, mask=causal[n j])
    else:
        y = attention(q, k, v: b h n e, b h j e, b h j e -> b h n e)
    return einsum(y, m.w_o: b h n e, h e d -> b n d)

# each place of x looks at those of the memory that are there
fn attend_to(x: [b n d], memory: [b s d], there: [b s] bool, m: Attention[d h]) -> [b n d]:
    q = einsum(x, m.w_q: b n d, d h e -> b h n e)
    k = einsum(memory, m.w_k: b s d, d h e -> b h s e)
    v = einsum(memory, m.w_v: b s d, d h e -> b h s e)
    y = attention(q, k, v: b h n e, b h s e, b h s e -> b h n e, mask=there)
    return einsum(y, m.w_o: b h n e, h e d -> b n d)

# G heads of keys and values, each for R heads of queries
model GroupedAttention[D G R]:
    param w_q: [D G R D/(G*R)] = normal(std=0.02)
    param w_k: [D G D/(G*R)]   = normal(std=0.02)
    param w_v: [D G D/(G*R)]   = normal(std=0.02)
    param w_o: [G R D/(G*R) D] = normal(std=0.02)

fn attend_grouped(x: [b n d], m: GroupedAttention[d g r], masked: bool = true, rotated: bool = true) -> [b n d]:
    q = einsum(x, m.w_q: b n d, d g r e -> b g r n e)
    k = einsum(x, m.w_k: b j d, d g e -> b g j e)
    v = einsum(x, m.w_v: b j d, d g e -> b g j e)
    if rotated:
        q = rotary(q)
        k = rotary(k)
    if masked:
        y = attention(q, k, v: b g r n e, b g j e, b g j e -> b g r n e, mask=causal[n j])
    else:
        y = attention(q, k, v: b g r n e, b g j e, b g j e -> b g r n e)
    return einsum(y, m.w_o: b g r n e, g r e d -> b n d)

# positions as angles (RoPE): feature f and feature f + e/2 of place n turn by n * 10000 ** (-2 f / e)
fn rotary(x: [.. n e]) -> [.. n e]:
    step = exp(-2 * log(10000.0) / e * (arange[e/2] as f32))
    angle = einsum(arange[n] as f32, step: n, f -> n f)
    first, second = split(x: .. n (2 f) -> .. n f)
    turned = concat(first * cos(angle) - second * sin(angle), second * cos(angle) + first * sin(angle), over=f)
    return turned

# --- recurrent nets ---------------------------------------------------------------------------------------------------

model Lstm[I H]:
    param w_x: [I 4*H] = xavier
    param w_h: [H 4*H] = orthogonal
    param b: [4*H]     = zeros

fn lstm_cell(m: Lstm[i h], carry: ([b h], [b h]), x: [b 4*h]) -> (([b h], [b h]), [b h]):
    hidden, cell = carry
    input, forget, new, output = x + hidden @ m.w_h |> split(b (4 h) -> b h)
    cell = sigmoid(forget) * cell + sigmoid(input) * tanh(new)
    hidden = sigmoid(output) * tanh(cell)
    return (hidden, cell), hidden

# what is hidden after each place, and the state to go on from
fn lstm(x: [b n i], m: Lstm[i h], carry: ([b h], [b h])) -> ([b n h], ([b h], [b h])):
    carry, hidden = scan(lstm_cell, m, carry, x @ m.w_x + m.b, over=n)
    return hidden, carry

model Gru[I H]:
    param w_x: [I 3*H] = xavier
    param w_h: [H 3*H] = orthogonal
    param b_x: [3*H]   = zeros
    param b_h: [3*H]   = zeros

fn gru_cell(m: Gru[i h], hidden: [b h], x: [b 3*h]) -> ([b h], [b h]):
    reset_x, update_x, new_x = split(x: b (3 h) -> b h)
    reset_h, update_h, new_h = hidden @ m.w_h + m.b_h |> split(b (3 h) -> b h)
    keep = sigmoid(update_x + update_h)
    new = tanh(new_x + sigmoid(reset_x + reset_h) * new_h)
    hidden = (1 - keep) * new + keep * hidden
    return hidden, hidden

fn gru(x: [b n i], m: Gru[i h], hidden: [b h]) -> ([b n h], [b h]):
    hidden, all = scan(gru_cell, m, hidden, x @ m.w_x + m.b_x, over=n)
    return all, hidden

# --- functions that PyTorch has ---------------------------------------------------------------------------------------

fn elu(x: [..], alpha: float = 1.0) -> [..]:
    return where(x > 0, x, alpha * expm1(minimum(x, 0)))

fn mish(x: [..]) -> [..]:
    return x * tanh(softplus(x))

fn log_sigmoid(x: [..]) -> [..]:
    return -softplus(-x)

fn cosine_similarity(x: [.. d], y: [.. d]) -> [..]:
    return sum(x * y, over=d) / maximum(norm(x, over=d) * norm(y, over=d), 1e-8)

# each pixel `by` times in both directions
fn upsampled(x: [b c h w], by: int) -> [b c h*by w*by]:
    return x |> repeat(b c h w -> b c h r w s, r=by, s=by) |> rearrange(b c h r w s -> b c (h r) (w s))
