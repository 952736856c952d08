// Debian's Node 18 has no global `crypto`, which the web servers here take for granted.
globalThis.crypto ??= require("node:crypto").webcrypto;
