"""How long the chapter's step takes at batch 64, AdamW included, and how long its kernels do; prints JSON.

The batch lies on the GPU, and nothing is looked at in between: what is measured is a replay after the other.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from programs import Program
from test_cuda_workers import CHAPTER

from shapescript.controller.placing import OneDevice

TEXT = CHAPTER.partition("fn train")[0].replace("cuda[0 1 2]", "cpu").replace("import python digits\n", "") + (
    "fn make() -> Mlp:\n    return Mlp(seed=0)\n\nfn optimizer(m: Mlp) -> AdamW[Mlp]:\n    return adamw(m, lr=3e-4)\n"
)


def main(device: str, steps: int) -> None:
    place = OneDevice(device)
    program = Program(TEXT, place=place)
    m = program.call("make")
    opt = program.call("optimizer", m)
    batch = {
        "img": torch.rand(64, 784, device=device),
        "label": torch.randint(0, 10, (64,), device=device),
    }

    def run(count: int) -> float:
        begun = time.perf_counter()
        for _ in range(count):
            program.evaluator.apply(program.typed.functions["step"], values)
        place.finish()
        return time.perf_counter() - begun

    info = program.typed.functions["step"]
    given = zip(info.parameters, (m, opt, batch), strict=True)
    values = {each.name: program._value(argument, each.type) for each, argument in given}
    run(10)
    found = {"device": device, "steps": steps, "ms_per_step": min(run(steps) for _ in range(5)) / steps * 1000}
    if torch.device(device).type == "cuda":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            run(50)
        total = sum(event.self_device_time_total for event in profile.key_averages())
        found["kernels_ms_per_step"] = total / 50 / 1000
    place.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
