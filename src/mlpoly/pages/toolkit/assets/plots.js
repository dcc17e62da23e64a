"use strict";

// Plots with several views. Python wrote traces and layouts; colours, margins and legends follow the window and the theme.
const Plots = (() => {
  const narrow = 620; // pixels, below which the legend goes under the plot

  const isPlain = (value) => value && typeof value === "object" && !Array.isArray(value);
  const merge = (...layers) => layers.reduce((sum, layer) => {
    for (const [key, value] of Object.entries(layer || {})) {
      sum[key] = isPlain(value) ? merge(isPlain(sum[key]) ? sum[key] : {}, value) : value;
    }
    return sum;
  }, {});

  // "var(--blue)" becomes the colour that the theme has for it now.
  const coloured = (value) => {
    if (typeof value === "string") return value.replace(/^var\((--[\w-]+)\)$/, (_, name) => Page.colour(name));
    if (Array.isArray(value)) return value.map(coloured);
    if (!isPlain(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, coloured(inner)]));
  };

  const base = () => {
    const sans = Page.colour("--sans");
    const axis = {
      gridcolor: "var(--grid)", zerolinecolor: "var(--grid)", linecolor: "var(--line)", zeroline: false,
      tickfont: { size: 12 }, title: { font: { size: 13 }, standoff: 8 }, automargin: true, ticks: "",
    };
    return {
      font: { family: sans, size: 13, color: "var(--muted)" },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { bgcolor: "var(--card)", bordercolor: "var(--faint)", align: "left", font: { family: sans, color: "var(--ink)", size: 13 } },
      hovermode: "closest", dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      xaxis: { ...axis, showgrid: false, showline: true, ticks: "outside", ticklen: 4, tickcolor: "var(--line)" },
      yaxis: { ...axis, tickformat: "~g" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "var(--faint)", activecolor: "var(--ink)" },
      legend: { font: { color: "var(--ink)", size: 12.5 }, bgcolor: "rgba(0,0,0,0)", tracegroupgap: 0 },
    };
  };

  const fitted = (layout, width, decades) => {
    const small = width < narrow;
    const legend = small
      ? { orientation: "h", x: 0, xanchor: "left", y: -0.2, yanchor: "top" }
      : { orientation: "v", x: 1.02, xanchor: "left", y: 1, yanchor: "top" };
    const margin = small ? { l: 36, r: 10, t: 38, b: 44 } : { l: 44, r: 10, t: 40, b: 46 };
    const room = merge({ legend, margin, width, height: layout.height }, layout);
    if (room.yaxis.type === "log" && decades > 4) { // no room for 0.02 and 0.05 between the powers of ten
      Object.assign(room.yaxis, { dtick: 1, tickformat: "", exponentformat: "power" });
    }
    else if (room.yaxis.type === "log" && decades > 1) room.yaxis.dtick = "D2"; // 1, 2 and 5
    const ticks = room.xaxis.ticktext;
    if (ticks && !room.xaxis.tickangle && width / ticks.length < 52) { // step 0 keeps its label, of the others every second one does
      room.xaxis.ticktext = ticks.map((text, i) => (i === 0 || i % 2 === 1 ? text : ""));
    }
    // The name of the vertical axis stands above it, where it can be read without turning the head.
    room.title = {
      text: room.yaxis.title.text, x: 0, xref: "container", xanchor: "left", y: 1, yref: "container", yanchor: "top",
      pad: { t: 6 }, font: { size: 13, color: "var(--ink)" },
    };
    room.yaxis.title = { text: "" };
    return room;
  };

  const options = {
    displaylogo: false, showSendToCloud: false, responsive: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d", "pan2d"],
    toImageButtonOptions: { format: "svg" },
  };

  const start = (block) => {
    const spec = Page.data(block.dataset.plot);
    for (const trace of spec.traces.filter((t) => t.type === "heatmap")) { // names of every cell, for the pointer
      trace.customdata = trace.names.rows.map((row) => trace.names.columns.map((column) => [row, column]));
      delete trace.names;
    }
    const space = block.querySelector(".space");
    const height = parseInt(space.style.height, 10);
    const groups = [...block.querySelectorAll("fieldset")];
    let width = 0;

    const view = () => {
      const wanted = groups.map((group) => Number(group.querySelector("input:checked").value));
      // A group with a single option has no buttons, and every view has its place 0 there.
      const places = spec.views[0].choice.map((_, i) => document.getElementsByName(`${block.id}-${i}`).length > 0);
      const match = (v) => v.choice.filter((_, i) => places[i]).every((option, i) => option === wanted[i]);
      return spec.views.find(match) || spec.views[0];
    };
    const show = () => {
      const current = view();
      width = space.clientWidth;
      const traces = current.traces.map((i) => spec.traces[i]);
      const named = traces.filter((trace) => trace.showlegend !== false).length;
      const below = width < narrow ? named : 0; // lines of a legend under the plot
      const heights = traces.flatMap((trace) => trace.y).filter((y) => y > 0);
      const decades = Math.log10(Math.max(...heights) / Math.min(...heights));
      const layout = fitted(merge(base(), { height: height + 21 * below, uirevision: current.choice.join() }, current.layout), width, decades);
      space.style.height = `${layout.height}px`;
      Plotly.react(space, coloured(traces), coloured(layout), options);
    };

    groups.forEach((group) => group.addEventListener("change", show));
    new ResizeObserver(() => { if (space.clientWidth && space.clientWidth !== width) show(); }).observe(space);
    show();
    return show;
  };

  const all = [...document.querySelectorAll("[data-plot]")].map(start);
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(query).addEventListener("change", () => all.forEach((show) => show()));
  }
  return { all };
})();
