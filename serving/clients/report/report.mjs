#!/usr/bin/env node
// Sends a bug report and pays its deposit with the reference client of x402.
//
//   PAYER_KEY=0x… npx --yes --install-links ./serving/clients/report http://localhost:4400 [report.json]
//
// It prints what the service answers as JSON: {"status", "payment", "body"}. While that is 503 it sends the same request again,
// for PATIENCE_SECONDS (600), and then prints how to go on with PAYMENT_SIGNATURE.
import { readFile } from "node:fs/promises";
import { ExactEvmScheme } from "@x402/evm";
import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";

const [base, file] = process.argv.slice(2);
const key = process.env.PAYER_KEY;
let signature = process.env.PAYMENT_SIGNATURE;
if (!base || !key && !signature) {
  console.error("usage: PAYER_KEY=0x… npx --yes --install-links ./serving/clients/report <the service's URL> [report.json]");
  process.exit(2);
}

const example = {
  title: "An example of a report",
  severity: "LOW",
  contracts: ["0x209693Bc6afc0C5328bA36FaF03C514EF312287C"],
  forkBlock: 1,
  description: "What is wrong, in **Markdown**.",
  impact: "What it costs whom.",
  contact: { email: "reporter@example.com" },
  agent: { name: "report.mjs" },
};
const body = file ? await readFile(file, "utf8") : JSON.stringify(example);

const until = Date.now() + Number(process.env.PATIENCE_SECONDS ?? 600) * 1000;
const attempt = (request) => fetch(request.clone(), { signal: AbortSignal.timeout(90_000) });

// While the chain is slow the service answers 503. What was signed may be charged by then: only the same request, with the same
// payment, gets its ticket, and a new payment would be another charge.
let undecided = false;
async function patiently(input, init) {
  const request = new Request(input, init);
  if (!request.headers.has("PAYMENT-SIGNATURE")) return attempt(request);
  signature = request.headers.get("PAYMENT-SIGNATURE");
  for (;;) {
    const [response, fault] = await attempt(request).then((r) => [r], (f) => [null, f]);
    if (response && ![502, 503, 504].includes(response.status)) return response;
    undecided = true;
    const seconds = Math.max(Number(response?.headers.get("Retry-After")) || 1, 1);
    if (Date.now() + seconds * 1000 > until) {
      if (fault) throw fault;
      return response;
    }
    console.error(`${fault ? fault.message : `status ${response.status}`}: the same request again in ${seconds} s`);
    await response?.arrayBuffer();
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
}

function payingFetch() {
  const client = new x402Client().register("eip155:8453", new ExactEvmScheme(privateKeyToAccount(key)));
  // Without this the client refuses to pay more than a dollar.
  client.setSpendControls({ maxAmountPerPayment: process.env.MAX_PAYMENT ?? "$15" });
  return wrapFetchWithPayment(patiently, client);
}

process.on("exit", () => {
  if (!undecided) return;
  process.exitCode ||= 1;
  console.error(`The deposit may be charged. Do not pay again: send the same report with the same payment until there is a ticket:
PAYMENT_SIGNATURE=${signature} npx --yes --install-links ./serving/clients/report ${base}${file ? " " + file : ""}`);
});

const headers = { "Content-Type": "application/json" };
if (signature) headers["PAYMENT-SIGNATURE"] = signature;
const send = signature ? patiently : payingFetch();
const response = await send(base + "/reports", { method: "POST", headers, body });
undecided &&= response.status === 429 || response.status >= 500;
const paid = response.headers.get("PAYMENT-RESPONSE");
console.log(JSON.stringify({
  status: response.status, payment: paid ? decodePaymentResponseHeader(paid) : null, body: await response.json(),
}, null, 1));
