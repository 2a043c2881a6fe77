"""What all tests share."""

from hypothesis import settings

# a time limit for each example says how busy the machine is, and nothing about the code
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")
