import { h, fill } from "./dom.js";
import { get, Pace } from "./live.js";
import { usdg, wei, percent, costBps, days, when, brief, date } from "./format.js";
import { collateral, laneTag, more, stateTag, wallet, tx, table, fault } from "./parts.js";
import { curve, bar } from "./chart.js";
import { worth, preview } from "./prepare.js";

// One deal: its terms, where it is in its life, its bids and what it earns.
export function dealView(app, id) {
  const { live, assets } = app;
  const node = h("article.deal", { "aria-busy": "true" });
  const own = new AbortController();
  const signal = AbortSignal.any([own.signal, app.signal]);
  let shown = null, drawn = 0, busy = false, asked = "", others = [];
  const pace = new Pace(); // of what is claimed of a reward, of which the stream does not tell

  async function load() {
    busy = true;
    pace.began();
    let has;
    try {
      const { body } = await get(`/deals/${id}`, signal);
      shown = body;
      has = [body.deal, body.reward?.drips.map((d) => [d.id, d.total, d.claimed])];
      draw();
    } catch (err) {
      if (err.name === "AbortError") return;
      shown = null;
      fill(node, close(), h("h2", null, "Deal #" + id), h("p.empty", null, err.status === 404 ? "There is no such deal." : fault(err)));
    } finally {
      busy = false;
      pace.ended(has);
    }
    node.removeAttribute("aria-busy");
  }

  const close = () => h("a.close", { href: "#/", "aria-label": "Close the deal", "aria-keyshortcuts": "Escape" }, "✕");
  fill(node, close(), h("h2", null, "Deal #" + id), h("p.empty", null, "Loading…"));

  function draw() {
    const { deal: d, bids, reward, truncated } = shown;
    if (asked !== d.state + d.termsHash) { // what other services say is asked for once, and what is typed stays
      asked = d.state + d.termsHash;
      others = [worth(d, signal), preview(d, signal)];
    }
    drawn = Date.now();
    const now = live.now || d.listedAt;
    const at = d.price ?? d.minPrice;
    const term = (label, ...value) => h("div", null, h("dt", null, label), h("dd", null, value));
    fill(node,
      h("header", null, close(), h("h2", null, "Deal #" + d.id, " ", stateTag(d.state)), h("p", null, collateral(d, assets), laneTag(d.lane))),
      h("dl.terms", null,
        term(d.price ? "Price" : "Ask", h("b", null, usdg(at)), " USDG"),
        term("Cap", h("b", null, usdg(d.cap)), " USDG"),
        term("Cost", h("b", null, percent(costBps(d.cap, at)))),
        term("Term", days(d.term)),
        term("Borrower", wallet(d.borrower)),
        term("Lender", d.lender ? wallet(d.lender) : "—"),
        d.fee && term("Fee", usdg(d.fee), " USDG"),
        d.state === "LISTED" && term("Listing ends", d.listingExpiry ? when(d.listingExpiry, now) : "never")),
      timeline(d, now),
      others,
      h("h3", null, "Bids", bids.length > 0 && h("span.dim", null, ` ${d.openBidCount} open of ${truncated ? "more than " : ""}${bids.length}`)),
      table("Bids", ["Lender", "#Price", "#Cost", "State"], bids.toSorted((a, b) => Number(BigInt(b.price) - BigInt(a.price) > 0n) || -1).map((b) => [
        wallet(b.lender), usdg(b.price), percent(costBps(d.cap, b.price)), bidState(b)]), "No bids."),
      truncated && more(bids.length, `/deals/${d.id}/bids`),
      h("h3", null, "Rewards", reward && h("span.dim", null, ` epoch ${reward.epoch}${reward.budgetExhausted ? ", budget exhausted" : ""}`)),
      reward ? rewards(reward, now) : h("p.empty", null, d.fundedAt ? "None was granted." : "Granted when the deal is funded, while the epoch has budget."));
  }

  // bidState is open while the bid can be accepted; then it says for how long.
  function bidState(b) {
    if (b.state !== "OPEN") return b.state.toLowerCase();
    const now = live.now || b.placedAt;
    if (b.expiry <= now) return h("span.dim", { title: date(b.expiry) }, "expired");
    const best = b.id === shown.deal.bestBid?.id;
    return h("span", { title: date(b.expiry) }, best ? h("b", null, "best") : "open", " ", h("span.dim", null, brief(b.expiry, now)));
  }

  function rewards(r, now) {
    return h("div", null,
      h("p.dim", null, h("b", null, wei(r.total)), ` sTKN: lender ${wei(r.lender)}, borrower ${wei(r.borrower)}`),
      h("ul.drips", null, r.drips.map((d) => drip(d, now))), r.truncated && more(r.drips.length, `/deals/${id}/drips`));
  }

  load();
  return {
    node,
    close: () => own.abort(),
    update(news) {
      const mine = news.deals?.some((d) => d.id === id);
      if (news.reset || mine) load();
      else if (news.block && shown && Date.now() > drawn + 2000) { // time passes for what depends on it
        if (shown.reward?.drips.length && pace.due() && !busy) load();
        else draw();
      }
    },
  };
}

// drip is a stream of a reward. Nothing is left of one that was cut before its cliff.
export const drip = (d, now) => BigInt(d.total) === 0n ? h("li", null,
  h("div", null, wallet(d.account), h("span.dim", null, "cut before its cliff: nothing to unlock"))) : h("li", null,
  h("div", null, wallet(d.account), h("span.num", null, h("b", null, wei(d.claimableNow)), " claimable")),
  curve(d, now),
  bar(BigInt(d.unlockedNow), BigInt(d.total), "unlocked"),
  h("div.dim", null, h("span", null, `${wei(d.unlockedNow)} of ${wei(d.total)} sTKN unlocked, ${wei(d.claimed)} claimed`), h("span", null, d.dealId ? `deal #${d.dealId}` : `position #${d.tokenId}`)));

// timeline shows what was and what is to come, in the chain's time.
function timeline(d, now) {
  const steps = [["Listed", d.listedAt, d.txs.listed]];
  if (d.fundedAt) steps.push(["Funded", d.fundedAt, d.txs.funded], ["Expiry", d.expiry, null], ["Grace ends", d.graceEnd, null]);
  const settled = { RECLAIMED: "Reclaimed", CLAIMED: "Claimed", CANCELLED: "Cancelled" }[d.state];
  if (settled) steps.push([settled, null, d.txs.settled]);
  const over = (t) => settled && t > now; // what was to come, had it not been settled
  return h("ol.timeline", { "aria-label": "Timeline" }, steps.filter(([, t]) => !over(t)).map(([name, t, hash]) =>
    h("li", { "data-past": t === null || t <= now ? "" : null },
      h("b", null, name), t !== null && h("time", { datetime: new Date(t * 1000).toISOString(), title: `${date(t)}, ${when(t, now)}` }, brief(t, now)), tx(hash))));
}
