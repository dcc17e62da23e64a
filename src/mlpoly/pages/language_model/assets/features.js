"use strict";

// Tokens can be any text: it is set as text, never as HTML.
const Tokens = {
  made: (tag, text, cls) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (cls) node.className = cls;
    return node;
  },
  marked: (text) => text.replace(/^ +| +$/g, (blanks) => "␣".repeat(blanks.length)), // on a chip of its own
  tint: (node, value, largest) => {
    const strength = Math.round(70 * Math.min(Math.abs(value) / (largest || 1), 1));
    const colour = value > 0 ? "var(--positive)" : "var(--negative)";
    node.style.background = `color-mix(in srgb, ${colour} ${strength}%, transparent)`;
  },
};

// A dashboard: the search and the menus choose features, and their cards are made as they are needed.
addEventListener("DOMContentLoaded", () => {
  const { made, marked, tint } = Tokens;
  const some = 10; // cards at a time
  const few = 5; // contexts of a side that are shown first
  const percent = (value) => `${Page.number(100 * value, 2)}\u202f%`;
  const fixed = (value) => (value === null ? "–" : value.toFixed(2).replace(/^-0\.00$/, "0.00").replace("-", "−"));
  const svg = (tag, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, value));
    return node;
  };

  for (const viewer of document.querySelectorAll("[data-dashboard]")) {
    const spec = Page.data(viewer.dataset.dashboard);
    const search = viewer.querySelector("input");
    const [block, kind, order] = viewer.querySelectorAll("select");
    const space = viewer.querySelector(".features"), more = viewer.querySelector(".more");
    if (spec.kinds.length < 2) kind.parentElement.hidden = true;
    if (spec.blocks.length < 2) block.parentElement.hidden = true;
    let chosen = [], words = "";

    // What is searched: names, contexts as running text, and the tokens whose logits move.
    const written = ([, ids]) => ids.map((i) => spec.texts[i]).join("").toLowerCase();
    const has = (text) => words !== "" && text.includes(words);
    const hay = spec.features.map((f) => {
      let text;
      return () => {
        text ??= [f.name, spec.blocks[f.block], ...[...f.positive, ...f.negative].map(written),
          ...[...f.raises, ...f.lowers].map(([i]) => spec.texts[i].toLowerCase())].join("\n");
        return text;
      };
    });

    const histogram = (f) => {
      const n = f.histogram.length, most = Math.max(...f.histogram, 1);
      const drawing = svg("svg", { viewBox: `0 0 ${n} 20`, preserveAspectRatio: "none", class: "histogram", role: "img",
        "aria-label": "Distribution of the values on the text, heights as square roots" });
      f.histogram.forEach((v, i) => {
        const height = v ? Math.max(0.5, 20 * Math.sqrt(v / most)) : 0;
        const value = ((i + 0.5) / n) * 16 - 8;
        const side = Math.abs(value) < 2 ? "grey" : value > 0 ? "positive" : "negative";
        drawing.append(svg("rect", { x: i, y: 20 - height, width: 0.9, height, fill: `var(--${side})` }));
      });
      const axis = made("p", undefined, "axis");
      axis.append(...["−8", "0", "8 std. dev."].map((label) => made("span", label)));
      const whole = made("div");
      whole.append(drawing, axis);
      return whole;
    };

    const pieces = (title, tokens, cls) => {
      const list = made("ul", undefined, "pieces");
      tokens.forEach(([i, score]) => {
        const item = made("li", marked(spec.texts[i]), has(spec.texts[i].toLowerCase()) ? "hit" : "");
        item.title = `score ${Page.signed(score)}`;
        list.append(item);
      });
      if (!tokens.length) list.append(made("li", "no direct path to the logits"));
      return [made("h4", title, cls), list];
    };

    const side = (title, contexts, largest) => {
      const list = made("ol", undefined, "contexts");
      const ordered = [...contexts].sort((a, b) => has(written(b)) - has(written(a))); // found ones first
      const lines = ordered.map((context) => {
        const [peak, ids, values] = context;
        const line = made("li", undefined, has(written(context)) ? "hit" : "");
        const text = made("span", undefined, "text");
        ids.forEach((id, i) => {
          const span = made("span", spec.texts[id], i === peak ? "peak" : "");
          span.title = Page.signed(values[i] / 100);
          tint(span, values[i] * Math.abs(values[i]), largest ** 2); // as the square, so that peaks stand out
          text.append(span);
        });
        line.append(made("span", Page.signed(values[peak] / 100), "value"), text);
        return line;
      });
      list.append(...lines.slice(0, few));
      const parts = [made("h4", title), list];
      if (lines.length > few) {
        const button = made("button", `${lines.length - few} more`, "more");
        button.type = "button";
        button.setAttribute("aria-label", `${lines.length - few} more contexts: ${title}`);
        button.addEventListener("click", () => {
          list.append(...lines.slice(few));
          button.remove();
        });
        parts.push(button);
      }
      return parts;
    };

    const scores = (f) => {
      const control = spec.control[f.block], beside = control.length > 0;
      const line = (tag, ...cells) => {
        const row = made("tr");
        row.append(...cells.map((text, i) => made(i ? tag : "th", text, i ? "number" : "")));
        return row;
      };
      const rows = spec.scores.map((name, i) => f.scores[i] === null ? null
        : line("td", name, ...[f.scores[i], f.slopes[i], ...(beside ? [control[i]] : [])].map(fixed))).filter(Boolean);
      if (!rows.length) return [];
      const table = made("table", undefined, "scores"), top = made("thead"), body = made("tbody");
      top.append(line("th", "Predicted", "corr.", "slope", ...(beside ? ["random"] : [])));
      body.append(...rows);
      table.append(top, body);
      return [table];
    };

    const card = (f) => {
      const whole = made("article", undefined, "feature");
      const title = made("h3", f.name);
      title.append(made("small", spec.blocks[f.block]));
      const about = made("p", undefined, "about");
      const part = f.explained > 0 ? percent(f.explained) : "none";
      about.append("Beyond two standard deviations at ", made("strong", percent(f.active)), " of the tokens; enters ",
        f.squared ? "as its square" : "linearly", "; explains ", made("strong", part), " of the block’s variance");
      const left = made("div"), right = made("div");
      const peaks = [...f.positive, ...f.negative].map(([, , values]) => Math.max(...values.map(Math.abs)));
      const largest = Math.max(...peaks, 1);
      const moved = ["raises", "lowers"].map((way) => {
        const part = made("div");
        part.append(...pieces(way, f[way], way));
        return part;
      });
      const logits = made("div", undefined, "logits");
      logits.append(...moved);
      left.append(histogram(f), ...scores(f));
      right.append(...side("largest values", f.positive, largest), ...side("smallest values", f.negative, largest), logits);
      whole.append(title, about, left, right);
      return whole;
    };

    const add = () => {
      const shown = space.children.length;
      space.append(...chosen.slice(shown, shown + some).map((i) => card(spec.features[i])));
      const left = chosen.length - space.children.length;
      more.hidden = left <= 0;
      more.textContent = `Show ${Math.min(left, some)} more of ${left}`;
    };
    const show = () => {
      words = search.value.trim() ? search.value.toLowerCase() : "";
      const place = Number(block.value) - 1, sort = Number(order.value);
      const offered = spec.features.map((_, i) => i).filter((i) => spec.features[i].kind === Number(kind.value)
        && (place < 0 || spec.features[i].block === place));
      chosen = offered.filter((i) => !words || has(hay[i]()));
      const key = (i) => (sort === 1 ? spec.features[i].explained : spec.features[i].scores[sort - 2]) ?? -Infinity;
      if (sort) chosen.sort((a, b) => key(b) - key(a) || a - b);
      const count = `${offered.length} feature${offered.length === 1 ? "" : "s"}`;
      viewer.querySelector(".found").textContent = words ? `${chosen.length} of ${count} found` : count;
      space.replaceChildren();
      add();
    };
    search.addEventListener("input", show);
    [block, kind, order].forEach((menu) => menu.addEventListener("change", show));
    more.addEventListener("click", () => {
      const next = space.children.length;
      add();
      space.children[next].tabIndex = -1; // the keyboard goes on where the new cards begin
      space.children[next].focus({ preventScroll: true });
    });
    show();
  }
});
