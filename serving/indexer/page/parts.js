import { h } from "./dom.js";
import { amount, short, exact } from "./format.js";

// What several views show alike.

export const tile = (label, value, unit, note) => h("div.tile", null,
  h("span.label", null, label), h("span.value", null, value, unit && h("small", null, " " + unit)), note && h("span.note", null, note));

export const laneTag = (lane) => h("span.lane", { "data-lane": lane }, lane[0] + lane.slice(1).toLowerCase());

export const stateTag = (state) => h("span.state", { "data-state": state }, state.toLowerCase());

export const wallet = (address) => h("a.mono", { href: `#/wallet/${address}`, title: address }, short(address));

export const tx = (hash) => (hash ? h("span.mono.dim", { title: hash }, short(hash)) : null);

export const fault = (err) => h("span.fault", null, err.status === 503 ? "The indexer cannot answer right now." : err.message);

// collateral says what stands behind a deal.
export function collateral(deal, assets) {
  const asset = assets.get(deal.token);
  if (deal.kind === "AMMV4_POSITION") return h("span.what", null, "Position ", h("b", null, "#" + deal.amountOrTokenId));
  if (!asset) return h("span.what", null, h("b", null, deal.amountOrTokenId), " ", h("span.mono", { title: deal.token }, short(deal.token)));
  return h("span.what", { title: `${exact(deal.amountOrTokenId, asset.decimals)} ${asset.name}` }, h("b", null, amount(deal.amountOrTokenId, asset.decimals, 4)), " ", asset.symbol);
}

// table makes a table of rows of cells; a heading that begins with # is of numbers.
export function table(label, headings, rows, none) {
  if (rows.length === 0) return none ? h("p.empty", null, none) : null;
  const num = headings.map((t) => t.startsWith("#"));
  return h("table", { "aria-label": label },
    h("thead", null, h("tr", null, headings.map((t, i) => h(num[i] ? "th.num" : "th", { scope: "col" }, t.replace("#", ""))))),
    h("tbody", null, rows.map((cells) => h("tr", null, cells.map((c, i) => h(num[i] ? "td.num" : "td", { "data-label": headings[i].replace("#", "") }, c))))));
}

export const section = (title, ...children) => h("section.panel", { "aria-label": title }, h("h2", null, title), children);
