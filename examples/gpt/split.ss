# Each device computes two of the six heads, a third of the columns and a third of the vocabulary.

devices cpu[0 1 2]
    split H
    split Hd
    split V

import gpt

dim H  = gpt.H
dim Hd = gpt.Hd
dim V  = gpt.V

fn main(steps: int = 300):
    gpt.train(steps)
