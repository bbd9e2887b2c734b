// Unpacks the browser of @sparticuz/chromium to `unpacked/chromium`, and the libraries and fonts that it
// needs where the system has none.

import { spawnSync } from "node:child_process";
import { createReadStream, createWriteStream } from "node:fs";
import { mkdir, rename, rm } from "node:fs/promises";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress } from "node:zlib";

const packed = new URL("node_modules/@sparticuz/chromium/bin/", import.meta.url);
const into = new URL("unpacked/", import.meta.url);

await rm(into, { recursive: true, force: true });
await mkdir(into);
const unpack = (name, to, mode) =>
  pipeline(createReadStream(new URL(name, packed)), createBrotliDecompress(), createWriteStream(to, { mode }));
for (const name of ["al2023", "fonts", "swiftshader"]) {
  const tar = new URL(`${name}.tar`, into);
  await unpack(`${name}.tar.br`, tar, 0o600);
  const { status } = spawnSync("tar", ["--extract", "--file", tar.pathname, "--directory", into.pathname], { stdio: "inherit" });
  if (status !== 0) throw new Error(`${name}.tar.br could not be unpacked`);
  await rm(tar);
}
// The browser is unpacked last and then renamed, so an interrupted run leaves no browser.
const partial = new URL("chromium.part", into);
await unpack("chromium.br", partial, 0o755);
await rename(partial, new URL("chromium", into));
