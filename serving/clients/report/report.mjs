#!/usr/bin/env node
// Sends a bug report and pays its deposit with the reference client of x402.
//
//   PAYER_KEY=0x… npx --yes --install-links ./serving/clients/report http://localhost:4400 [report.json]
//
// It prints what the service answers as JSON: {"status", "payment", "body"}.
import { readFile } from "node:fs/promises";
import { ExactEvmScheme } from "@x402/evm";
import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";

const [base, file] = process.argv.slice(2);
const key = process.env.PAYER_KEY;
if (!base || !key) {
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

const client = new x402Client().register("eip155:8453", new ExactEvmScheme(privateKeyToAccount(key)));
// Without this the client refuses to pay more than a dollar.
client.setSpendControls({ maxAmountPerPayment: process.env.MAX_PAYMENT ?? "$15" });

const response = await wrapFetchWithPayment(fetch, client)(base + "/reports", {
  method: "POST", headers: { "Content-Type": "application/json" }, body,
});
const paid = response.headers.get("PAYMENT-RESPONSE");
console.log(JSON.stringify({
  status: response.status, payment: paid ? decodePaymentResponseHeader(paid) : null, body: await response.json(),
}, null, 1));
