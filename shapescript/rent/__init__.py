"""Renting a GPU: `shapescript run --modal T4 train.ss` runs a whole program on a machine of Modal's.

In the order in which a run goes through them: `ask` (what the command line asks for), `prices`, `imports` and `check`
(mistakes found here cost nothing), `upload` (which files travel), `recipe` and `image` (the same Python, torch and
ShapeScript there), `service` (Modal's client), `run` (the run itself), `follow` (its output, its end, Ctrl-C) and
`files_back`. `guest` runs on the rented machine, by itself, without ShapeScript. docs/modal.md is the guide.
"""
