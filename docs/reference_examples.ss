# The examples of the reference's pages that aren't one operation: one program, so that it can be checked and run as it
# stands. `# --- NAME` begins the example of a built-in; what stands before the first belongs to all.

devices cpu

dim D  = 4
dim C  = 3
dim H  = 2
dim T  = 5
dim Dh = D / H

import python reference_rows

model Net:
    param w: [D C] = normal(std=0.1)

data Row:
    x: [D]
    y: [] Index[C]

fn loss(m: Net, batch: [b] Row) -> [] NonNeg:
    return cross_entropy(batch.x @ m.w, batch.y, over=C)

fn step(mut m: Net, mut opt: AdamW[Net], batch: [b] Row, lr: float = 0.01) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g, lr=lr)
    return l

# --- value_and_grad
fn value_and_gradient(m: Net, batch: [b] Row) -> ([] NonNeg, Grads[Net]):
    l, g = value_and_grad(loss, m, batch)
    return l, g

# --- grad
fn gradient_alone(m: Net, batch: [b] Row) -> Grads[Net]:
    return grad(loss, m, batch)

# --- remat
fn loss_computed_again(m: Net, batch: [b] Row) -> [] NonNeg:
    return remat(loss, m, batch)

# --- scan
fn leak(state: [b D], x: [b D]) -> ([b D], [b D]):
    new = 0.9 * state + x
    return new, new

fn leaky_sums(xs: [b T D]) -> [b T D]:
    last, sums = scan(leak, zeros[b D], xs, over=T)
    return sums

# --- autocast
fn loss_in_bf16(m: Net, batch: [b] Row) -> [] NonNeg:
    return autocast(loss, m, batch, to=bf16)

# --- training
fn loss_as_in_training(m: Net, batch: [b] Row) -> [] NonNeg:
    return training(loss, m, batch)

# --- evaluating
fn loss_as_in_evaluation(m: Net, batch: [b] Row) -> [] NonNeg:
    return evaluating(loss, m, batch)

# --- sgd
fn with_sgd(m: Net) -> SGD[Net]:
    return sgd(m, lr=0.1, momentum=0.9)

# --- adam
fn with_adam(m: Net) -> Adam[Net]:
    return adam(m, lr=1e-3)

# --- adamw
fn with_adamw(m: Net) -> AdamW[Net]:
    return adamw(m, lr=1e-3, weight_decay=0.1, decay_axes=2)

# --- lion
fn with_lion(m: Net) -> Lion[Net]:
    return lion(m, lr=1e-4)

# --- update
fn updated(mut m: Net, mut opt: AdamW[Net], batch: [b] Row) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, g, lr=3e-4)
    return l

# --- clip
fn clipped_step(mut m: Net, mut opt: AdamW[Net], batch: [b] Row) -> [] NonNeg:
    l, g = value_and_grad(loss, m, batch)
    update(mut m, mut opt, clip(g, norm=1.0))
    return l

# --- copy
fn twin(m: Net) -> Net:
    return copy(m)

# --- average
fn follow(mut ema: Net, m: Net):
    average(mut ema, m, keep=0.999)

# --- dropout
fn dropped(x: [b D]) -> [b D]:
    return dropout(x, 0.1)

# --- batch_norm
model Normed:
    statistics: BatchNorm[D]

fn normed(x: [b D], mut m: Normed) -> [b D]:
    return batch_norm(x, mut m.statistics, over=b)

# --- shuffle
fn shuffled_epochs(rows: Dataset[Row], mut m: Net, mut opt: AdamW[Net]):
    for epoch in 0..2:
        for batch in rows |> shuffle(seed=epoch) |> batches(8):
            log("loss", step(mut m, mut opt, batch))

# --- batches
fn batch_lengths(rows: Dataset[Row]):
    for batch in rows |> batches(8, drop_last=true):
        print(len(batch))

# --- take
fn first_batches(rows: Dataset[Row]):
    for batch in rows |> take(10) |> batches(4):
        print(len(batch))

# --- skip
fn later_batches(rows: Dataset[Row]):
    for batch in rows |> skip(10) |> batches(4):
        print(len(batch))

# --- map
fn doubled_batches(rows: Dataset[Row]):
    for batch in rows |> map(reference_rows.doubled) |> batches(8):
        print(len(batch))

# --- filter
fn chosen_batches(rows: Dataset[Row]):
    for batch in rows |> filter(reference_rows.is_first_class) |> batches(8):
        print(len(batch))

# --- split
fn heads(x: [b n D], w: [D 3*D]) -> [b H n Dh]:
    q, k, v = x @ w |> split(b n (3 H Dh) -> b H n Dh)
    return q + k + v

fn two_parts(rows: Dataset[Row]):
    train, test = rows |> split(0.9, seed=0)
    print(len(train), len(test))

# --- len
fn how_many(rows: Dataset[Row]) -> int:
    return len(rows)

