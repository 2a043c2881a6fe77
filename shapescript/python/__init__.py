"""ShapeScript from Python: loaded programs as modules, their models as objects, their functions as functions."""
