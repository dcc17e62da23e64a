"""Text and token ids: what goes into a language model."""
