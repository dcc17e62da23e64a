"""Pictures of pages for README and docs: ``python tools/page_pictures.py`` (needs Chromium and chromedriver).

The pages are those of examples/own_network.py, in out/own_network; it is run first if they are missing. Sections are
photographed one by one and put together, so that a picture shows what matters and is small.
"""

import io
import runpy
import shutil
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver

ROOT = Path(__file__).parent.parent
PAGES, PICTURES = ROOT / "out" / "own_network", ROOT / "docs" / "images"
GAP, PAPER = 24, (247, 246, 242)

# Picture -> page, and the sections of each column; "top" is what stands before the first of them.
LAYOUTS = {
    "network-page": ("diabetes", (("top", "importance", "formula"), ("shapes", "examples"))),
    "network-page-more": ("diabetes", (("interactions", "terms"), ("degrees", "features"))),
    "digits-page": ("digits", (("top", "features"), ("examples",))),
}


def main() -> None:
    if not all((PAGES / f"{page}.html").is_file() for page, _ in LAYOUTS.values()):
        runpy.run_path(str(ROOT / "examples" / "own_network.py"), run_name="__main__")
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--window-size=1200,2400"):
        options.add_argument(argument)
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        for name, (page, columns) in LAYOUTS.items():
            driver.get((PAGES / f"{page}.html").as_uri())
            height = driver.execute_script("return document.documentElement.scrollHeight")
            driver.set_window_size(1200, height + 200)  # all of it drawn at once
            driver.execute_async_script("setTimeout(arguments[0], 1500)")
            whole = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
            made = joined([[cut(driver, whole, section) for section in column] for column in columns])
            path = PICTURES / f"{name}.png"
            made = made.resize((made.width * 3 // 4, made.height * 3 // 4), Image.Resampling.LANCZOS)
            made.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(path, optimize=True)
            print(path, f"{path.stat().st_size / 1000:.0f} kB")
    finally:
        driver.quit()


def cut(driver: Any, whole: Image.Image, section: str) -> Image.Image:
    """A section with a margin."""
    where = f"document.querySelector('{'section[id]' if section == 'top' else f'#{section}'}')"
    left, top, right, bottom = driver.execute_script(
        f"const b = {where}.getBoundingClientRect(); return [b.left, b.top + scrollY, b.right, b.bottom + scrollY]"
    )
    if section == "top":
        top, bottom = GAP, top
    return whole.crop((int(left) - GAP, int(top), int(right) + GAP, int(bottom)))


def joined(columns: list[list[Image.Image]]) -> Image.Image:
    """Pictures in columns."""
    height = max(sum(part.height for part in column) for column in columns)
    made = Image.new("RGB", (sum(column[0].width for column in columns), height), PAPER)
    x = 0
    for column in columns:
        y = 0
        for part in column:
            made.paste(part, (x, y))
            y += part.height
        x += column[0].width
    return made


if __name__ == "__main__":
    main()
