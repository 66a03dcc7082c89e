import { h, fill, keyed } from "./dom.js";
import { get } from "./live.js";
import { usdg, percent, costBps, days, when, count } from "./format.js";
import { collateral, laneTag, tile, fault } from "./parts.js";
import { dealView } from "./deal.js";
import { assetView } from "./asset.js";
import { historyView } from "./history.js";

// The listings with filter and sort, kept in order as the chain moves; beside them the deal that is chosen.

const sorts = { newest: "Newest", cost: "Lowest cost", cap: "Highest cap", expiry: "Expiring first" };
const lanes = ["STOCK", "ETH", "MEME", "POSITION"];
const terms = { 604800: "7 days", 1814400: "21 days" };

const byID = (a, b) => (BigInt(a.id) > BigInt(b.id) ? -1 : 1);
const compare = (x, y) => (x < y ? -1 : x > y ? 1 : 0);
const orders = {
  newest: (a, b) => compare(b.listedAt, a.listedAt) || byID(a, b),
  expiry: (a, b) => compare(a.listingExpiry || Infinity, b.listingExpiry || Infinity) || byID(a, b),
  cap: (a, b) => compare(BigInt(b.cap), BigInt(a.cap)) || byID(a, b),
  cost: (a, b) => compare(costBps(a.cap, a.minPrice), costBps(b.cap, b.minPrice)) || byID(a, b),
};

// What was chosen last stays chosen when the view is left and entered again.
const chosen = { lane: "", term: "", asset: "", sort: "newest" };

