"""Worker processes: one for each device, which run graphs; and the pool by which the controller speaks to them."""
