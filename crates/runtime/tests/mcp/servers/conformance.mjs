// The conformance suite of the protocol. It asks for a newer Node than Debian has: for a class that is not global there
// yet, and for one function of `fs` that a command for its maintainers uses. Where that is missing, the suite is loaded
// without it.
import buffer from "node:buffer";
import fs from "node:fs";

globalThis.File ??= buffer.File;
const suite = new URL("./node_modules/@modelcontextprotocol/conformance/dist/index.js", import.meta.url);
if (fs.globSync) {
  await import(suite);
} else {
  const copy = new URL(`./without-glob-${process.pid}.js`, suite);
  fs.writeFileSync(copy, fs.readFileSync(suite, "utf8").replace(/globSync as \w+,/, ""));
  process.on("exit", () => fs.rmSync(copy, { force: true }));
  await import(copy);
}
