// The connection to the market: requests, and the stream of what changes.

// get asks for JSON. The answer says which block it is true as of.
export async function get(path, signal) {
  const r = await fetch(path, { headers: { accept: "application/json" }, signal });
  return { body: await read(r), block: Number(r.headers.get("x-indexed-block")) };
}

// ask asks another service.
export const ask = async (url, options) => read(await fetch(url, options));

async function read(r) {
  const body = await r.json();
  if (!r.ok) throw Object.assign(new Error(body.error?.message ?? r.statusText), { code: body.error?.code, status: r.status });
  return body;
}

// Live gathers the events of a block and hands them out together, when it has ended.
export class Live {
  now = 0; // the chain's time
  block = null;
  pool = null;
  pipeline = null;
  state = "connecting";
  #stats = null;
  #asked = -Infinity;
  #listeners = new Set();
  #deals = new Map();

  // listen calls fn({block, deals, reset}) after each block, and for every other change of what is above.
  listen(fn) {
    this.#listeners.add(fn);
    return () => this.#listeners.delete(fn);
  }

  connect(again = false) {
    const source = new EventSource("/stream?with=pipeline");
    const on = (name, fn) => source.addEventListener(name, (e) => fn(JSON.parse(e.data)));
    on("deal", (d) => this.#deals.set(d.id, { id: d.id, deal: d.deal, listed: false }));
    on("listing", (d) => { const known = this.#deals.get(d.id); if (known) known.listed = d.listed; });
    on("pool", (d) => { this.pool = d; });
    on("block", (block) => {
      const back = this.block !== null && block.number <= this.block.number;
      const deals = [...this.#deals.values()];
      this.#deals.clear();
      this.block = block;
      this.now = block.timestamp;
      this.#set("live");
      this.#tell({ block, deals, back });
    });
    on("pipeline", (d) => { this.pipeline = d; this.#tell({ pipeline: d }); });
    if (again) source.addEventListener("block", () => this.#tell({ reset: true }), { once: true });
    on("reset", () => { this.#deals.clear(); this.#tell({ reset: true }); });
    source.addEventListener("open", () => this.#set(this.block ? "live" : "connecting"));
    source.addEventListener("error", () => {
      this.#deals.clear(); // the block comes again, whole
      this.#set("reconnecting");
      if (source.readyState === EventSource.CLOSED) { // refused: the browser gives up, we do not
        setTimeout(() => this.connect(true), 2000);
      }
    });
  }

  // stats asks for the statistics, unless they are fresh.
  async stats() {
    if (performance.now() - this.#asked > 5000) {
      this.#asked = performance.now();
      this.#stats = get("/stats").then(({ body }) => body);
    }
    return this.#stats;
  }

  #set(state) {
    if (this.state === state) return;
    this.state = state;
    this.#tell({ state });
  }

  #tell(news) {
    for (const fn of [...this.#listeners]) fn(news);
  }
}

// How long to wait before asking again, in milliseconds.
const least = 2000, most = 30_000;

// Pace says when to ask again for what the stream does not tell of: the less often the longer nothing changes but by time.
export class Pace {
  #asked = 0;
  #pause = least;
  #had = "";
  #changed = false;

  // began takes the news into account from now on.
  began() { this.#changed = false; }

  // ended records what an answer has that does not change by time or price alone; undefined: there was none.
  ended(lasting) {
    const has = JSON.stringify(lasting);
    this.#pause = has === undefined || has === this.#had ? Math.min(2 * this.#pause, most) : least;
    this.#had = has ?? this.#had;
    this.#asked = Date.now();
  }

  // hears of a change that an answer will show.
  hears() { this.#changed = true; }

  due() { return Date.now() > this.#asked + (this.#changed ? least : this.#pause); }
}
