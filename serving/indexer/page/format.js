// Amounts are BigInts of raw units and become text here, exactly or shortened. Times are the chain's.

const group = new Intl.NumberFormat("en-US");
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 4 });

export const count = (n) => group.format(n);

// amount shows raw units with so many decimals, cut to `digits` after the point.
export function amount(raw, decimals, digits = 2) {
  let n = BigInt(raw);
  const sign = n < 0n ? "−" : "";
  if (n < 0n) n = -n;
  const unit = 10n ** BigInt(decimals);
  const whole = n / unit;
  if (whole >= 10_000_000n) return sign + compact.format(whole);
  let rest = (n % unit).toString().padStart(decimals, "0");
  rest = whole >= 1000n ? rest.slice(0, Math.min(digits, 2)) : rest.slice(0, digits);
  if (whole === 0n && n > 0n && /^0*$/.test(rest)) return sign + "<0." + "0".repeat(Math.max(digits - 1, 0)) + "1";
  rest = digits <= 2 ? rest : rest.replace(/0+$/, "");
  return sign + group.format(whole) + (rest ? "." + rest : "");
}

// exact shows all digits that there are.
export function exact(raw, decimals) {
  const n = BigInt(raw);
  const unit = 10n ** BigInt(decimals);
  const rest = decimals ? (n % unit).toString().padStart(decimals, "0").replace(/0+$/, "") : "";
  return group.format(n / unit) + (rest ? "." + rest : "");
}

export const usdg = (raw) => amount(raw, 6);
export const wei = (raw) => amount(raw, 18, 4);
export const price = (text, digits = 5) => (text === null ? "—" : Number(text).toLocaleString("en-US", { maximumSignificantDigits: digits }));

// costBps is what the borrower pays above the price, as the chain's integers have it.
export const costBps = (cap, at) => (BigInt(at) === 0n ? 0n : ((BigInt(cap) - BigInt(at)) * 10_000n) / BigInt(at));
export const percent = (bps) => (Number(bps) / 100).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 }) + " %";

export const short = (hex) => hex.slice(0, 6) + "…" + hex.slice(-4);

const steps = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

// span is a duration in its two largest units.
export function span(seconds) {
  let rest = Math.abs(Math.round(seconds));
  const parts = [];
  for (const [name, size] of steps) {
    if (rest >= size || (name === "s" && !parts.length)) {
      parts.push(Math.floor(rest / size) + " " + name);
      rest %= size;
    }
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

export const days = (seconds) => (seconds % 86400 === 0 ? seconds / 86400 + " d" : span(seconds));

// brief is a time as seen from now, in one unit.
export function brief(t, now) {
  const [name, size] = steps.find(([, s]) => Math.abs(t - now) >= s) ?? steps.at(-1);
  const n = Math.round(Math.abs(t - now) / size);
  return n === 0 ? "now" : t > now ? `in ${n} ${name}` : `${n} ${name} ago`;
}

// when is a time as seen from the chain's now.
export function when(t, now) {
  const d = t - now;
  if (Math.abs(d) < 1) return "now";
  return d > 0 ? "in " + span(d) : span(d) + " ago";
}

export const date = (t) => new Date(t * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC";
