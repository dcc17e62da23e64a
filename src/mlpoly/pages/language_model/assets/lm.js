"use strict";

// A prompt taken apart; `Tokens` is in features.js.
addEventListener("DOMContentLoaded", () => {
  const { made, marked, tint } = Tokens;

  for (const viewer of document.querySelectorAll("[data-attribution]")) {
    const spec = Page.data(viewer.dataset.attribution);
    const block = viewer.querySelector("select");
    const degrees = viewer.querySelector("fieldset");
    const spans = [...viewer.querySelectorAll(".stream span")];
    const count = spec.degrees.length;
    let token = spans.length - 1;

    // A row holds every degree, then what the block itself adds; the first entry of the menu is the sum of all.
    const zeros = new Array(count + 1).fill(0);
    const sum = (rows) => rows.reduce((all, row) => all.map((v, i) => v + row[i]), zeros);
    const row = (place, t) => (place === 0 ? sum(spec.values.map((l) => l[t])) : spec.values[place - 1][t]);
    const total = (values) => values.slice(0, count).reduce((a, b) => a + b, 0);
    const picked = (values, kind) => (kind < count ? values[kind] : kind === count ? total(values) : values[count]);
    const cells = (name, values, cls) => {
      const line = made("tr", undefined, cls);
      const heading = made("th", name);
      heading.scope = "row";
      line.append(heading);
      const shown = [...values.slice(0, count), total(values), values[count]];
      line.append(...shown.map((v) => made("td", Page.signed(v), "number")));
      return line;
    };

    const table = () => {
      const body = viewer.querySelector(".parts tbody");
      body.replaceChildren(
        ...spec.blocks.map((name, i) => cells(name, spec.values[i][token])),
        cells("all blocks", row(0, token), "sum"),
      );
      const numbers = spec.blocks.flatMap((_, i) => spec.values[i][token].slice(0, count));
      const largest = Math.max(...numbers.map(Math.abs));
      [...body.rows].slice(0, -1).forEach((line, i) => {
        for (let k = 0; k < count; k += 1) tint(line.cells[k + 1], spec.values[i][token][k], largest);
      });
      const words = viewer.querySelector(".taken");
      words.replaceChildren(
        "After ", made("code", marked(spec.tokens[token])), `, position ${token}, towards `,
        made("code", marked(spec.targets[token])),
        `: the model’s logit is ${Page.number(spec.logits[token])}`,
        spec.centred ? " above the mean of all logits." : ".",
      );
    };
    const show = () => {
      const kind = Number(degrees.querySelector("input:checked").value), place = Number(block.value);
      const rows = spans.map((_, t) => row(place, t));
      const values = rows.map((values) => picked(values, kind));
      const largest = Math.max(...values.map(Math.abs));
      spans.forEach((span, t) => {
        tint(span, values[t], largest);
        const parts = spec.degrees.map((name, k) => `${name} ${Page.signed(rows[t][k])}`);
        const sums = [`polynomial ${Page.signed(total(rows[t]))}`, `block itself ${Page.signed(rows[t][count])}`];
        span.title = [`${spec.tokens[t]} → ${spec.targets[t]}`, ...parts, ...sums].join("\n");
        span.setAttribute("aria-pressed", String(t === token));
        span.tabIndex = t === token ? 0 : -1;
      });
      viewer.querySelector(".largest").textContent = `colours reach ±${Page.number(largest)}`;
    };
    const choose = (t) => { token = Math.max(0, Math.min(spans.length - 1, t)); show(); table(); };
    spans.forEach((span, t) => {
      span.addEventListener("click", () => choose(t));
      span.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        choose(t + step);
        spans[token].focus();
      });
    });
    block.addEventListener("change", show);
    degrees.addEventListener("change", show);
    choose(token);
  }
});