# --- print
fn say(epoch: int):
    print("epoch", epoch)

# --- show
fn shown(x: [b D]) -> [b D]:
    show("x", x)
    return x

# --- log
fn logged(rows: Dataset[Row], mut m: Net, mut opt: AdamW[Net]):
    for batch in rows |> batches(8):
        log("loss", step(mut m, mut opt, batch))

fn logarithm(x: [n] NonNeg) -> [n]:
    return log(x + 1)

# --- save
fn keep(m: Net):
    save(m, "net.safetensors")

# --- load
fn read(mut m: Net):
    load(mut m, "net.safetensors")

# --- save_checkpoint
fn keep_all(m: Net, opt: AdamW[Net], epoch: int):
    save_checkpoint("last.safetensors", m, opt, epoch)

# --- load_checkpoint
fn read_all(mut m: Net, mut opt: AdamW[Net]) -> int:
    epoch = 0
    load_checkpoint("last.safetensors", mut m, mut opt, mut epoch)
    return epoch

# --- time
fn how_long(m: Net) -> float:
    begun = time()
    save(m, "net.safetensors")
    return time() - begun

# --- warmup_cosine
fn rate_by_cosine(at: int) -> float:
    return warmup_cosine(at, peak=1e-3, warmup=100, total=1000)

# --- warmup_linear
fn rate_by_line(at: int) -> float:
    return warmup_linear(at, peak=1e-3, warmup=100, total=1000)

# --- cosine
fn rate_falling(at: int) -> float:
    return cosine(at, peak=1e-3, total=1000)

# --- exponential
fn rate_by_factor(at: int) -> float:
    return exponential(at, peak=1e-3, rate=0.999)

# --- steps
fn rate_by_steps(at: int) -> float:
    return steps(at, peak=1e-3, every=300, factor=0.1)

# --- int
fn whole_number(x: []) -> int:
    return int(x)

# --- float
fn number(x: []) -> float:
    return float(x)

# --- bool
fn yes_or_no(x: []) -> bool:
    return bool(x > 0)

# --- str
fn name_of(epoch: int) -> str:
    return "epoch-" + str(epoch)

# --- reversed
fn countdown(n: int):
    for i in reversed(0..n):
        print(i)

# --- zeros
fn made_of_zeros(x: [b D]) -> [b C]:
    return zeros[b C]

# --- ones
fn made_of_ones(x: [b D]) -> [b C]:
    return ones[b C]

# --- full
fn made_of_sevens(x: [b D]) -> [b C]:
    return full[b C](7)

# --- arange
fn places(x: [n D]) -> [n] Index[n]:
    return arange[n]

# --- eye
fn identity(x: [n D]) -> [n n]:
    return eye[n n]

# --- causal
fn scores_of_the_past(s: [b n m]) -> [b n m]:
    return s |> masked_fill(!causal[n m], -inf) |> softmax(over=m)

# --- normal
fn noise(x: [b D]) -> [b D]:
    return x + normal[b D](std=0.1)

# --- uniform
fn jitter(x: [b D]) -> [b D]:
    return x * uniform[b D](0.9, 1.1)

# --- randint
fn random_labels(x: [b D]) -> [b] Index[C]:
    return randint[b](C)

# --- constant
model Gain:
    param gain: [D] = constant(0.5)

# --- xavier
model Glorot:
    param w: [D C] = xavier

# --- kaiming
model He:
    param w: [D C] = kaiming

# --- orthogonal
model Orthogonal:
    param w: [D C] = orthogonal

# --- einsum
fn products(q: [b n D], k: [b m D]) -> [b n m]:
    return einsum(q, k: b n D, b m D -> b n m)

# --- matmul
fn through(m: Net, x: [b D]) -> [b C]:
    return x |> relu |> matmul(m.w)

# --- repeat
fn repeated(x: [b D]) -> [b T D]:
    return repeat(x: b D -> b T D)

# --- rename
fn against_itself(x: [n D]) -> []:
    y = rename(x, n=m)
    return sum(einsum(x, y: n D, m D -> n m), over=[n m])

# --- masked_fill
fn without(x: [b T], padding: [b T] bool) -> [b T]:
    return masked_fill(x, padding, -inf)

# --- clamp
fn clamped(x: [b D]) -> [b D]:
    return clamp(x, -1, 1)

# --- leaky_relu
fn leaky(x: [b D]) -> [b D]:
    return leaky_relu(x, slope=0.2)

# --- categorical
fn drawn(logits: [b C]) -> [b] Index[C]:
    return categorical(logits, over=C)

# --- stack
fn both(x: [b D], y: [b D]) -> [2 b D]:
    return stack(x, y, over=2)

# --- one_hot
fn as_rows(y: [b] Index[C]) -> [b C]:
    return one_hot(y, over=C)

# --- topk
fn best_two(logits: [b C]) -> [b 2] Index[C]:
    values, places = topk(logits, 2, over=C)
    return places
