"""Models of Hugging Face transformers from a folder, a GGUF file or the hub, and who they are, by their weights.

No code of a checkpoint is run.
"""

import hashlib
import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from mlpoly.extras import library
from mlpoly.lm.example import EXAMPLE

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "spiece.model", "vocab.txt", "merges.txt")

# Errors of transformers for a checkpoint that is missing, damaged or of an unknown kind.
_FAILURES = (OSError, ValueError, ImportError, RuntimeError, KeyError, SafetensorError)
_SAMPLED = 64  # values of each parameter that enter the fingerprint


def load_model(
    name_or_path: str | PathLike[str] | None = None,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    gguf_file: str | None = None,
) -> tuple[Any, Any]:
    """Load a language model in evaluation mode, and its tokenizer, which is None if the folder has none.

    Weights are read from safetensors or GGUF, never from pickles, which can run code when they are opened.

    Parameters
    ----------
    name_or_path : str or path, optional
        A folder, a file that ends in .gguf, or a name on the Hugging Face hub such as "HuggingFaceTB/SmolLM2-135M". By
        default the small model that is shipped with the package.
    device, dtype : device and floating dtype of torch, optional
        Dtype of the weights; by default that of the checkpoint, float32 for GGUF.
    revision, gguf_file : str, optional
        Branch, tag or commit on the hub; name of a GGUF file in the folder or on the hub.
    trust_remote_code : bool
        Whether to run model code that comes with the checkpoint. Allow it only after reading that code.

    Examples
    --------
    >>> from mlpoly.lm import load_model
    >>> model, tokenizer = load_model()  # or load_model("HuggingFaceTB/SmolLM2-135M")
    >>> type(model).__name__, model.training, tokenizer.decode(tokenizer.encode("3 + 4 = 7 ."))
    ('LlamaForCausalLM', False, '<s> 3 + 4 = 7 .')
    """
    transformers = library("transformers", "transformers", "load_model")
    place, gguf_file = _place(EXAMPLE if name_or_path is None else name_or_path, gguf_file)
    options: dict[str, Any] = {"trust_remote_code": bool(trust_remote_code)}
    if gguf_file is not None:
        for package in ("gguf", "accelerate"):
            library(package, package, f"reading the GGUF file {gguf_file}")
        options["gguf_file"] = gguf_file
    if revision is not None:
        options["revision"] = revision
    kept = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is not None and not (isinstance(kept, torch.dtype) and kept.is_floating_point):
        raise ValueError(f"dtype must be a floating dtype such as torch.float32 or 'bfloat16', got {dtype!r}.")
    weights = {"dtype": kept or torch.float32} if gguf_file else {"dtype": kept or "auto", "use_safetensors": True}
    try:
        kind = transformers.AutoModelForCausalLM
        if not gguf_file:  # the class that the checkpoint was saved from, if it is one of the library's own
            names = transformers.AutoConfig.from_pretrained(place, **options).architectures or []
            known = [k for name in names if isinstance(k := getattr(transformers, name, None), type)]
            kind = next((k for k in known if issubclass(k, transformers.PreTrainedModel)), kind)
        model, info = kind.from_pretrained(place, output_loading_info=True, **options, **weights)
    except _FAILURES as error:
        raise _explained(place, error) from error
    body = getattr(model, model.base_model_prefix, None)
    missing = sorted(info["missing_keys"])
    if missing and isinstance(body, torch.nn.Module) and not any(
        name.startswith(f"{model.base_model_prefix}.") for name in missing
    ):  # fmt: skip
        said = (
            f"{place} has no weights for the head of {type(model).__name__}: the {type(body).__name__} alone is taken."
        )
        warnings.warn(said, stacklevel=2)  # as sentence encoders are published
        model = body
    elif missing:
        raise ValueError(
            f"{place} lacks {len(missing)} of the weights of {type(model).__name__}, {missing[0]} among them, which "
            f"would be random; is it the whole checkpoint?"
        )
    model = model.to(device).eval()
    return model, _tokenizer(place, gguf_file, revision, options)


