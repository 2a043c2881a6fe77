"""The native executor: a graph becomes a plan of instructions that C++ runs (`csrc/cpu`)."""
