# A small GPT over characters. `whole.ss`, `sharded.ss`, `split.ss`, `both.ss` and `grid.ss` train it, each its own way.

import python plays

dim V  = 96  # characters: ASCII's, and the end of a line
dim T  = 32  # characters of a window
dim D  = 48
dim H  = 6
dim Dh = D / H
dim Hd = 4 * D
dim L  = 3

model Block:
    param ln1:   [D]          = ones
    param w_qkv: [D (3 H Dh)] = normal(std=0.05)
    param w_o:   [(H Dh) D]   = normal(std=0.05)
    param ln2:   [D]          = ones
    param up:    [D Hd]       = normal(std=0.05)
    param down:  [Hd D]       = normal(std=0.05)

model Gpt:
    param tok: [V D] = normal(std=0.05)
    param pos: [T D] = normal(std=0.05)
    blocks: [L] Block
    param ln: [D] = ones

data Window:
    x: [T] Index[V]
    y: [T] Index[V]

fn attend(m: Block, x: [b n D]) -> [b n D]:
    q, k, v = x @ m.w_qkv |> split(b n (3 H Dh) -> b H n Dh)
    y = attention(q, k, v: b H n Dh, b H m Dh, b H m Dh -> b H n Dh, mask=causal[n m])
    return y |> rearrange(b H n Dh -> b n (H Dh)) |> matmul(m.w_o)

fn loss(m: Gpt, batch: [b] Window) -> [] NonNeg:
    h = m.tok[batch.x] + m.pos
    for block in m.blocks:
        h = h + dropout(attend(block, layer_norm(h, over=D) * block.ln1), rate=0.1)
        f = layer_norm(h, over=D) * block.ln2 @ block.up |> gelu |> matmul(block.down)
        h = h + dropout(f, rate=0.1)
    logits = einsum(layer_norm(h, over=D) * m.ln, m.tok: b T D, V D -> b T V)
    return cross_entropy(logits, batch.y, over=V)

fn step(mut m: Gpt, mut opt: AdamW[Gpt], batch: [b] Window) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, clip(g, norm=1.0))
    return l

fn held_out(m: Gpt, held: Dataset[Window]) -> float:
    total = 0.0
    for batch in held |> batches(100):
        total = total + float(loss(m, batch)) * len(batch)
    return total / len(held)

fn train(steps: int):
    data = plays.windows("train", T) as Dataset[Window]
    held = plays.windows("held", T) as Dataset[Window] |> shuffle(seed=0) |> take(500)
    m = Gpt(seed=0)
    opt = adamw(m, lr=3e-3)
    start = time()
    count = 0
    for batch in data |> shuffle(seed=0) |> batches(24) |> take(steps):
        l = step(mut m, mut opt, batch)
        count = count + 1
        if count % 50 == 0:
            print("step", count, "loss", l)
    print("held out", held_out(m, held), "seconds", time() - start)
