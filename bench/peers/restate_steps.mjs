// Restate: its server and a service of its TypeScript SDK, each step a `ctx.run`. Speaks what `steps.py` describes.
// Server and service are one process group, so that they are killed together.

import { spawn } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as restate from "@restatedev/restate-sdk";

const [mode, jobs, steps] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const place = process.env.STEPS_PLACE;
const say = (line) => process.stdout.write(`${line}\n`);

// Standard input ends when whoever started this does.
process.stdin.resume().on("end", () => process.kill(0, "SIGKILL"));

function body(number) {
  if (mode !== "run" && number === steps - 1) {
    say("step");
    if (mode === "hang") return new Promise(() => {});
  }
  return { ok: true };
}

const service = restate.service({
  name: "steps",
  handlers: {
    job: async (context, count) => {
      for (let number = 0; number < count; number++) {
        await context.run(`s${number}`, () => body(number));
      }
    },
  },
  options: { journalRetention: { hours: 1 }, idempotencyRetention: { hours: 1 }, inactivityTimeout: { hours: 1 } },
});

const freePort = () =>
  new Promise((done) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });

async function ports() {
  const file = join(place, "ports.json");
  if (existsSync(file)) return JSON.parse(readFileSync(file, "utf8"));
  const free = [await freePort(), await freePort(), await freePort(), await freePort()];
  writeFileSync(file, JSON.stringify(free));
  return free;
}

async function until(look) {
  for (;;) {
    const found = await look().catch(() => undefined);
    if (found) return found;
    await new Promise((done) => setTimeout(done, 5));
  }
}

const post = (url, value) =>
  fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json" },
    body: JSON.stringify(value),
  });

say("ready");
const [ingress, admin, node, own] = await ports();
const binary = join(
  dirname(fileURLToPath(import.meta.url)),
  "node_modules/@restatedev/restate-server-linux-x64/bin/restate-server",
);
const server = spawn(binary, ["--no-logo", "--base-dir", join(place, "restate"), "--node-name", "one"], {
  env: {
    ...process.env,
    RESTATE_LISTEN_MODE: "tcp",
    RESTATE_BIND_IP: "127.0.0.1",
    RESTATE_BIND_PORT: String(node),
    RESTATE_INGRESS__BIND_PORT: String(ingress),
    RESTATE_ADMIN__BIND_PORT: String(admin),
    RESTATE_DISABLE_TELEMETRY: "true",
    RUST_LOG: "error",
  },
  stdio: ["ignore", "ignore", "inherit"],
});
server.on("exit", (code) => process.exit(code ?? 1));
await restate.serve({ services: [service], port: own });

if (mode === "resume") {
  await until(async () => false);
}
await until(async () => (await fetch(`http://127.0.0.1:${admin}/health`)).ok);
await until(async () => (await post(`http://127.0.0.1:${admin}/deployments`, { uri: `http://127.0.0.1:${own}` })).ok);
await until(async () => (await fetch(`http://127.0.0.1:${ingress}/restate/health`)).ok);

async function run(jobs, steps) {
  const calls = Array.from({ length: jobs }, () => post(`http://127.0.0.1:${ingress}/steps/job`, steps));
  for (const reply of await Promise.all(calls)) {
    if (!reply.ok) throw new Error(await reply.text());
  }
}
// The first call waits for the server to be quite ready: it is not timed.
if (mode === "run") await run(1, 1);
const begun = performance.now();
await run(jobs, steps);
const seconds = (performance.now() - begun) / 1000;
const query = "SELECT count(*) AS n FROM sys_journal WHERE entry_type = 'Command: Run'";
const rows = await (await post(`http://127.0.0.1:${admin}/query`, { query })).json();
say(`done ${seconds} ${rows.rows[0].n - 1}`);
server.removeAllListeners("exit");
server.kill("SIGKILL");
process.exit(0);
