# Each device keeps a third of every parameter, and of what AdamW keeps of it.

devices cpu[0 1 2]
    shard params

import gpt

fn main(steps: int = 300):
    gpt.train(steps)
