"""Studies of the paper's networks and of language models, each in a folder of its own."""
