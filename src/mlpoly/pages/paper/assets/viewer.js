"use strict";

// Eigenfeatures over training: the slider chooses the step, the buttons the class.
const Viewers = [...document.querySelectorAll("[data-viewer]")].map((block) => {
  const spec = Page.data(block.dataset.viewer);
  const pixels = Page.bytes(spec.pixels);
  const size = spec.shape[0] * spec.shape[1];
  const slots = 2 * spec.columns + 1;
  const find = (selector) => block.querySelector(selector);
  const slider = find("input[type=range]");
  const play = find("button.play");
  const frames = [...block.querySelectorAll(".frames button")];
  let timer = null;

  const index = (step, label, slot) => (step * spec.classes.length + label) * slots + slot;
  const image = (i) => pixels.subarray(i * size, (i + 1) * size);
  const range = (i) => `±${Page.number(127 * spec.scale[i], 2)}`;
  const chosen = () => Number(find("fieldset input:checked").value);

  const fill = (tile, i, value, words) => {
    const canvas = tile.querySelector("canvas");
    tile.classList.toggle("empty", value === undefined);
    if (value === undefined) return;
    Page.draw(canvas, image(i));
    tile.querySelector(".under").textContent = value === null ? range(i) : Page.signed(value);
    canvas.setAttribute("aria-label", words);
    canvas.title = value === null ? `colours ${range(i)}` : `eigenvalue ${Page.signed(value)}, colours ${range(i)}`;
  };

  const bars = (values, count) => {
    const high = Math.max(0, ...values), low = Math.min(0, ...values), room = high - low || 1;
    const board = find(".bars");
    const width = 100 / Math.max(values.length, 1);
    const rects = values.map((v, i) => {
      const top = 100 * (high - Math.max(v, 0)) / room, tall = Math.max(100 * Math.abs(v) / room, 0.4);
      const shown = v > 0 ? i < spec.columns : i >= values.length - spec.columns;
      return `<rect x="${i * width + width * 0.1}" y="${top}" width="${width * 0.8}" height="${tall}"`
        + ` class="${v > 0 ? "up" : "down"}${shown ? "" : " more"}"></rect>`;
    });
    const zero = 100 * high / room;
    board.innerHTML = `<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">${rects.join("")}`
      + `<line x1="0" x2="100" y1="${zero}" y2="${zero}"></line></svg>`;
    const words = `${Page.signed(values[0])} to ${Page.signed(values[values.length - 1])}`;
    const part = count > values.length ? `, the ${values.length / 2} largest and smallest of ${count}` : "";
    board.setAttribute("aria-label", `Bars of the eigenvalues, ${words}${part}`);
    find(".bar-chart .under").textContent = words + part;
  };

  const show = () => {
    const step = Number(slider.value), label = chosen(), name = spec.classes[label];
    const values = spec.values[step][label];
    const at = `class ${name}, step ${spec.steps[step]}`;
    slider.setAttribute("aria-valuetext", `step ${spec.steps[step]}`);
    find("output").textContent = `step ${Page.grouped(spec.steps[step])}`;
    frames.forEach((frame, i) => frame.toggleAttribute("data-now", i === step));
    const strip = find(".frames"), now = frames[step]; // the strip alone scrolls, not the page
    strip.scrollLeft = now.offsetLeft - strip.offsetLeft - (strip.clientWidth - now.clientWidth) / 2;
    if (!values) return;
    [["positive", 0], ["negative", spec.columns]].forEach(([kind, start]) => {
      block.querySelectorAll(`.${kind} .tile`).forEach((tile, i) => {
        const value = values[kind][i];
        fill(tile, index(step, label, start + i), value, `eigenvector of ${at}, eigenvalue ${Page.signed(value)}`);
      });
    });
    fill(find(".linear .tile"), index(step, label, slots - 1), null, `linear coefficients of ${at}`);
    bars(values.spectrum, values.count);
  };

  const film = () => frames.forEach((frame, step) => {
    const [top, linear] = frame.querySelectorAll("canvas");
    Page.draw(top, image(index(step, chosen(), 0)));
    Page.draw(linear, image(index(step, chosen(), slots - 1)));
  });

  const move = (step) => { slider.value = step; show(); };
  const stop = () => {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
    play.setAttribute("aria-pressed", "false");
  };
  const run = () => {
    const last = spec.steps.length - 1;
    if (Number(slider.value) >= last) move(0);
    play.textContent = "Pause";
    play.setAttribute("aria-pressed", "true");
    // Those who asked for less motion get a slow change of slides.
    const pause = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1800 : 650;
    timer = setInterval(() => {
      move(Number(slider.value) + 1);
      if (Number(slider.value) >= last) stop();
    }, pause);
  };

  slider.addEventListener("input", () => { stop(); show(); });
  play.addEventListener("click", () => (timer === null ? run() : stop()));
  find("fieldset").addEventListener("change", () => { show(); film(); });
  frames.forEach((frame, i) => frame.addEventListener("click", () => { stop(); move(i); }));
  show();
  film();
  return { show };
});
