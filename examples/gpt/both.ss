# Heads, columns and vocabulary are split, and what has none of these axes is sharded.

devices cpu[0 1 2]
    shard params
    split H
    split Hd
    split V

import gpt

dim H  = gpt.H
dim Hd = gpt.Hd
dim V  = gpt.V

fn main(steps: int = 300):
    gpt.train(steps)
