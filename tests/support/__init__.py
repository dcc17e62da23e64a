"""What the tests share: array libraries, networks, tiny language models, a browser."""
