"""The operations: the registry, and the ops by family.

Importing this package fills `registry.REGISTRY`: each family registers its ops as it is imported.
"""

from shapescript.ops import (  # noqa: F401  (they fill the registry)
    along,
    attention,
    communicate,
    convolution,
    elementwise,
    index,
    losses,
    make,
    move,
    product,
    python,
    reduce,
    statistics,
)
