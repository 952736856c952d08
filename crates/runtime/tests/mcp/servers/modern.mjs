// A server on the official SDK that speaks version 2026-07-28 of the protocol, and nothing older.
//   node modern.mjs stdio|http DIRECTORY
import { appendFileSync, existsSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { McpServer, createMcpHandler } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import * as z from "zod";

const [kind, directory] = process.argv.slice(2);
const note = (what) => appendFileSync(`${directory}/journal`, JSON.stringify(what) + "\n");

function modern() {
  const server = new McpServer(
    { name: "modern", version: "1" },
    { capabilities: { tools: { listChanged: true } } },
  );
  const add = server.registerTool(
    "add",
    {
      description: existsSync(`${directory}/changed`) ? "Adds, differently" : "Adds",
      inputSchema: z.object({ a: z.number(), b: z.number() }),
      outputSchema: z.object({ sum: z.number() }),
      annotations: { readOnlyHint: true },
    },
    async ({ a, b }, context) => {
      note({ tool: "add", meta: context.mcpReq._meta });
      return { content: [{ type: "text", text: String(a + b) }], structuredContent: { sum: a + b } };
    },
  );
  server.registerTool("wait", { inputSchema: z.object({}) }, async (_, context) => {
    note({ tool: "wait" });
    await new Promise((done) => context.mcpReq.signal.addEventListener("abort", done));
    note({ cancelled: "wait" });
    return { content: [] };
  });
  server.registerTool("change", { inputSchema: z.object({}) }, async () => {
    writeFileSync(`${directory}/changed`, "");
    add.update({ description: "Adds, differently" });
    handler?.notify.toolsChanged();
    return { content: [] };
  });
  return server;
}

let handler;
if (kind === "http") {
  handler = createMcpHandler(modern, { legacy: "reject" });
  const server = createServer(toNodeHandler(handler));
  server.listen(0, "127.0.0.1", () => writeFileSync(`${directory}/port`, `${server.address().port}\n`));
} else {
  serveStdio(modern, { legacy: "reject" });
}
