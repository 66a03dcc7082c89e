import { h, fill } from "./dom.js";

// line draws points {t, v} as a line over a soft area, with a readout that follows the pointer or the arrow
// keys, and else stays at the point of home. Marks are horizontal lines {v, label}, a band is a range of t.
export function line(points, { label, text, at, marks = [], band = null, home = points.length - 1 }) {
  if (points.length === 0) return h("p.empty", null, "No price yet.");
  const width = 600, height = 160, pad = 6;
  const values = points.map((p) => p.v);
  let low = Math.min(...values), high = Math.max(...values);
  // A mark far off would flatten the line: then it is in words alone.
  const near = marks.filter((m) => m.v >= low - (high - low) && m.v <= high + (high - low));
  low = Math.min(low, ...near.map((m) => m.v));
  high = Math.max(high, ...near.map((m) => m.v));
  const range = [text(low), text(high)];
  if (high === low) { high += Math.abs(high) * 0.01 || 1; low -= Math.abs(low) * 0.01 || 1; }
  const first = points[0].t, last = points.at(-1).t;
  const x = (t) => (last === first ? 0 : ((t - first) / (last - first)) * width);
  const y = (v) => pad + (1 - (v - low) / (high - low)) * (height - 2 * pad);
  const d = points.map((p, i) => (i ? "L" : "M") + x(p.t).toFixed(1) + " " + y(p.v).toFixed(1)).join("") + (points.length === 1 ? `H${width}` : "");

  const rule = h("line.rule", { y1: 0, y2: height, hidden: true });
  const dot = h("circle.point", { r: 3.5 });
  const readout = h("output.readout");
  const svg = h("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    h("path.area", { d: `${d}L${width} ${height}L0 ${height}Z` }),
    band && h("rect.band", { x: Math.max(x(band[0]), 0), y: 0, width: Math.max(Math.min(x(band[1]), width) - Math.max(x(band[0]), 0), 0), height }),
    near.map((m) => h("line.mark", { x1: 0, x2: width, y1: y(m.v), y2: y(m.v) })),
    h("path.line", { d }), rule);
  const show = (i) => {
    const p = points[i];
    fill(readout, h("b", null, text(p.v)), " ", h("span", null, at(p.t)));
    for (const k of ["x1", "x2"]) rule.setAttribute(k, x(p.t));
    rule.toggleAttribute("hidden", i === points.length - 1);
    chosen = i;
  };
  let chosen = home;
  const nearest = (px) => {
    const t = first + px * (last - first);
    return points.reduce((best, p, i) => (Math.abs(p.t - t) < Math.abs(points[best].t - t) ? i : best), 0);
  };
  const box = h("div.plot", {
    tabindex: 0, role: "img", "aria-label": `${label}: from ${text(points[0].v)} to ${text(points.at(-1).v)}, between ${range[0]} and ${range[1]}`,
    onpointermove: (e) => { const r = box.getBoundingClientRect(); show(nearest((e.clientX - r.left) / r.width)); },
    onpointerleave: () => show(home),
    onkeydown: (e) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (!step) return;
      e.preventDefault();
      show(Math.min(Math.max(chosen + step, 0), points.length - 1));
    },
  }, svg);
  show(chosen);
  return h("figure.chart", null,
    h("figcaption", null, h("span", null, label), readout), box,
    h("div.axis", null, h("span", null, at(first)), h("span", null, range.join(" – ")), h("span", null, at(last))),
    marks.map((m) => h("p.legend", null, near.includes(m) && h("span.dash"), `${m.label} ${text(m.v)}`)));
}

// bar is a part of a whole. It says in words what it shows.
export function bar(part, whole, label) {
  const share = whole > 0n ? Number((part * 1000n) / whole) / 10 : 0;
  return h("div.bar", { role: "img", "aria-label": `${label}: ${share} %` },
    h("svg", { viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" }, h("rect", { width: Math.min(share, 100), height: 1 })));
}

// curve draws what a drip unlocks over its time, and where it is now.
export function curve(drip, now) {
  const total = Number(BigInt(drip.total)) || 1;
  const points = drip.curve;
  const end = Math.max(points.at(-1).t, drip.start + 1);
  const x = (t) => Math.min(Math.max(((t - drip.start) / (end - drip.start)) * 100, 0), 100);
  const y = (n) => 30 - (Number(BigInt(n)) / total) * 28;
  // Nothing is unlocked before the cliff, the corner after the start where not yet all is.
  const cliff = points.length > 2 && points[1].unlocked !== drip.total ? points[1] : null;
  let d = "M0 30";
  for (const p of points) d += (p === cliff ? `H${x(p.t)}V` : `L${x(p.t)} `) + y(p.unlocked);
  return h("svg.curve", { viewBox: "0 0 100 32", preserveAspectRatio: "none", role: "img", "aria-label": `unlocks until ${new Date(end * 1000).toISOString().slice(0, 10)}` },
    h("path.area", { d: `${d}L100 30L0 30Z` }), h("path.line", { d }),
    h("line.rule", { x1: x(now), x2: x(now), y1: 0, y2: 32 }));
}
