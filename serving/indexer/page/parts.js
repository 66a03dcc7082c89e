import { h } from "./dom.js";
import { amount, count, short, exact } from "./format.js";

// What several views show alike.

export const tile = (label, value, unit, note) => h("div.tile", null,
  h("span.label", null, label), h("span.value", null, value, unit && h("small", null, " " + unit)), note && h("span.note", null, note));

export const laneTag = (lane) => h("span.lane", { "data-lane": lane }, lane[0] + lane.slice(1).toLowerCase());

export const stateTag = (state) => h("span.state", { "data-state": state }, state.toLowerCase());

export const wallet = (address) => h("a.mono", { href: `#/wallet/${address}`, title: address }, short(address));

const explorer = document.documentElement.dataset.explorer;

// tx is a transaction: a link to the explorer where one is configured, and a button to copy it.
export const tx = (hash) => (hash ? h("span.ref", null, explorer
  ? h("a.mono.dim", { href: `${explorer}/tx/${hash}`, title: hash, target: "_blank", rel: "noreferrer" }, short(hash))
  : h("span.mono.dim", { title: hash }, short(hash)), copy(hash, "transaction")) : null);

// copy is a button that copies a text.
export const copy = (text, what) => h("button.copy", {
  type: "button", "aria-label": `Copy the ${what}`, title: "Copy",
  onclick: async (e) => {
    const button = e.currentTarget;
    try {
      await navigator.clipboard.writeText(text);
      button.dataset.done = "yes";
    } catch {
      button.dataset.done = "no"; // the browser does not allow it here
    }
    setTimeout(() => delete button.dataset.done, 1500);
  },
});

// onExplorer is a link to an address, where an explorer is configured.
export const onExplorer = (address) => (explorer ? h("a.dim", { href: `${explorer}/address/${address}`, target: "_blank", rel: "noreferrer" }, "explorer") : null);

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

// more says of a list of which so many are shown that it goes on, and where all of it is.
export const more = (shown, path) => h("p.more.dim", null, `${count(shown)} are shown; `, h("a", { href: path }, "all of them"), " come in pages, as JSON.");
