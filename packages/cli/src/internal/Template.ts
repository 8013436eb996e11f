/** The files of a new project: a program, its data, a configuration and a test. */

/** The versions of the packages that the program uses beside ours: those that ours accept. */
export const versions = {
  effect: "^3.22.2",
  "@effect/platform": "^0.97.2",
  "@effect/platform-node": "^0.108.2",
} as const

const ours = ["@effect-tinker/cli", "@effect-tinker/recipes", "@effect-tinker/server", "@effect-tinker/tokenizer"]

const manifest = (name: string, version: string) => ({
  name,
  private: true,
  type: "module",
  scripts: {
    train: "tinkerfx train sft --config sft.yaml",
    chat: "tinkerfx chat runs/sft",
    start: "tsx src/main.ts",
    test: "node --import tsx --test test/*.test.ts",
    check: "tsc",
  },
  dependencies: {
    ...Object.fromEntries(ours.map((dependency) => [dependency, `^${version}`])),
    ...versions,
  },
  devDependencies: { "@types/node": "^20.19.0", tsx: "^4.20.0", typescript: "^5.9.0" },
  engines: { node: ">=20.19" },
})

const typescript = {
  compilerOptions: {
    module: "NodeNext",
    target: "ES2022",
    lib: ["ES2023"],
    strict: true,
    exactOptionalPropertyTypes: true,
    allowImportingTsExtensions: true,
    skipLibCheck: true,
    noEmit: true,
    types: ["node"],
  },
  include: ["src", "test"],
}

const rows = Array.from({ length: 24 }, (_, i) => ({
  messages: [
    { role: "user", content: `What is ${i % 7} + 2?` },
    { role: "assistant", content: `Ahoy! ${(i % 7) + 2}, captain.` },
  ],
}))

const configuration = `# The settings of 'npm run train'; 'npx tinkerfx train sft --help' lists all of them.
data: data/train.jsonl
# The embedded engine: no server, no key. Remove this line and name a model of the service to train there.
local: true
rank: 8
epochs: 2
batchSize: 8
learningRate: 0.008
heldOut: 4
`

/** Programs import the barrel, which the modules of our packages do not; a test looks for that in their text. */
const effect = "effect"

const training = `import { Supervised, Table } from "@effect-tinker/recipes"
import { Message, Renderers, TokenizerBackend } from "@effect-tinker/tokenizer"
import { Effect, Stream } from "${effect}"

/** The events of a training run: the same settings as in sft.yaml. */
export const events = (file: string, stop?: Effect.Effect<void>) =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const { model, renderer } = yield* Effect.provide(Renderers.local, TokenizerBackend.layer)
      const data = yield* Table.file(file, Message.Conversation)
      const config = { model: model.name, rank: 8, epochs: 2, batchSize: 8, learningRate: 8e-3, heldOut: 4 }
      return Supervised.train({ config, renderer, data, stop })
    }),
  )
`

const main = `import { NodeContext } from "@effect/platform-node"
import { RunDirectory, RunMain } from "@effect-tinker/recipes"
import { LocalTinker } from "@effect-tinker/server"
import { Layer, Stream } from "${effect}"
import { events } from "./training.ts"

// For the hosted service: NodeTinker.layerConfig() of @effect-tinker/node, and TINKER_API_KEY.
const clients = LocalTinker.layerTinker({ dataDirectory: "runs/main/server" })

// The same program continues the run after Ctrl-C or a crash.
const layer = Layer.mergeAll(RunDirectory.layer("runs/main"), clients, NodeContext.layer)

await RunMain.run((stop) => Stream.provideLayer(events("data/train.jsonl", stop), layer))
`

const test = `import assert from "node:assert/strict"
import { test } from "node:test"
import { NodeContext } from "@effect/platform-node"
import { RunStore } from "@effect-tinker/recipes"
import { LocalTinker } from "@effect-tinker/server"
import { Effect, Stream } from "${effect}"
import { events } from "../src/training.ts"

test("the model learns the data", async () => {
  const losses = await events("data/train.jsonl").pipe(
    Stream.filter((event) => event._tag === "Evaluation"),
    Stream.map(({ metrics }) => metrics["test/nll"] ?? NaN),
    Stream.runCollect,
    Effect.provide([RunStore.layerMemory, LocalTinker.layerTinker(), NodeContext.layer]),
    Effect.runPromise,
  )
  const [before, after] = [[...losses].at(0), [...losses].at(-1)]
  assert.ok(Number(after) < Number(before) / 2, \`\${before} became \${after}\`)
})
`

const readme = (name: string) => `# ${name}

A project for fine-tuning with Tinker. Everything runs on this machine: no key is needed.

\`\`\`sh
npm install
npm test          # trains a small model and checks that it learns
npm run train     # the same with the settings in sft.yaml; the run is in runs/sft
npm run chat      # talks to what was trained
\`\`\`

- \`sft.yaml\`: the settings of \`npm run train\`
- \`data/train.jsonl\`: conversations, one in each line; \`npx tinkerfx lint data/train.jsonl\` checks them
- \`src/training.ts\`, \`src/main.ts\`: the same run as a program (\`npm start\`)
- \`test/training.test.ts\`: a test on the embedded engine

To train on the hosted service: \`npx tinkerfx auth login\`, then name a model in \`sft.yaml\` instead of \`local: true\`.
`

const json = (value: unknown) => `${JSON.stringify(value, null, 2)}\n`

/** Returns the files of a project by their paths. */
export const files = (name: string, version: string): ReadonlyMap<string, string> =>
  new Map([
    ["package.json", json(manifest(name, version))],
    ["tsconfig.json", json(typescript)],
    [".gitignore", "node_modules\nruns\n"],
    ["README.md", readme(name)],
    ["sft.yaml", configuration],
    ["data/train.jsonl", rows.map((row) => `${JSON.stringify(row)}\n`).join("")],
    ["src/training.ts", training],
    ["src/main.ts", main],
    ["test/training.test.ts", test],
  ])

/** Makes a name of a package from that of a directory. */
export const nameOf = (directory: string): string =>
  directory
    .toLowerCase()
    .replaceAll(/[^a-z0-9._-]+/g, "-")
    .replace(/^[._-]+/, "") || "project"
