"""How values lie on several devices: from a logical graph to one device's, with the collectives as its nodes."""
