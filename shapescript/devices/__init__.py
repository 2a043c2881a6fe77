"""What runs graphs: the devices, their executors, and the errors met while running."""
