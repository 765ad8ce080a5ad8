import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type Plugin } from "vite";

/** Writes a compressed copy beside each file, so that the service never compresses anything itself. */
function compressedCopies(): Plugin {
  return {
    name: "compressed-copies",
    apply: "build",
    closeBundle() {
      for (const name of readdirSync("dist", { recursive: true, encoding: "utf8" })) {
        if (!/\.(js|css|html|svg)$/.test(name)) continue;
        const path = join("dist", name);
        const content = readFileSync(path);
        const params = { [constants.BROTLI_PARAM_QUALITY]: 11 };
        writeFileSync(`${path}.br`, brotliCompressSync(content, { params }));
        writeFileSync(`${path}.gz`, gzipSync(content, { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  plugins: [svelte(), compressedCopies()],
  build: {
    // The oldest browser that is supported: one of two years ago.
    target: "chrome130",
    modulePreload: { polyfill: false },
    // The page's content security policy forbids `data:` scripts and fonts.
    assetsInlineLimit: 0,
  },
  // `npm run dev` shows the page with the data of a service at this address.
  server: { proxy: { "/api": "http://127.0.0.1:33080" } },
});
