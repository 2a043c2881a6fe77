"""The language server: what an editor asks about a program, answered while it is being written.

`analysis.py` keeps a program checked through edits; the other files each answer one kind of question about it, in
offsets of the text; `server.py` speaks the protocol. None of it loads torch or runs a program.
"""
