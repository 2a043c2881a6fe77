"""The passes that make a graph ready to run, each a graph to a graph."""
