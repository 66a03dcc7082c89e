import { h, fill } from "./dom.js";
import { get } from "./live.js";
import { usdg, wei, price, when, date, span, count, short } from "./format.js";
import { table, tile, fault, section, wallet, tx, more } from "./parts.js";
import { line, bar } from "./chart.js";
import { rangeView } from "./asset.js";

// The pool, the epoch and its budgets, and where the market's value is.
export function poolView(app) {
  const { live, assets } = app;
  const tiles = h("div.tiles"), charts = h("div.columns"), range = h("div.columns"), rest = h("div.columns");
  const node = h("div.pool", null, h("header.head", null, h("h1", null, "Pool and epoch")), tiles, charts, range, rest);
  let due = 0, drawn = null, suggested = null;
  const hour = (t) => new Date(t * 1000).toISOString().slice(5, 16).replace("T", " ");

  async function load() {
    try {
      live.pool ??= (await get("/pool", app.signal)).body;
      draw(live.pool);
    } catch (err) {
      if (err.name !== "AbortError") fill(rest, h("p.empty", null, fault(err)));
    }
  }

  function draw({ pool, epoch, burnedThisWeek, burns, truncated, emissionsRatePerSecond, budgets, floor }) {
    const now = live.now;
    if (pool && suggested !== pool.poolId) { // once: a range of a week does not change by the block
      suggested = pool.poolId;
      const view = rangeView(pool.poolId, app.signal);
      if (view) fill(range, section("Liquidity", view));
    }
    fill(tiles,
      tile("sTKN", pool ? price(pool.priceSTKNinTKN) : "—", "TKN", floor ? `floor ${price(floor.priceSTKNinTKN)}` : "no floor"),
      tile("Depth to −2 %", pool ? wei(pool.depthTKN) : "—", "TKN", pool ? `fee ${(pool.fee / 10_000).toFixed(2)} %` : null),
      tile("Emissions", emissionsRatePerSecond === null ? "—" : wei((BigInt(emissionsRatePerSecond) * 86400n).toString()), "sTKN a day", pool ? `to ${wei(pool.totalWeight)} of weight` : null),
      tile("Burned this week", burnedThisWeek === null ? "—" : wei(burnedThisWeek), "sTKN", `${count(burns.length)} latest below`));
    const budget = (label, b, taken) => h("li", null,
      h("div", null, h("span", null, label), h("span.num", null, h("b", null, wei(b.available)), " left")),
      bar(BigInt(taken), BigInt(b.budget), label), h("div.dim", null, `${wei(taken)} of ${wei(b.budget)} sTKN`));
    fill(rest,
      section(epoch ? `Epoch ${epoch.n}` : "Epoch", epoch ? [
        h("p.dim", null, now < epoch.endsAt ? `ends in ${span(epoch.endsAt - now)}, ${date(epoch.endsAt)}` : `over since ${span(now - epoch.endsAt)}`),
        bar(BigInt(Math.max(Math.min(now, epoch.endsAt) - epoch.startsAt, 0)), BigInt(epoch.endsAt - epoch.startsAt), "time passed"),
        h("ul.budgets", null, budget("Deals of 7 days", budgets.deal7, budgets.deal7.reserved), budget("Deals of 21 days", budgets.deal21, budgets.deal21.reserved),
          budget("Liquidity", budgets.liquidity, budgets.liquidity.released)),
        h("dl.terms", null,
          [["Weekly", wei(epoch.weekly) + " sTKN"], ["Rolled over", wei(epoch.rolledOver) + " sTKN"],
            ["Lender's share", epoch.lenderShareBps === null ? "—" : epoch.lenderShareBps / 100 + " %"],
            ["sTKN at", epoch.priceUSDGPerSTKN === null ? "—" : price(epoch.priceUSDGPerSTKN) + " USDG"]].map(([k, v]) => h("div", null, h("dt", null, k), h("dd", null, v)))),
      ] : h("p.empty", null, "No epoch was opened.")),
      section("Burns", table("Burns", ["When", "#USDG", "#sTKN burned", "Caller", "Transaction"], burns.map((b) => [
        h("span", { title: date(b.at) }, when(b.at, now)), usdg(b.usdgSpent), wei(b.stknBurned), wallet(b.caller), tx(b.tx)]), "None yet."), truncated && more(burns.length, "/burns")));
  }

  async function stats() {
    try {
      const s = await live.stats();
      if (s === drawn || app.signal.aborted) return;
      drawn = s;
      const floor = live.pool?.floor;
      const pair = [live.pool?.pool?.currency0, live.pool?.pool?.currency1];
      for (const t of pair) if (t && !assets.has(t)) assets.set(t, { token: t, symbol: "sTKN", decimals: 18 }); // the one that is no collateral
      const name = (v) => (v.raw === v.usdg && !assets.has(v.token) ? "USDG" + (v.lane === "POSITION" ? " in positions" : "") : symbolOf(v));
      const symbolOf = (v) => (assets.get(v.token)?.symbol ?? short(v.token)) + (v.lane === "POSITION" ? " in positions" : "");
      const priced = s.tvl.byAsset.filter((v) => v.usdg !== null).sort((a, b) => (BigInt(a.usdg) > BigInt(b.usdg) ? -1 : 1));
      const top = priced.length ? BigInt(priced[0].usdg) : 0n;
      const focused = [...charts.querySelectorAll(".plot")].indexOf(document.activeElement);
      fill(charts,
        h("section.panel", { "aria-label": "Price" }, line(s.priceHistory.map((p) => ({ t: p.t, v: Number(p.priceSTKNinTKN) })),
          { label: "sTKN in TKN, 7 days", text: (v) => v.toLocaleString("en-US", { maximumSignificantDigits: 5 }), at: hour, marks: floor ? [{ v: Number(floor.priceSTKNinTKN), label: "floor" }] : [] }),
        line(s.volumeHistory.map((p) => ({ t: p.t, v: Number(p.volume) / 1e6 })), { label: "Volume in USDG an hour, 7 days", text: (v) => Math.round(v).toLocaleString("en-US"), at: hour })),
        section(`Value locked, ${usdg(s.tvl.usdg)} USDG`, h("ul.budgets.tight", null, priced.slice(0, 8).map((v) => h("li", { "data-lane": v.lane },
          h("div", null, h("span", null, name(v)), h("span.num", null, usdg(v.usdg))), bar(BigInt(v.usdg), top, name(v)))),
        s.tvl.unpriced.length > 0 && h("li.dim", null, "No price: ", s.tvl.unpriced.map((t) => assets.get(t)?.symbol ?? short(t)).join(", ")))));
      if (focused >= 0) charts.querySelectorAll(".plot")[focused]?.focus();
    } catch (err) {
      if (err.name !== "AbortError" && !charts.childElementCount) fill(charts, h("p.empty", null, fault(err)));
    }
  }

  load().then(stats);
  return {
    node,
    title: () => "Pool",
    close() {},
    update(news) {
      if (!news.block && !news.reset) return;
      if (live.pool && Date.now() > due) {
        due = Date.now() + 500;
        draw(live.pool);
      }
      stats();
    },
  };
}
