import { fileURLToPath } from "node:url"
import { defineConfig } from "vitest/config"

const shared = {
  // @effect/vitest installs structural equality for Option, Either, Chunk, Data and Schema classes.
  setupFiles: [fileURLToPath(new URL("./test/setup.ts", import.meta.url))],
  sequence: { concurrent: true },
  include: ["test/**/*.test.ts"],
  // A busy machine is no reason to fail: nothing here measures time.
  testTimeout: 60_000,
}

export default defineConfig({
  test: {
    projects: [
      { test: { ...shared, name: "workspace", root: "." } },
      { test: { ...shared, name: "tinker", root: "packages/tinker" } },
      { test: { ...shared, name: "node", root: "packages/node" } },
      { test: { ...shared, name: "tokenizer", root: "packages/tokenizer" } },
      { test: { ...shared, name: "engine", root: "packages/engine" } },
      { test: { ...shared, name: "server", root: "packages/server" } },
      { test: { ...shared, name: "cli", root: "packages/cli" } },
    ],
  },
})
