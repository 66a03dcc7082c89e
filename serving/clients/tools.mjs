// Lists the tools of an MCP server and calls each with the official SDK.
//
//   node tools.mjs http://localhost:4300/mcp '{"get_deal": {"dealId": "1"}}'
//
// It prints what each tool answers as JSON: {"<tool>": {"isError", "structuredContent"}}. The SDK holds answers to the
// schemas that the tools are listed with.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, given] = process.argv.slice(2);
if (!url) {
  console.error("usage: node tools.mjs <the server's URL> [arguments by tool, as JSON]");
  process.exit(2);
}
const client = new Client({ name: "lienstream-clients", version: "1.0.0" });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const { tools } = await client.listTools();
const { resources } = await client.listResources();
for (const { uri } of resources) await client.readResource({ uri });
const answers = {};
for (const { name } of tools) {
  const { isError = false, structuredContent } = await client.callTool({ name, arguments: JSON.parse(given ?? "{}")[name] ?? {} });
  answers[name] = { isError, structuredContent };
}
await client.close();
console.log(JSON.stringify(answers, null, 1));
