import { h, fill } from "./dom.js";
import { get, Pace } from "./live.js";
import { usdg, wei, amount, percent, costBps, when, count, short } from "./format.js";
import { collateral, more, stateTag, table, tile, fault, section, copy, onExplorer } from "./parts.js";
import { drip } from "./deal.js";

// lasting is what does not change by time or price alone.
const lasting = (p, r, staked, held) => [
  p.asBorrower, p.asLender, p.bids, p.balances, r.drips.map((d) => [d.id, d.total, d.claimed]), staked.positions.map((x) => x.tokenId), held.positions.map((x) => x.tokenId)];

// All that a wallet has: deals, bids, credits, rewards, positions. The stream tells of its deals alone.
export function walletView(app, address) {
  const { live, assets } = app;
  const content = h("div.stack", null, h("p.empty", null, "Loading…"));
  const node = h("div.wallet", null, h("header.head", null, h("h1", null, "Wallet"), h("p.whole", null, h("span.mono", null, address), copy(address, "address"), onExplorer(address))), content);
  let busy = false;
  const pace = new Pace();
  const shown = new Set(); // deals

  async function load() {
    if (busy) return;
    busy = true;
    pace.began();
    let has;
    try {
      const [portfolio, rewards, staked, held] = await Promise.all(
        [`/portfolio/${address}`, `/rewards/${address}`, `/positions/${address}?limit=200`, `/wallet/${address}/positions?limit=200`].map((p) => get(p, app.signal)));
      draw(portfolio.body, rewards.body, staked.body, held.body);
      has = lasting(portfolio.body, rewards.body, staked.body, held.body);
    } catch (err) {
      if (err.name !== "AbortError") fill(content, h("p.empty", null, fault(err)));
    } finally {
      busy = false;
      pace.ended(has);
    }
  }

  // mine says whether a change of a deal is one of this wallet. A deal that was reverted has no parties any more.
  const mine = ({ id, deal: d }) => shown.has(id) || [d?.borrower, d?.lender, d?.bestBid?.lender].includes(address);

  const symbol = (token) => assets.get(token)?.symbol ?? (/^0x0+$/.test(token) ? "native" : short(token));
  const deals = (items, other) => items.map((d) => [
    h("a", { href: `#/deal/${d.id}` }, "#" + d.id), collateral(d, assets), usdg(d.price ?? d.minPrice), usdg(d.cap),
    percent(costBps(d.cap, d.price ?? d.minPrice)), d[other] ? h("a.mono", { href: `#/wallet/${d[other]}`, title: d[other] }, short(d[other])) : "—",
    d.expiry ? when(d.expiry, live.now) : "—", stateTag(d.state)]);

  function credit(b) {
    if (b.kind === "NFT") return "#" + b.amount;
    return amount(b.amount, b.kind === "USDG" ? 6 : (assets.get(b.asset)?.decimals ?? 0), 4);
  }

  function draw(p, r, { positions: staked, nextCursor: moreStaked }, { positions: held, nextCursor: moreHeld }) {
    const s = p.summary;
    shown.clear();
    for (const d of [...p.asBorrower, ...p.asLender]) shown.add(d.id);
    for (const b of p.bids) shown.add(b.dealId);
    const rest = (items, path, shown = 1000) => (p.truncated && items.length >= 1000 || items.length > shown) && more(Math.min(items.length, shown), path);
    const open = p.bids.filter((b) => b.state === "OPEN");
    const parts = [
      h("div.tiles", null,
        tile("Received", usdg(s.receivedAlready), "USDG", "as borrower, less fees"),
        tile("At stake", usdg(s.stillAtStake), "USDG", "to repay, to reclaim"),
        tile("Paid out", usdg(s.paidOut), "USDG", "as lender"),
        tile("Awaiting expiry", usdg(s.awaitingExpiry), "USDG", "as lender"),
        tile("Claimable", wei(r.claimableNow), "sTKN", `${wei(r.stillDripping)} still dripping`)),
      p.asBorrower.length > 0 && section("As borrower", table("Deals as borrower", ["Deal", "Collateral", "#Price", "#Cap", "#Cost", "Lender", "#Expiry", "State"], deals(p.asBorrower, "lender")), rest(p.asBorrower, `/deals?wallet=${address}`)),
      p.asLender.length > 0 && section("As lender", table("Deals as lender", ["Deal", "Collateral", "#Price", "#Cap", "#Cost", "Borrower", "#Expiry", "State"], deals(p.asLender, "borrower")), rest(p.asLender, `/deals?wallet=${address}`)),
      p.bids.length > 0 && section(`Bids, ${count(open.length)}${p.truncated && p.bids.length >= 1000 ? " or more" : ""} open`, table("Bids", ["Deal", "#Price", "#Expires", "State"], p.bids.slice(0, 100).map((b) => [
        h("a", { href: `#/deal/${b.dealId}` }, "#" + b.dealId), usdg(b.price), when(b.expiry, live.now), b.state === "OPEN" && b.expiry <= live.now ? "expired" : b.state.toLowerCase()])), rest(p.bids, `/portfolio/${address}/bids`, 100)),
      p.balances.length > 0 && section("Credits to withdraw", table("Credits", ["Asset", "Kind", "#Amount"], p.balances.map((b) => [b.kind === "USDG" ? "USDG" : symbol(b.asset), b.kind, credit(b)])), rest(p.balances, `/portfolio/${address}/balances`)),
      r.drips.length > 0 && section("Rewards", h("ul.drips.grid", null, r.drips.map((d) => drip(d, live.now))), r.truncated && more(r.drips.length, `/rewards/${address}/drips`)),
      staked.length > 0 && section("Staked positions", table("Staked positions", ["Position", "#Ticks", "In range", "#Value", "#Emissions", "#Creator fees"], staked.map((x) => [
        "#" + x.tokenId + (x.isSeed ? " seed" : ""), `${count(x.tickLower)} – ${count(x.tickUpper)}`, x.inRange ? "yes" : "no", wei(x.valueTKN) + " TKN", wei(x.emissionsEarned) + " sTKN", wei(x.creatorFeeEarned) + " TKN"])), moreStaked && more(staked.length, `/positions/${address}`)),
      held.length > 0 && section("Liquidity positions held", table("Liquidity positions", ["Position", "Pair", "#Fee", "#Ticks", "In range", "Collateral"], held.map((x) => [
        "#" + x.tokenId, `${symbol(x.token0)} / ${symbol(x.token1)}`, x.fee >= 1 << 23 ? "dynamic" : (x.fee / 10_000).toFixed(2) + " %", `${count(x.tickLower)} – ${count(x.tickUpper)}`, x.inRange ? "yes" : "no",
        x.allowed ? "allowed" : x.reason.toLowerCase().replaceAll("_", " ")])), moreHeld && more(held.length, `/wallet/${address}/positions`)),
    ].filter(Boolean);
    fill(content, parts.length > 1 ? parts : [parts, h("p.empty", null, "This wallet has nothing in the market.")]);
  }

  load();
  return {
    node,
    title: () => "Wallet " + short(address),
    close() {},
    update(news) {
      if (news.reset) return load();
      if (!news.block) return;
      if (news.back || news.deals.some(mine)) pace.hears();
      if (pace.due()) load();
    },
  };
}