def _tokenizer(place: str, gguf_file: str | None, revision: str | None, options: dict[str, Any]) -> Any:
    """The tokenizer of a model, None if its folder has none."""
    import transformers

    if gguf_file is None and Path(place).is_dir() and not any(Path(place, name).is_file() for name in _TOKENIZERS):
        return None
    try:
        if gguf_file is not None:  # whether texts begin with that token, transformers does not read from the file
            from gguf import GGUFReader
            from transformers.utils.hub import cached_file

            reader = GGUFReader(str(cached_file(place, gguf_file, revision=revision)))
            field = reader.get_field("tokenizer.ggml.add_bos_token")
            if field is not None and bool(field.parts[field.data[0]][0]):
                options["add_bos_token"] = True
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, **options)
    except _FAILURES as error:
        raise _explained(place, error, "the tokenizer") from error
    if "add_bos_token" in options and tokenizer.encode("a")[:1] != [tokenizer.bos_token_id]:
        warnings.warn(
            f"{gguf_file} says that a text begins with the beginning-of-sequence token, but the tokenizer that "
            f"transformers {transformers.__version__} makes of it adds none: losses will be too high. Load the "
            f"tokenizer of the original model instead.",
            stacklevel=3,
        )
    return tokenizer


def _place(name_or_path: str | PathLike[str], gguf_file: str | None) -> tuple[str, str | None]:
    """Return folder or hub name, and the GGUF file in it."""
    text, place = str(name_or_path), Path(name_or_path).expanduser()
    if place.suffix.lower() == ".gguf":
        if not place.is_file():
            raise FileNotFoundError(f"no GGUF file {place}.")
        return str(place.parent), place.name
    if place.is_dir():
        if gguf_file is not None and not (place / gguf_file).is_file():
            raise FileNotFoundError(f"no file {gguf_file} in {place}.")
        if gguf_file is None and not (place / "config.json").is_file():
            raise FileNotFoundError(f"{place} has no config.json; name the folder that a model was saved to.")
        if gguf_file is None and not any(place.glob("*.safetensors")):
            pickles = sorted(p.name for p in place.iterdir() if p.suffix in (".bin", ".pt", ".pth"))
            found = f", only pickles ({', '.join(pickles[:3])}), which can run code when opened" if pickles else ""
            raise FileNotFoundError(
                f"{place} has no weights in safetensors{found}. Get a safetensors version, or convert it where you "
                f"trust it: model.save_pretrained(folder)."
            )
        return str(place), gguf_file
    if isinstance(name_or_path, PathLike) or text.startswith(("/", ".", "~")) or text.count("/") > 1:
        raise FileNotFoundError(f"no folder {place} with a model.")
    return text, gguf_file


def _explained(place: str, error: Exception, what: str = "the model") -> Exception:
    """Return an error of one line in place of the hub's many."""
    reason = " ".join(str(error).split())
    if "custom code" in reason or "trust_remote_code" in reason:
        return ValueError(
            f"{place} brings model code of its own, which is not run by default; read it, and pass "
            f"trust_remote_code=True if you trust it."
        )
    reason = reason if len(reason) <= 300 else f"{reason[:297]}..."
    if Path(place).is_dir():
        return ValueError(f"{what} in {place} could not be loaded: {reason}")
    return FileNotFoundError(
        f"{place!r} is not a local folder, and {what} could not be fetched from the hub: {reason} Check the name, the "
        f"network and HF_HUB_OFFLINE, or name a folder."
    )


def describe_model(model: nn.Module) -> dict[str, Any]:
    """Name, class, revision, dtype and a fingerprint of the weights."""
    config = getattr(model, "config", None)
    first = next(model.parameters(), None)
    name = str(getattr(config, "_name_or_path", "") or "")
    if name and Path(name).exists():  # the last part alone, which means the same on every machine
        name = Path(name).resolve().name
    return {
        "model": name or type(model).__name__,
        "architecture": type(model).__name__,
        "commit": getattr(config, "_commit_hash", None),
        "dtype": None if first is None else str(first.dtype).removeprefix("torch."),
        "weights": weights_fingerprint(model),
    }


def weights_fingerprint(model: nn.Module) -> str:
    """SHA-256 over names, shapes and a few values of every parameter: cheap, and changed by any training."""
    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        digest.update(f"{name}{tuple(weight.shape)}{weight.dtype}".encode())
        if weight.is_meta or weight.numel() == 0:
            continue
        flat = weight.detach().reshape(-1)
        step = max(flat.shape[0] // _SAMPLED, 1)
        digest.update(flat[::step][:_SAMPLED].cpu().double().numpy().tobytes())
    return digest.hexdigest()
