import { h, fill } from "./dom.js";
import { ask } from "./live.js";
import { usdg, price, percent, span, short, count } from "./format.js";
import { line } from "./chart.js";

// What the valuation service says of an asset and of a pool. The rest of the page does without it.

const { valuation } = document.documentElement.dataset;

const hour = (t) => new Date(t * 1000).toISOString().slice(5, 16).replace("T", " ");

// part is a section that is there once the service has answered, or says why not.
function part(label, paths, signal, draw) {
  if (!valuation) return null;
  const node = h("section.worth", { "aria-label": label }, h("h3", null, label), h("p.empty", null, "Asking…"));
  Promise.all(paths.map((path) => ask(valuation + path, { signal }))).then((answers) => fill(node, h("h3", null, label), draw(...answers))).catch((err) => {
    if (err.name !== "AbortError") fill(node, h("h3", null, label), h("p.empty", null, err.code ? err.message : "The valuation service does not answer."));
  });
  return node;
}

// assetView is an asset's price line and, of a meme token, its facts.
export function assetView(asset, signal) {
  return h("article.asset", null,
    h("header", null, h("h2", null, asset.symbol || short(asset.token)), h("p.dim", null, asset.name)),
    part("Price", [`/assets/${asset.token}/prices`], signal, ({ prices }) =>
      line(prices.map((p) => ({ t: p.at, v: Number(p.priceUSDG) })), { label: "USDG, 7 days", text: (v) => price(v), at: hour })),
    asset.lane === "MEME" && part("Facts", [`/assets/${asset.token}/facts`], signal, facts));
}

function facts(f) {
  const bps = (n) => (n === null ? null : percent(n));
  const dollars = (raw) => (raw === null ? null : usdg(raw) + " USDG");
  const said = (b) => (b === null || b === undefined ? null : b ? "yes" : "no");
  const rows = [
    ["Market cap", dollars(f.marketCapUSDG)], ["its median, 7 days", dollars(f.marketCapMedian7dUSDG)], ["Below its highest", bps(f.drawdown7dBps)],
    ["Age of the pool", f.ageSeconds === null ? null : span(f.ageSeconds)], ["Depth to ±2 %", dollars(f.depthUSDG)], ["Volume, 24 h", dollars(f.volume24hUSDG)],
    ["Locked liquidity", bps(f.lockedBps)], ["Holders", f.holders === null ? null : count(f.holders)], ["The ten largest", bps(f.topTenBps)], ["The creator", bps(f.creatorBps)],
    ["Can be sold again", said(f.checks?.sellable)], ["Somebody can mint", said(f.checks?.mint)], ["pause", said(f.checks?.pause)], ["freeze", said(f.checks?.blacklist)],
    ["replace its code", said(f.checks?.proxy)], ["Has an owner", said(f.checks?.owner)],
  ];
  return [
    h("p", { "data-eligible": String(f.eligible) }, h("b", null, f.eligible ? "Eligible" : "Not eligible"), h("span.dim", null, ": " + f.listingNote)),
    h("dl.terms", null, rows.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value ?? h("span.dim", null, "unknown"))))),
  ];
}

const suggestedTerm = 604800;

// rangeView draws the range that is suggested for a pool over how its liquidity lies.
export function rangeView(id, signal) {
  return part("Suggested range, 7 days", [`/range/suggest?pool=${id}&term=${suggestedTerm}`, `/pools/${id}/liquidity`], signal, ({ recommended: r, feeEstimateBps, basis }, { segments, tick }) => {
    const width = r.tickUpper - r.tickLower;
    const low = r.tickLower - width, high = r.tickUpper + width;
    const points = segments.filter((s) => s.tickUpper > low && s.tickLower < high).flatMap((s) =>
      [Math.max(s.tickLower, low), Math.min(s.tickUpper, high)].map((t) => ({ t, v: Number(s.liquidity) })));
    const at = (tick) => "at " + price(1.0001 ** tick);
    const text = (v) => (v < 1e15 ? v.toLocaleString("en-US", { notation: "compact", maximumSignificantDigits: 4 }) : v.toExponential(3));
    const home = points.findLastIndex((p) => p.t <= tick);
    return [
      h("p", null, h("b", null, `${r.tickLower} to ${r.tickUpper}`), h("span.dim", null,
        ` around ${basis.referenceTick}: in range for ${percent(basis.timeInRangeBps)} of the time${feeEstimateBps === null ? "" : `, ${percent(feeEstimateBps)} of fees`}`)),
      line(points, { label: "Liquidity by price", text, at, band: [r.tickLower, r.tickUpper], home: home < 0 ? points.length - 1 : home }),
    ];
  });
}
