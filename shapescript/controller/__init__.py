"""The controller: the one process that runs a program's loops, data sets, prints, logs and files."""
