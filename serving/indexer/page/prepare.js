import { h, fill } from "./dom.js";
import { ask } from "./live.js";
import { usdg, exact, short } from "./format.js";
import { table } from "./parts.js";
import { line } from "./chart.js";

// What other services say of a deal: its value, and the transaction that would fund it. Neither is needed for the rest.

const { agent, valuation } = document.documentElement.dataset;

const pays = (raw) => usdg(raw) + " USDG";

// worth shows what secures a deal, and what it would be worth at other prices.
export function worth(d, signal) {
  if (!valuation || !["LISTED", "FUNDED"].includes(d.state)) return null; // settled, it secures nothing
  const node = h("section.worth", { "aria-label": "Value" }, h("h3", null, "Value"), h("p.empty", null, "Asking…"));
  ask(`${valuation}/deals/${d.id}/valuation`, { signal }).then((v) => {
    const known = Object.values(v.scenarios).filter((s) => s?.priceUSDG);
    const points = known.map((s) => ({ t: Number(s.priceUSDG), v: Number(s.valueUSDG) / 1e6 })).sort((a, b) => a.t - b.t)
      .filter((p, i, all) => i === 0 || p.t !== all[i - 1].t);
    const marks = [{ v: Number(d.cap) / 1e6, label: "Cap" }, { v: Number(d.price ?? d.minPrice) / 1e6, label: d.price ? "Price paid" : "Ask" }];
    const { now, atRangeBottom: low, atRangeTop: high } = v.scenarios;
    const money = (n) => n.toLocaleString("en-US", { maximumFractionDigits: 2 });
    fill(node, h("h3", null, "Value"),
      h("p", null, h("b", null, pays(v.valueUSDG)), h("span.dim", null, ` now; a cap of ${pays(v.suggestedCap)} is suggested`)),
      points.length > 1 && line(points, {
        label: "Value by price, in USDG", text: money, at: (t) => `at ${money(t)}`, marks, home: points.findIndex((p) => p.t === Number(now.priceUSDG)),
        band: low?.priceUSDG && high?.priceUSDG ? [Number(low.priceUSDG), Number(high.priceUSDG)] : null,
      }));
  }).catch((err) => {
    if (err.name !== "AbortError") fill(node, h("h3", null, "Value"), h("p.empty", null, err.code ? err.message : "The valuation service does not answer."));
  });
  return node;
}

// preview asks for the transaction that funds a deal, and shows what it would do. Nothing is signed or sent.
export function preview(d, signal) {
  if (!agent || d.state !== "LISTED") return null;
  const answer = h("div.answer", { role: "status" });
  const wallet = h("input", { name: "wallet", required: true, pattern: "0x[0-9a-fA-F]{40}", placeholder: "0x… lender", "aria-label": "The lender's address", autocomplete: "off", spellcheck: "false" });
  const show = async (e) => {
    e.preventDefault();
    fill(answer, "Simulating…");
    try {
      const { deployment } = await ask(`${agent}/v1/capabilities`, { signal });
      const p = await ask(`${agent}/v1/transactions/prepare`, {
        method: "POST", headers: { "content-type": "application/json" }, signal,
        body: JSON.stringify({ action: "fund", chainId: deployment.chainId, wallet: wallet.value, dealId: d.id, termsHash: d.termsHash, maxPrice: d.minPrice }),
      });
      fill(answer,
        h("p", null, h("code", null, p.decoded.function), " to ", h("span.mono", { title: p.transaction.to }, short(p.transaction.to)), h("span.dim", null, `, at most ${p.transaction.gas} gas`)),
        p.spend && h("p", null, "Spends ", h("b", null, pays(p.spend.amount))),
        p.simulation.transfers && table("Transfers", ["From", "To", "#Amount"], p.simulation.transfers.map((t) => [
          short(t.from), short(t.to), t.token === deployment.usdg ? pays(t.amountOrTokenId) : exact(t.amountOrTokenId, 0)]), "It transfers nothing."),
        p.warnings.map((w) => h("p.fault", null, w.message)));
    } catch (err) {
      if (err.name !== "AbortError") fill(answer, h("p.fault", { "data-code": err.code }, err.code ? err.message : "The Agent API does not answer."));
    }
  };
  return h("section.prepare", { "aria-label": "Prepare" }, h("h3", null, "Prepare", h("span.dim", null, " a preview: nothing is signed or sent")),
    h("form", { onsubmit: show }, wallet, " ", h("button", { type: "submit" }, "Preview funding")), answer);
}
