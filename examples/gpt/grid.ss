# A grid: the batch over three groups, heads, columns and vocabulary over the two devices of each.

devices cpu[0 1 2 3 4 5]
    shard params
    split H by 2
    split Hd by 2
    split V by 2

import gpt

dim H  = gpt.H
dim Hd = gpt.Hd
dim V  = gpt.V

fn main(steps: int = 300):
    gpt.train(steps)
