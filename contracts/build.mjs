// Compiles src/ with npm's solc under fixed settings and writes out/<Name>.json: {abi, bytecode, deployedBytecode}.
//
//   node build.mjs           write out/
//   node build.mjs --check   write nothing; fail when out/ is not what the sources compile to
//
// The same sources give the same bytes on every machine: the compiler is pinned by package-lock.json, no metadata
// hash is appended, and paths enter neither bytecode nor ABI.
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import solc from "solc";

const root = dirname(fileURLToPath(import.meta.url));
const out = join(root, "out");

const settings = {
  optimizer: { enabled: true, runs: 1000 },
  viaIR: true,
  evmVersion: "cancun",
  metadata: { bytecodeHash: "none", appendCBOR: false },
  outputSelection: { "*": { "*": ["abi", "evm.bytecode.object", "evm.deployedBytecode.object"] } },
};

const paths = readdirSync(join(root, "src"), { recursive: true })
  .filter((name) => name.endsWith(".sol"))
  .map((name) => "src/" + name.replaceAll("\\", "/"))
  .sort();

/** Every contract that src/ defines, as name → contents of its file in out/. */
function compile() {
  const sources = Object.fromEntries(paths.map((path) => [path, { content: read(join(root, path)) }]));
  const findImport = (path) => {
    const file = join(root, "node_modules", path.replace(/^permit2\//, "@uniswap/v4-periphery/lib/permit2/"));
    return existsSync(file) ? { contents: read(file) } : { error: "not found" };
  };
  const input = { language: "Solidity", sources, settings };
  const result = JSON.parse(solc.compile(JSON.stringify(input), { import: findImport }));
  const faults = (result.errors ?? []).filter((e) => e.severity !== "info");
  if (faults.length > 0) {
    throw new Error(faults.map((e) => e.formattedMessage).join("\n"));
  }
  const files = new Map();
  for (const path of paths) {
    for (const [name, contract] of Object.entries(result.contracts[path] ?? {})) {
      if (contract.evm.bytecode.object === "") continue; // an interface
      if (files.has(name)) throw new Error(`two contracts are named ${name}`);
      files.set(name, render(contract));
    }
  }
  return files;
}

function render({ abi, evm }) {
  const artifact = {
    abi,
    bytecode: "0x" + evm.bytecode.object,
    deployedBytecode: "0x" + evm.deployedBytecode.object,
  };
  return JSON.stringify(artifact, null, 1) + "\n";
}

function read(file) {
  return readFileSync(file, "utf8");
}

/** The names of files in out/ that are not what they should be. */
function differing(files) {
  const found = existsSync(out) ? readdirSync(out).sort() : [];
  const wanted = [...files.keys()].map((name) => name + ".json");
  const stale = found.filter((name) => !wanted.includes(name));
  const changed = wanted.filter((name) => !found.includes(name) || read(join(out, name)) !== files.get(name.slice(0, -5)));
  return [...changed, ...stale];
}

const files = compile();
if (process.argv.includes("--check")) {
  const names = differing(files);
  if (names.length > 0) {
    console.error(`contracts/out is not what the sources compile to (run make contracts): ${names.join(", ")}`);
    process.exit(1);
  }
} else {
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out);
  for (const [name, contents] of files) writeFileSync(join(out, name + ".json"), contents);
}
