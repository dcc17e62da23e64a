"""One study, from a model and a text to a folder."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from mlpoly.files import make_folder
from mlpoly.integrations.devices import check_device
from mlpoly.lm.study.config import LmConfig, with_options
from mlpoly.lm.study.lm_results import LmResults
from mlpoly.lm.study.output import check_folder, command_line, write_results
from mlpoly.lm.study.stages import Stages
from mlpoly.lm.text.token_batches import Source

__all__ = ["study_lm"]


def study_lm(
    model: str | PathLike[str],
    text: Source,
    out: str | PathLike[str],
    config: LmConfig | None = None,
    *,
    held_out: Source | None = None,
    prompt: str | None = None,
    device: str = "cpu",
    resume: bool = True,
    show_progress: bool = True,
    **options: Any,
) -> LmResults:
    """Replace the blocks of a language model by polynomials, measure what that costs, and write it all to a folder.

    Parameters
    ----------
    model : str or path
        A folder, a .gguf file or a name on the hub, see `load_model`.
    text : str or path
        A text file, the text itself, or an .npy file of token ids (n, t), as models without a tokenizer need.
    out : path
        The folder: polynomials in ``<block>/``, moments, tables/*.csv, results.json and report.html. The pass over
        the text, if it was killed, goes on where it was.
    config : LmConfig, optional
        Options; each can also be given by name, ``degree=2``.
    held_out : str or path, optional
        Text to judge by; by default the last tenth of `text`, which is then not used otherwise.
    prompt : str, optional
        What is taken apart token by token; by default the beginning of the held-out text.
    device : str
    resume : bool
        Whether to use moments that the folder already has; on the command line, --restart says no.
    show_progress : bool

    Returns
    -------
    LmResults
    """
    config = with_options(config, options)
    check_folder(Path(out))
    folder = make_folder(out)
    study = Stages(config, folder, check_device(device), show_progress)
    study.open(model, text, held_out)
    moments = study.collect(resume)
    study.spectra(moments)
    study.convert(moments)
    study.evaluate()
    study.read(moments)
    study.take_apart(prompt)
    results = study.results
    results.about["command"] = command_line(model, text, held_out, out, prompt, device, config)
    write_results(folder, results)
    return results
