import { h, fill } from "./dom.js";
import { get, Live } from "./live.js";
import { count, date, span } from "./format.js";
import { marketView } from "./market.js";
import { walletView } from "./wallet.js";
import { poolView } from "./pool.js";
import { pipelineView } from "./pipeline.js";

// The frame: which view is shown, what the address says, and the line that says whether all is live.

const main = document.getElementById("main");
const live = new Live();
const assets = new Map(); // by token
let view = null, name = "", leave = new AbortController();

// loadAssets asks for the registry, page by page.
async function loadAssets() {
  for (let cursor = ""; cursor !== null;) {
    const { body } = await get("/assets?limit=200" + (cursor && "&cursor=" + cursor));
    for (const a of body.assets) assets.set(a.token, a);
    cursor = body.nextCursor;
  }
}

function route() {
  const [, kind = "", arg = ""] = location.hash.split("/");
  const deal = kind === "deal" && /^\d{1,78}$/.test(arg) ? arg : null;
  const next = kind === "wallet" && /^0x[0-9a-fA-F]{40}$/.test(arg) ? "wallet" : { pool: "pool", pipeline: "pipeline" }[kind] ?? "market";
  if (name === "market" && next === "market") {
    view.open(deal);
  } else {
    leave.abort();
    leave = new AbortController();
    view?.close();
    const app = { live, assets, signal: leave.signal };
    view = { market: () => marketView(app, deal), wallet: () => walletView(app, arg.toLowerCase()), pool: () => poolView(app), pipeline: () => pipelineView(app) }[next]();
    fill(main, view.node);
    scrollTo(0, 0);
  }
  name = next;
  document.title = `${view.title()} · Lienstream`;
  for (const a of document.querySelectorAll("nav a")) {
    if (a.dataset.view === next) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
}

// The status: a block, how far behind the chain, and how long ago by this clock.
const status = document.getElementById("live"), text = document.getElementById("live-text"), number = document.getElementById("live-block");
let arrived = 0;
function showStatus() {
  const quiet = (performance.now() - arrived) / 1000;
  const state = live.state === "live" && quiet > 20 ? "quiet" : live.state === "live" && live.block.lagBlocks > 10 ? "behind" : live.state;
  status.dataset.state = state;
  const words = { live: "live", quiet: `quiet for ${span(quiet)}`, behind: live.block && `${count(live.block.lagBlocks)} blocks behind` }[state] ?? state;
  fill(text, words);
  if (!live.block) return;
  fill(number, count(live.block.number));
  number.title = live.block.hash;
  fill(document.getElementById("as-of"), `As of block ${count(live.block.number)}, ${date(live.block.timestamp)}`);
}

live.listen((news) => {
  if (news.block) arrived = performance.now();
  view?.update(news);
  if (!news.pipeline) showStatus();
});
setInterval(showStatus, 1000);

const query = document.getElementById("query");
document.getElementById("find").addEventListener("submit", (e) => {
  e.preventDefault();
  const q = query.value.trim().replace(/^#/, "");
  const valid = /^\d{1,78}$/.test(q) ? `#/deal/${q}` : /^0x[0-9a-fA-F]{40}$/.test(q) ? `#/wallet/${q.toLowerCase()}` : null;
  query.setCustomValidity(valid ? "" : "A deal's number, or an address: 0x and 40 hex digits");
  if (!valid) return query.reportValidity();
  location.hash = valid;
  query.blur();
});
query.addEventListener("input", () => query.setCustomValidity(""));
document.addEventListener("keydown", (e) => {
  const typing = e.target.matches("input,select,textarea");
  if (e.key === "/" && !typing && !e.ctrlKey && !e.metaKey) {
    e.preventDefault();
    query.focus();
  } else if (e.key === "Escape" && location.hash.startsWith("#/deal/") && !typing) {
    const id = location.hash.split("/")[2];
    location.hash = "#/";
    route(); // now: what is hidden takes no focus
    main.querySelector(`[data-key="${CSS.escape(id)}"] a`)?.focus({ preventScroll: true });
  }
});
addEventListener("hashchange", route);

live.connect();
loadAssets().catch(() => {}).finally(route);
fill(main, h("p.empty", null, "Loading the market…"));
