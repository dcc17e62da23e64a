"""The report of a study of a language model, as one page that loads nothing from a network."""
