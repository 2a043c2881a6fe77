"""A stand-in for Modal on this machine, for tests with the real `modal` client.

It answers the calls that a run on a rented GPU makes, by the client's own protocol, and really runs what is asked: a
machine is a folder, a command a process. It builds no image (ShapeScript is run from the source that was uploaded for
it, by the Python of the tests) and has no GPU. What it can't show is what only Modal has: images, drivers,
availability, prices. `python -m modal_stand_in`, from tests/, starts it.
"""
