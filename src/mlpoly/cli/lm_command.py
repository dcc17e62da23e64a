"""The command for language models."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from mlpoly.studies.language_model.options import LmConfig


@dataclass(frozen=True)
class LmCommand:
    """Replace the blocks of a language model by polynomials: measure, read, and write report.html."""

    model: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[MODEL]")] = None
    """A causal language model: a folder, a .gguf file, or a name on the hub; by default a small one of this package."""
    text: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Text in UTF-8, or an .npy file of token ids (n, t); needed with MODEL."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("out/lm")
    """Folder of the study."""
    held_out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Text for the errors and losses; by default the last tenth of --text."""
    prompt: Annotated[str | None, tyro.conf.arg(metavar="TEXT")] = None
    """Text that is taken apart token by token; by default the beginning of the held-out text."""
    device: Annotated[str, tyro.conf.arg(metavar="DEVICE")] = "cpu"
    """Device of PyTorch, such as cuda."""
    restart: bool = False
    """Compute everything again, in place of what the folder has."""
    json: bool = False
    """Print the result as JSON."""
    quiet: bool = False
    """Draw no progress bars. They are drawn on a terminal only."""
    config: Annotated[LmConfig, tyro.conf.OmitArgPrefixes] = field(default_factory=LmConfig)

    def run(self) -> dict[str, Any]:
        """Call `mlpoly.studies.language_model.run.study_lm`."""
        from mlpoly.studies.language_model.run import study_lm

        if self.quiet or not sys.stderr.isatty():
            with suppress(ImportError):  # load_model says what is missing
                from transformers.utils import logging

                logging.disable_progress_bar()  # which transformers would draw into files too
        results = study_lm(
            self.model,
            self.text,
            self.out,
            self.config,
            held_out=self.held_out,
            prompt=self.prompt,
            device=self.device,
            resume=not self.restart,
        )
        whole = [loss for loss in results.losses if loss.replaced in ("none", "all")]
        return {"report": self.out / "report.html", "seconds": results.about["seconds"], "losses": whole}
