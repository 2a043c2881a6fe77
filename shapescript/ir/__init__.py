"""The intermediate representation: graphs of tensor operations, their builder, verifier and text."""
