"use strict";
(async () => {
  const byId = (id) => document.getElementById(id);
  const figures = JSON.parse(byId("figures").textContent);
  const DASHES = figures.dashes, SYMBOLS = figures.symbols;

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  // Names are text; plotly would read tags and formulas in them.
  const safe = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\$/g, "&#36;");

  // Lines of at most so many signs: broken at spaces, long names behind their signs, and only what is still too long anywhere.
  function wrapped(text, width) {
    const lines = [""];
    const put = (part, space) => {
      const last = lines[lines.length - 1] + (lines[lines.length - 1] && space);
      if ((last + part).length <= width) return void (lines[lines.length - 1] = last + part);
      for (; part.length > width; part = part.slice(width - 1)) lines.push(part.slice(0, width - 1) + "-");
      lines.push(part);
    };
    for (const word of String(text).split(" ")) {
      if (word.length <= width) put(word, " ");
      else word.split(/(?<=[+=_])/).forEach((part, n) => put(part, n ? "" : " "));
    }
    return lines.filter(Boolean).map(safe).join("<br>");
  }

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    return {
      ink: value("--ink"), soft: value("--soft"), grid: value("--grid"), line: value("--faint"), card: value("--card"),
      faint: value("--faint"), series: value("--series").split(/\s+/),
    };
  }

  const colour = (series, t) => (series.faint ? t.faint : series.colour === null ? t.ink : t.series[series.colour % t.series.length]);
  const turn = (series, t, list) => list[Math.floor((series.colour || 0) / t.series.length) % list.length];
  const clear = (hex, part) => `rgba(${[1, 3, 5].map((n) => parseInt(hex.slice(n, n + 2), 16)).join(",")},${part})`;

  function axis(spec, t, names) {
    const found = {
      title: { text: safe(spec.title), font: { size: 12, color: t.soft }, standoff: 8 }, automargin: true, fixedrange: true,
      gridcolor: t.grid, linecolor: t.line, zerolinecolor: t.line, tickfont: { size: 11, color: t.soft }, ticks: "", zeroline: false,
    };
    if (spec.share) found.range = [0, 1.02];
    if (spec.zero) found.rangemode = "tozero";
    if (spec.hidden) Object.assign(found, { visible: false });
    if (names) {
      Object.assign(found, {
        tickmode: "array", tickvals: names.map((_, n) => n), ticktext: names, showgrid: false, range: [-0.6, names.length - 0.4],
      });
    }
    return found;
  }

  // A logarithmic axis with numbers at 1, 2 and 5, as far apart as there is room.
  function logarithmic(found, values, room) {
    const low = Math.log10(Math.min(...values)) - 0.15, high = Math.log10(Math.max(...values)) + 0.15;
    let ticks = [];
    for (const steps of [[1, 2, 5], [1, 3], [1]]) {
      ticks = [];
      for (let power = Math.floor(low); power <= high; power++) ticks.push(...steps.map((step) => step * 10 ** power));
      ticks = ticks.filter((v) => Math.log10(v) >= low && Math.log10(v) <= high);
      if (ticks.length <= room) break;
    }
    if (ticks.length < 2) ticks = [...new Set(values.map((v) => +v.toPrecision(3)))].slice(0, room);
    Object.assign(found, { type: "log", range: [low, high], tickmode: "array", tickvals: ticks, ticktext: ticks.map((v) => (+v.toPrecision(3)).toLocaleString("en")) });
  }

  function traces(series, panel, t) {
    const place = (list, names) => (names.length ? list.map((v) => names.indexOf(v)) : list);
    const main = colour(series, t), name = safe(series.name);
    const across = panel.x.categories;
    let x = place(series.x, across), y = series.y;
    const texts = series.x.map((v) => safe(typeof v === "number" ? +v.toPrecision(4) : v));
    const base = { name, customdata: texts, showlegend: false, hoverlabel: { namelength: -1 } };
    if (panel.sideways) [x, y] = [y, x];
    const shown = panel.sideways ? "%{x:.4f}" : "%{y:.4f}";
    base.hovertemplate = panel.sideways ? `%{customdata}<br>${name}: ${shown}<extra></extra>` : `${name}<br>%{customdata}: ${shown}<extra></extra>`;
    const middle = panel.sideways ? x : y;
    const bars = !series.low.length ? null : {
      type: "data", symmetric: false, color: t.ink, thickness: 1, width: 3,
      array: series.high.map((v, n) => (v === null ? NaN : v - middle[n])), arrayminus: series.low.map((v, n) => (v === null ? NaN : middle[n] - v)),
    };
    if (series.kind === "bar") {
      const marker = { color: main };
      if (series.marked.some(Boolean)) {
        marker.pattern = { shape: series.marked.map((v) => (v ? "/" : "")), fgcolor: main, bgcolor: clear(main, 0.12), size: 6, solidity: 0.45, fillmode: "replace" };
        marker.line = { color: main, width: 1 };
      }
      const bar = { ...base, type: "bar", x, y, orientation: panel.sideways ? "h" : "v", marker };
      if (bars) bar[panel.sideways ? "error_x" : "error_y"] = bars;
      return [bar];
    }
    if (series.kind === "point") {
      const many = x.length > 40;
      const marker = { color: main, size: many ? (series.faint ? 4 : 6) : 10, symbol: series.colour === null && !series.faint ? "diamond-open" : turn(series, t, SYMBOLS), line: { width: series.colour === null && !series.faint ? 2 : 0 } };
      const point = { ...base, type: "scatter", mode: "markers", x, y, marker, opacity: series.faint ? 0.7 : 1 };
      if (panel.x.hidden) point.hoverinfo = "name", point.hovertemplate = `${name}<extra></extra>`;
      return [point];
    }
    const found = [];
    if (series.low.length) {
      const edge = { type: "scatter", mode: "lines", x, line: { width: 0 }, hoverinfo: "skip", showlegend: false, name };
      found.push({ ...edge, y: series.low }, { ...edge, y: series.high, fill: "tonexty", fillcolor: clear(main, 0.16) });
    }
    const few = series.kind === "line" && x.length <= 25;
    found.push({
      ...base, type: "scatter", mode: few ? "lines+markers" : "lines", x, y, connectgaps: true,
      line: { color: main, width: 2, dash: turn(series, t, DASHES), shape: series.kind === "step" ? "vh" : "linear" },
      marker: { size: 6, color: main, symbol: turn(series, t, SYMBOLS) },
    });
    return found;
  }

  function level(series, t) {
    return {
      type: "line", xref: "paper", x0: 0, x1: 1, y0: series.y[0], y1: series.y[0],
      line: { color: colour(series, t), width: 2, dash: "dash" },
    };
  }

  function draw(box, panel, hidden, t, width) {
    const narrow = (width || box.clientWidth) < 420;
    const series = panel.series.filter((one) => !hidden.has(one.name));
    const levels = series.filter((one) => one.kind === "level");
    const names = panel.x.categories.map((name) => wrapped(name, panel.sideways ? (narrow ? 16 : 26) : narrow ? 9 : 14));
    let xaxis = axis(panel.x, t, names.length ? names : null), yaxis = axis(panel.y, t, null);
    if (panel.sideways) {
      [xaxis, yaxis] = [yaxis, xaxis];
      xaxis.title.text = "";
      yaxis.range = [names.length - 0.4, -0.6];
      yaxis.tickfont = { size: 12, color: t.ink };
    }
    const points = panel.series.flatMap((one) => one.x);
    if (panel.x.log && points.length) logarithmic(xaxis, points, narrow ? 5 : 9);
    const heights = panel.series.flatMap((one) => one.y).filter((v) => v !== null);
    const least = Math.min(...heights), most = Math.max(...heights);
    if (most - least < 1e-9 && !panel.y.zero && !panel.y.share) yaxis.range = [least - 0.1, most + 0.1];
    const inside = levels.map((one) => one.y[0]);
    const data = series.filter((one) => one.kind !== "level").flatMap((one) => traces(one, panel, t));
    if (inside.length) data.push({ type: "scatter", mode: "markers", x: series.find((one) => one.x.length)?.x.slice(0, 1).flatMap((v) => inside.map(() => v)) || inside, y: inside, marker: { opacity: 0 }, hoverinfo: "skip", showlegend: false });
    const lines = Math.max(1, ...names.map((name) => name.split("<br>").length));
    const height = panel.sideways ? 44 + Math.max(34, 6 + 16 * lines) * names.length : panel.x.hidden ? 300 : 320;
    const layout = {
      height, margin: { l: 8, r: 14, t: 12, b: 8 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, color: t.ink, size: 12 }, xaxis, yaxis, dragmode: false,
      hovermode: "closest", bargap: panel.sideways || panel.series.length > 1 ? 0.3 : 0.5, bargroupgap: 0.06, shapes: levels.map((one) => level(one, t)), showlegend: false,
      hoverlabel: { bgcolor: t.card, bordercolor: t.line, font: { color: t.ink } },
    };
    if (width) layout.width = width;
    return Plotly.react(box, data, layout, { displayModeBar: false, responsive: true, showTips: false, doubleClick: false });
  }

  function key(series, t) {
    const c = colour(series, t), dash = { solid: "", dash: "6 3", dot: "2 2", dashdot: "6 2 2 2" }[turn(series, t, DASHES)];
    if (series.kind === "bar") {
      const lighter = series.marked.some(Boolean) && series.marked.every(Boolean);
      return `<rect x="2" y="2" width="14" height="10" rx="1" fill="${c}" ${lighter ? 'opacity="0.6"' : ""}/>`;
    }
    if (series.kind === "point") {
      const shape = turn(series, t, SYMBOLS);
      if (!series.faint && shape === "square") return `<rect x="5" y="3" width="8" height="8" fill="${c}"/>`;
      if (!series.faint && shape === "diamond") return `<path d="M9 2l5 5-5 5-5-5z" fill="${c}"/>`;
      if (!series.faint && shape === "triangle-up") return `<path d="M9 2.5l5 8.5h-10z" fill="${c}"/>`;
      return series.colour === null && !series.faint ? `<path d="M9 2l5 5-5 5-5-5z" fill="none" stroke="${c}" stroke-width="2"/>` : `<circle cx="9" cy="7" r="4.5" fill="${c}"/>`;
    }
    return `<line x1="0" x2="18" y1="7" y2="7" stroke="${c}" stroke-width="2.5" stroke-dasharray="${series.kind === "level" ? "5 3" : dash}"/>`;
  }

  const hidden = new Map();
  async function drawAll(width) {
    const t = theme();
    const all = [];
    for (const figure of document.querySelectorAll("figure[data-figure]")) {
      const spec = figures.all[Number(figure.dataset.figure)];
      const off = hidden.get(figure) || new Set();
      figure.querySelectorAll(".plot").forEach((box, n) => all.push(draw(box, spec.panels[n], off, t, width)));
      figure.querySelectorAll(".legend svg").forEach((mark, n) => (mark.innerHTML = key(spec.legend[n], t)));
    }
    await Promise.all(all);
  }

  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const figure = button.closest("figure"), off = hidden.get(figure) || new Set();
      const name = figures.all[Number(figure.dataset.figure)].legend[Number(button.dataset.series)].name;
      off.has(name) ? off.delete(name) : off.add(name);
      hidden.set(figure, off);
      button.setAttribute("aria-pressed", String(!off.has(name)));
      drawAll();
    });
  }

  if (!figures.all.length) return void (document.documentElement.dataset.drawn = "yes");
  const script = document.createElement("script");
  try {
    script.textContent = await unpack(byId("plotly").textContent);
  } catch (error) {
    document.querySelectorAll(".plot > p").forEach((p) => (p.textContent = "This browser is too old to draw the figure; its numbers are below."));
    return;
  }
  document.head.append(script);
  document.querySelectorAll(".plot > p").forEach((p) => p.remove());
  await drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll());
  addEventListener("beforeprint", () => drawAll(640));
  addEventListener("afterprint", () => drawAll());
  document.documentElement.dataset.drawn = "yes";
})();
