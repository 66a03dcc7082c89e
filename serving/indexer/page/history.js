import { h, fill } from "./dom.js";
import { get } from "./live.js";
import { line } from "./chart.js";

// What was locked and funded on each day, as the server keeps it: from the first day on which there was any.

const daySeconds = 86400;
const freshMillis = 5000; // as the statistics beside it, which are asked for at the same moment

export function historyView(app) {
  const node = h("section.panel.history", { "aria-label": "History", hidden: true });
  let asked = -Infinity, askedOn = 0, drawn = "";

  function draw(days) {
    const begin = days.findIndex((d) => d.tvl.usdg !== "0" || d.volume.usdg !== "0");
    if (begin < 0) days = [];
    const points = (of) => days.slice(begin).map((d) => ({ t: d.day, v: Number(of(d)) / 1e6 }));
    const text = (v) => v.toLocaleString("en-US", { maximumFractionDigits: v < 100 ? 2 : 0 });
    const at = (t) => new Date(t * 1000).toISOString().slice(0, 10) + (t === days.at(-1).day ? ", so far" : "");
    const focused = [...node.querySelectorAll(".plot")].indexOf(document.activeElement);
    node.hidden = days.length === 0;
    fill(node, days.length > 0 && [
      line(points((d) => d.tvl.usdg), { label: "Value locked in USDG at the end of a day", text, at }),
      line(points((d) => d.volume.usdg), { label: "Volume in USDG a day", text, at })]);
    if (focused >= 0) node.querySelectorAll(".plot")[focused]?.focus();
  }

  return {
    node,
    // update asks again where a day has begun or the answer is old.
    async update() {
      const today = Math.floor(app.live.now / daySeconds);
      if (performance.now() - asked < freshMillis && today === askedOn) return;
      [asked, askedOn] = [performance.now(), today];
      try {
        const { body } = await get("/stats/history", app.signal);
        const now = JSON.stringify(body.days);
        if (now !== drawn) draw(body.days);
        drawn = now;
      } catch { // what is there stays; a later block asks again
      }
    },
  };
}
