import { h, fill } from "./dom.js";
import { get } from "./live.js";
import { usdg, wei, amount, percent, costBps, when, count, short } from "./format.js";
import { collateral, stateTag, table, tile, fault, section, copy, onExplorer } from "./parts.js";
import { drip } from "./deal.js";

// All that a wallet has: deals, bids, credits, rewards, positions.
export function walletView(app, address) {
  const { live, assets } = app;
  const content = h("div.stack", null, h("p.empty", null, "Loading…"));
  const node = h("div.wallet", null, h("header.head", null, h("h1", null, "Wallet"), h("p.whole", null, h("span.mono", null, address), copy(address, "address"), onExplorer(address))), content);
  let due = 0, busy = false;

  async function load() {
    if (busy) return;
    busy = true;
    try {
      const [portfolio, rewards, staked, held] = await Promise.all(
        [`/portfolio/${address}`, `/rewards/${address}`, `/positions/${address}?limit=200`, `/wallet/${address}/positions?limit=200`].map((p) => get(p, app.signal)));
      draw(portfolio.body, rewards.body, staked.body.positions, held.body.positions);
    } catch (err) {
      if (err.name !== "AbortError") fill(content, h("p.empty", null, fault(err)));
    } finally {
      busy = false;
      due = Date.now() + 2000;
    }
  }

  const symbol = (token) => assets.get(token)?.symbol ?? (/^0x0+$/.test(token) ? "native" : short(token));
  const deals = (items, other) => items.map((d) => [
    h("a", { href: `#/deal/${d.id}` }, "#" + d.id), collateral(d, assets), usdg(d.price ?? d.minPrice), usdg(d.cap),
    percent(costBps(d.cap, d.price ?? d.minPrice)), d[other] ? h("a.mono", { href: `#/wallet/${d[other]}`, title: d[other] }, short(d[other])) : "—",
    d.expiry ? when(d.expiry, live.now) : "—", stateTag(d.state)]);

  function credit(b) {
    if (b.kind === "NFT") return "#" + b.amount;
    return amount(b.amount, b.kind === "USDG" ? 6 : (assets.get(b.asset)?.decimals ?? 0), 4);
  }

  function draw(p, r, staked, held) {
    const s = p.summary;
    const open = p.bids.filter((b) => b.state === "OPEN");
    const parts = [
      h("div.tiles", null,
        tile("Received", usdg(s.receivedAlready), "USDG", "as borrower, less fees"),
        tile("At stake", usdg(s.stillAtStake), "USDG", "to repay, to reclaim"),
        tile("Paid out", usdg(s.paidOut), "USDG", "as lender"),
        tile("Awaiting expiry", usdg(s.awaitingExpiry), "USDG", "as lender"),
        tile("Claimable", wei(r.claimableNow), "sTKN", `${wei(r.stillDripping)} still dripping`)),
      p.asBorrower.length > 0 && section("As borrower", table("Deals as borrower", ["Deal", "Collateral", "#Price", "#Cap", "#Cost", "Lender", "#Expiry", "State"], deals(p.asBorrower, "lender"))),
      p.asLender.length > 0 && section("As lender", table("Deals as lender", ["Deal", "Collateral", "#Price", "#Cap", "#Cost", "Borrower", "#Expiry", "State"], deals(p.asLender, "borrower"))),
      p.bids.length > 0 && section(`Bids, ${count(open.length)} open`, table("Bids", ["Deal", "#Price", "#Expires", "State"], p.bids.slice(0, 100).map((b) => [
        h("a", { href: `#/deal/${b.dealId}` }, "#" + b.dealId), usdg(b.price), when(b.expiry, live.now), b.state === "OPEN" && b.expiry <= live.now ? "expired" : b.state.toLowerCase()]))),
      p.balances.length > 0 && section("Credits to withdraw", table("Credits", ["Asset", "Kind", "#Amount"], p.balances.map((b) => [b.kind === "USDG" ? "USDG" : symbol(b.asset), b.kind, credit(b)]))),
      r.drips.length > 0 && section("Rewards", h("ul.drips.grid", null, r.drips.map((d) => drip(d, live.now)))),
      staked.length > 0 && section("Staked positions", table("Staked positions", ["Position", "#Ticks", "In range", "#Value", "#Emissions", "#Creator fees"], staked.map((x) => [
        "#" + x.tokenId + (x.isSeed ? " seed" : ""), `${count(x.tickLower)} – ${count(x.tickUpper)}`, x.inRange ? "yes" : "no", wei(x.valueTKN) + " TKN", wei(x.emissionsEarned) + " sTKN", wei(x.creatorFeeEarned) + " TKN"]))),
      held.length > 0 && section("Liquidity positions held", table("Liquidity positions", ["Position", "Pair", "#Fee", "#Ticks", "In range", "Collateral"], held.map((x) => [
        "#" + x.tokenId, `${symbol(x.token0)} / ${symbol(x.token1)}`, x.fee >= 1 << 23 ? "dynamic" : (x.fee / 10_000).toFixed(2) + " %", `${count(x.tickLower)} – ${count(x.tickUpper)}`, x.inRange ? "yes" : "no",
        x.allowed ? "allowed" : x.reason.toLowerCase().replaceAll("_", " ")]))),
    ].filter(Boolean);
    fill(content, parts.length > 1 ? parts : [parts, h("p.empty", null, "This wallet has nothing in the market.")]);
  }

  load();
  return {
    node,
    title: () => "Wallet " + short(address),
    close() {},
    update(news) {
      if (news.reset || (news.block && Date.now() > due)) load();
    },
  };
}
