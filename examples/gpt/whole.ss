# Data parallelism alone: each device has every parameter.

devices cpu[0 1 2]

import gpt

fn main(steps: int = 300):
    gpt.train(steps)
