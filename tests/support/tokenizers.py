"""Tokenizers without a download."""

import transformers


class Letters:
    """A tokenizer with one token per character, and what BERT puts around a text if it is asked to."""

    def __init__(self, before=(), after=()):
        self.before, self.after = before, after
        self.texts = []

    def encode(self, text, add_special_tokens=True):
        self.texts.append(text)
        ids = [ord(c) for c in text]
        return [*self.before, *ids, *self.after] if add_special_tokens else ids


def word_tokenizer(bos):
    """A true tokenizer of transformers, with a vocabulary of eight words."""
    import tokenizers

    words = {word: i for i, word in enumerate(["<unk>", "<s>", "to", "be", "or", "not", "that", "is"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if bos:
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
        )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>")
