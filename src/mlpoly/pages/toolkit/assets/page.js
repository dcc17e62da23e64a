"use strict";

// What the other scripts share: data islands, images on canvases, colours of the theme.
const Page = (() => {
  const data = (name) => JSON.parse(document.getElementById(name).textContent);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // ColorBrewer's RdBu from blue to red, the same stops as in pictures.py.
  const stops = "053061 2166ac 4393c3 92c5de d1e5f0 f7f7f7 fddbc7 f4a582 d6604d b2182b 67001f"
    .split(" ").map((hex) => [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  const palette = Array.from({ length: 255 }, (_, level) => {
    const place = (level / 254) * (stops.length - 1);
    const i = Math.min(Math.floor(place), stops.length - 2);
    return stops[i].map((from, c) => Math.round(from + (place - i) * (stops[i + 1][c] - from)));
  });

  const bytes = (base64) => Int8Array.from(atob(base64), (c) => c.charCodeAt(0));

  // Pixels are signed bytes; the widest of an image is +-127 and takes the ends of the palette.
  const draw = (canvas, pixels) => {
    const context = canvas.getContext("2d");
    const image = context.createImageData(canvas.width, canvas.height);
    pixels.forEach((value, i) => image.data.set([...palette[value + 127], 255], 4 * i));
    context.putImageData(image, 0, 0);
  };

  const number = (value, digits = 3) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    const text = size >= 1e5 || (size > 0 && size < 1e-3) ? value.toExponential(1) : value.toPrecision(digits);
    return text.replace(/-/g, "−");
  };
  const signed = (value) => (value > 0 ? "+" : "") + number(value);
  const grouped = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");

  return { data, colour, bytes, draw, number, signed, grouped };
})();

// Contents that share one place.
for (const block of document.querySelectorAll("[data-panels]")) {
  const shown = block.querySelectorAll(":scope > .panel");
  block.addEventListener("change", (event) => {
    if (event.target.name !== block.dataset.panels) return;
    shown.forEach((panel, i) => { panel.hidden = i !== Number(event.target.value); });
  });
  const chosen = block.querySelector("input:checked"); // a browser may restore a choice of the last visit
  if (chosen) shown.forEach((panel, i) => { panel.hidden = i !== Number(chosen.value); });
}

// Commands to copy.
for (const button of document.querySelectorAll("button.copy")) {
  const code = button.parentElement.querySelector("code");
  const say = (words) => {
    button.textContent = words;
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  };
  const select = () => {
    getSelection().selectAllChildren(code);
    return document.execCommand("copy");
  };
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      say("Copied");
    } catch { // not every browser lets a file write to the clipboard
      say(select() ? "Copied" : "Selected");
    }
  });
}

// The table of contents marks where the reader is.
{
  const links = [...document.querySelectorAll("nav.contents a")];
  const sections = links.map((a) => document.querySelector(a.getAttribute("href")));
  const mark = () => {
    const above = sections.filter((s) => s.getBoundingClientRect().top < innerHeight * 0.35).length;
    links.forEach((a, i) => {
      if (i === above - 1) a.setAttribute("aria-current", "true");
      else a.removeAttribute("aria-current");
    });
  };
  addEventListener("scroll", mark, { passive: true });
  mark();
}
