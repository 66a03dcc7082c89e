import { h, fill, keyed } from "./dom.js";
import { get } from "./live.js";
import { count, short, span } from "./format.js";
import { tile, fault } from "./parts.js";

// The pipeline itself: the chain's head, what is indexed, and how far each partition is.
export function pipelineView(app) {
  const { live } = app;
  const tiles = h("div.tiles"), body = h("tbody"), note = h("p.status");
  const node = h("div.pipeline", null, h("header.head", null, h("h1", null, "Pipeline")), tiles,
    h("section.panel", { "aria-label": "Partitions" }, h("h2", null, "Partitions"),
      h("table.partitions", { "aria-label": "Partitions" }, h("thead", null, h("tr", null, ["Partition", "Owner", "Standbys", "Watermark", "Behind", "Block", "Reverts"]
        .map((t, i) => h(i === 1 || i === 5 ? "th" : "th.num", { scope: "col" }, t)))), body), note));
  const seen = []; // blocks of the last seconds, for the rate

  const row = (p) => h("tr", null,
    h("td.num", { "data-label": "Partition" }, String(p.partition)),
    h("td", { "data-label": "Owner" }, p.owner ?? h("span.fault", null, "nobody")),
    h("td.num", { "data-label": "Standbys" }, String(p.standbys)),
    h("td.num", { "data-label": "Watermark" }, count(p.watermark.number)),
    h("td.num", { "data-label": "Behind", "data-behind": p.behind > 2 ? "" : null }, p.behind === 0 ? "—" : count(p.behind)),
    h("td.mono.dim", { "data-label": "Block", title: p.watermark.hash }, short(p.watermark.hash)),
    h("td.num", { "data-label": "Reverts" }, count(p.reverts)));

  function draw(s) {
    const at = Date.now() / 1000;
    seen.push([at, s.indexed.number]);
    while (seen.length > 2 && at - seen[0][0] > 20) seen.shift();
    const [t0, n0] = seen[0];
    const rate = at - t0 > 2 ? ((s.indexed.number - n0) / (at - t0)).toFixed(1) : "—";
    fill(tiles,
      tile("Chain head", count(s.latestBlock), null, `seen ${span(Math.max(at - s.observedAt, 0))} ago`),
      tile("Indexed", count(s.indexed.number), null, short(s.indexed.hash)),
      tile("Lag", count(s.lagBlocks), s.lagBlocks === 1 ? "block" : "blocks", s.lagBlocks < 3 ? "at the head" : "catching up"),
      tile("Rate", rate, "blocks a second", "of the last 20 s"),
      tile("Owners", count(new Set(s.partitions.map((p) => p.owner).filter(Boolean)).size), null, `${s.partitions.length} partitions on chain ${s.chainId}`));
    keyed(body, s.partitions.map((p) => ({ ...p, behind: Math.max(s.latestBlock - p.watermark.number, 0) })), (p) => p.partition, row, { mark: false });
  }

  if (live.pipeline) draw(live.pipeline);
  else get("/pipeline", app.signal).then(({ body: s }) => draw(s), (err) => err.name !== "AbortError" && fill(note, fault(err)));
  return {
    node,
    title: () => "Pipeline",
    close() {},
    update(news) {
      if (news.pipeline) draw(news.pipeline);
    },
  };
}