export function marketView(app, dealID) {
  const { live, assets } = app;
  let items = [], next = null, asOf = 0, loading = null;

  const body = h("tbody");
  const status = h("p.status", { role: "status" });
  const more = h("button.more", { type: "button", hidden: true, onclick: () => load(next) }, "More");
  const pick = (name, options, label) => h("label.pick", null, h("span", null, label),
    h("select", { name, onchange: (e) => { chosen[name] = e.target.value; load(); } },
      Object.entries(options).map(([value, text]) => h("option", { value, selected: chosen[name] === value }, text))));
  const laneRadio = (value, text) => h("label", null,
    h("input", { type: "radio", name: "lane", value, checked: chosen.lane === value, onchange: () => { chosen.lane = value; load(); } }), h("span", null, text));
  const byText = [...assets.values()].sort((a, b) => a.symbol.localeCompare(b.symbol));
  const filters = h("form.filters", { "aria-label": "Filter and sort", onsubmit: (e) => e.preventDefault() },
    h("fieldset.lanes", null, h("legend", null, "Lane"), laneRadio("", "All"), lanes.map((l) => laneRadio(l, l[0] + l.slice(1).toLowerCase()))),
    pick("term", { "": "Any", ...terms }, "Term"),
    h("label.pick", null, h("span", null, "Asset"), h("select", { name: "asset", onchange: (e) => { chosen.asset = e.target.value; load(); if (!dealID) beside(); } },
      h("option", { value: "" }, "Any"), byText.map((a) => h("option", { value: a.token, selected: chosen.asset === a.token }, a.symbol || a.token)))),
    pick("sort", sorts, "Order"));

  const row = (d) => h("tr", { "data-lane": d.lane, "aria-current": d.id === dealID ? "true" : null },
    h("td.id", null, h("a", { href: `#/deal/${d.id}`, "aria-label": `Deal ${d.id}` }, "#" + d.id)),
    h("td.asset", null, collateral(d, assets), laneTag(d.lane)),
    h("td.num", { "data-label": "Ask" }, usdg(d.minPrice)),
    h("td.num", { "data-label": "Cap" }, usdg(d.cap)),
    h("td.num.strong", { "data-label": "Cost" }, percent(costBps(d.cap, d.minPrice))),
    h("td.num", { "data-label": "Term" }, days(d.term)),
    h("td.num", { "data-label": "Best bid" }, d.bestBid ? [usdg(d.bestBid.price), h("span.dim", null, " ×" + d.openBidCount)] : h("span.dim", null, "—")),
    h("td.num.dim", { "data-label": "Ends", title: d.listingExpiry ? null : "open-ended" }, d.listingExpiry ? when(d.listingExpiry, live.now || d.listedAt) : "open"));
  const table = h("table.listings", { "aria-label": "Listings", onkeydown: move },
    h("thead", null, h("tr", null, [["Deal", ""], ["Collateral", ""], ["Ask", "num"], ["Cap", "num"], ["Cost", "num"], ["Term", "num"], ["Best bid", "num"], ["Ends", "num"]]
      .map(([t, c]) => h("th" + (c && "." + c), { scope: "col" }, t)))), body);
  const side = h("aside.side", { "aria-label": "Deal" });
  const tiles = h("div.tiles");
  const history = historyView(app);
  const node = h("div.market", null, tiles, history.node,
    h("div.split", null, h("section.panel.list", { "aria-label": "Listings" }, h("div.scroller", null, filters, table, status, more)), side));

  function move(e) { // arrows go from row to row
    const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[e.key];
    const at = e.target.closest("tr");
    if (!step || !at || e.ctrlKey || e.metaKey || e.altKey) return;
    const to = step > 0 ? at.nextElementSibling : at.previousElementSibling;
    if (!to) return;
    e.preventDefault();
    to.querySelector("a")?.focus();
  }

  function draw(options) {
    keyed(body, items, (d) => d.id, row, options);
    more.hidden = !next;
    table.hidden = items.length === 0;
    fill(status, items.length ? "" : next ? "No deal so far is listed that way." : "No deal is listed that way.");
  }

  async function load(cursor) {
    loading?.abort();
    const own = (loading = new AbortController());
    const q = new URLSearchParams({ limit: 50, sort: chosen.sort });
    for (const name of ["lane", "term", "asset"]) if (chosen[name]) q.set(name, chosen[name]);
    if (cursor) q.set("cursor", cursor);
    if (!items.length) {
      table.hidden = true;
      fill(status, "Loading the listings…");
    }
    try {
      const { body: page, block } = await get("/listings?" + q, AbortSignal.any([own.signal, app.signal]));
      const have = new Set(cursor ? items.map((d) => d.id) : []);
      items = (cursor ? items : []).concat(page.items.filter((d) => !have.has(d.id)));
      next = page.nextCursor;
      asOf = cursor ? Math.min(asOf, block) : block;
      draw({ mark: false });
    } catch (err) {
      if (err.name !== "AbortError") fill(status, fault(err));
    }
  }

  const fits = (d) => (!chosen.lane || d.lane === chosen.lane) && (!chosen.term || String(d.term) === chosen.term) && (!chosen.asset || d.token === chosen.asset);

  function follow(block, deals, back) {
    if (!back && block.number <= asOf) return;
    const order = orders[chosen.sort];
    for (const { id, deal, listed } of deals) {
      items = items.filter((d) => d.id !== id);
      if (!listed || !fits(deal)) continue;
      const at = items.findIndex((d) => order(deal, d) < 0);
      if (at >= 0) items.splice(at, 0, deal);
      else if (!next) items.push(deal); // else it belongs to a page that is not here
    }
    if (deals.length) draw();
  }

  let drawn = null;
  async function stats() {
    try {
      const s = await live.stats();
      if (s === drawn || app.signal.aborted) return;
      drawn = s;
      const at = s.priceHistory.at(-1);
      fill(tiles,
        tile("Value locked", usdg(s.tvl.usdg), "USDG", s.tvl.unpriced.length ? `without ${s.tvl.unpriced.length} unpriced` : "at pool prices"),
        tile("Listed", count(s.deals.byState.LISTED), null, `expired ones too, of ${count(s.deals.total)} ever`),
        tile("Active", count(s.deals.active), null, "funded, not settled"),
        tile("Volume, 24 h", usdg(s.volume.last24h), "USDG", `${usdg(s.volume.last7d)} in 7 d`),
        tile("Median cost, 7 d", s.medians.costBps7d === null ? "—" : percent(s.medians.costBps7d), null, `21 d: ${s.medians.costBps21d === null ? "—" : percent(s.medians.costBps21d)}`),
        tile("sTKN", at?.priceUSDGPerSTKN ? Number(at.priceUSDGPerSTKN).toFixed(4) : "—", "USDG", at ? `${Number(at.priceSTKNinTKN).toFixed(4)} TKN` : "no price yet"));
    } catch {
      tiles.hidden = tiles.childElementCount === 0; // what is there stays; the next block asks again
    }
  }

  let deal = null;
  // beside shows the deal that is chosen, else the asset that is.
  function beside() {
    const asset = assets.get(chosen.asset);
    node.classList.toggle("has-asset", !deal && Boolean(asset));
    fill(side, deal ? deal.node : asset ? assetView(asset, app.signal) : h("p.empty", null, "Choose a deal to see its terms, bids and rewards, or an asset to see its price."));
  }

  function open(id) {
    dealID = id;
    deal?.close();
    deal = id ? dealView(app, id) : null;
    beside();
    node.classList.toggle("has-deal", Boolean(id));
    for (const tr of body.children) tr.toggleAttribute("aria-current", false);
    if (id) body.querySelector(`[data-key="${CSS.escape(id)}"]`)?.setAttribute("aria-current", "true");
  }

  load();
  stats();
  history.update();
  open(dealID);
  return {
    node,
    title: () => (dealID ? `Deal ${dealID}` : "Market"),
    open,
    close: () => deal?.close(),
    update(news) {
      if (news.reset) load();
      if (news.block) {
        follow(news.block, news.deals, news.back);
        stats();
        history.update();
      }
      deal?.update(news);
    },
  };
}
