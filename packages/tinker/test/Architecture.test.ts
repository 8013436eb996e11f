import { describe, expect, it } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import { dirname, join, relative, resolve } from "node:path"
import { fileURLToPath } from "node:url"

const src = fileURLToPath(new URL("../src", import.meta.url))

/** Lowest first. A module may import its own layer and every layer above it in this list, never one below it. */
const layers: ReadonlyArray<{ readonly name: string; readonly modules: ReadonlyArray<string> }> = [
  { name: "utilities", modules: ["internal/util/"] },
  {
    name: "errors",
    modules: [
      "TinkerError",
      "internal/core/Response",
      "internal/codec/Invalid",
      "internal/codec/Durations",
      "http/BaseUrl",
    ],
  },
  {
    name: "values and their encodings",
    modules: [
      "internal/codec/",
      "Checkpoint",
      "CustomLoss",
      "Datum",
      "Gradient",
      "Loss",
      "ModelInput",
      "Optimizer",
      "SampleResult",
      "SamplingParams",
      "TensorData",
      "TrainingResult",
    ],
  },
  { name: "protocol and HTTP ports", modules: ["protocol/", "http/", "internal/protocol/", "internal/chat/SseParser"] },
  { name: "pure core", modules: ["internal/core/"] },
  { name: "configuration", modules: ["TinkerConfig", "RetryPolicy", "TinkerMetrics"] },
  { name: "runtime", modules: ["internal/runtime/"] },
  { name: "requests", modules: ["internal/request/", "Credentials", "RateLimiter", "Transport"] },
  {
    name: "sessions and futures",
    modules: ["ApiFuture", "Session", "Telemetry", "TrainingJournal", "internal/futures/"],
  },
  {
    name: "rooms",
    modules: [
      "internal/training/",
      "internal/sampling/",
      "internal/management/",
      "internal/chat/",
      "internal/files/",
      "Pages",
      "SamplerHandle",
    ],
  },
  { name: "sampling client", modules: ["SamplingClient"] },
  { name: "clients", modules: ["AdminClient", "Archive", "ChatClient", "Download", "RestClient", "TrainingClient"] },
  { name: "cost", modules: ["Cost", "internal/cost/"] },
  { name: "entry points", modules: ["ServiceClient", "Tinker", "TinkerTenants", "index"] },
  { name: "testing", modules: ["testing/", "internal/scripted/"] },
]

/** Type-only imports that still point the wrong way. This list may only get shorter. */
const tolerated: ReadonlyArray<string> = [
  "internal/chat/ChatAssembler -> ChatClient",
  "internal/files/Transfer -> Download",
]

interface Edge {
  readonly from: string
  readonly to: string
  readonly typeOnly: boolean
}

const modulesBelow = (directory: string): ReadonlyArray<string> =>
  readdirSync(directory, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory()
      ? modulesBelow(join(directory, entry.name))
      : entry.name.endsWith(".ts")
        ? [join(directory, entry.name)]
        : [],
  )

const nameOf = (file: string): string => relative(src, file).replace(/\.ts$/, "")

const importPattern = /^(?:import|export)\s+(type\s)?[^"';]*?from\s+"([^"]+)"/gm

const importsOf = (file: string): ReadonlyArray<{ readonly specifier: string; readonly typeOnly: boolean }> =>
  [...readFileSync(file, "utf8").matchAll(importPattern)].map(([statement, type, specifier]) => ({
    specifier: specifier ?? "",
    // `import { type A, type B }` imports no value either.
    typeOnly: type !== undefined || /\{(\s*type \w+( as \w+)?,?)+\s*\}/.test(statement),
  }))

const files = modulesBelow(src)

/** The core may import values only from itself and from these modules. */
const allowedInCore = new Set(["effect/Option", "effect/Either"])

const impureImportsOf = (file: string): ReadonlyArray<string> =>
  importsOf(file)
    .filter(({ typeOnly }) => !typeOnly)
    .map(({ specifier }) => (specifier.startsWith(".") ? nameOf(resolve(dirname(file), specifier)) : specifier))
    .filter((module) => !allowedInCore.has(module) && !module.startsWith("internal/core/"))
    .map((module) => `${nameOf(file)} -> ${module}`)

/** The source without comments. */
const codeOf = (file: string): string =>
  readFileSync(file, "utf8")
    .replaceAll(/\/\*[^]*?\*\//g, "")
    .replaceAll(/\/\/.*/g, "")

const edges: ReadonlyArray<Edge> = files.flatMap((file) =>
  importsOf(file)
    .filter(({ specifier }) => specifier.startsWith("."))
    .map(({ specifier, typeOnly }) => ({
      from: nameOf(file),
      to: nameOf(resolve(dirname(file), specifier)),
      typeOnly,
    })),
)

/** The most specific entry wins: a whole name before a folder, a longer folder before a shorter one. */
const rankOf = (module: string): number => {
  let best = { rank: -1, length: 0 }
  layers.forEach(({ modules }, rank) => {
    for (const entry of modules) {
      const matches = entry.endsWith("/") ? module.startsWith(entry) : module === entry
      if (matches && entry.length > best.length) best = { rank, length: entry.length }
    }
  })
  return best.rank
}

const upward = edges.filter(({ from, to }) => rankOf(from) < rankOf(to))

/** Groups of modules that import each other, types included. */
const cycles = (considered: ReadonlyArray<Edge>): ReadonlyArray<ReadonlyArray<string>> => {
  const targets = new Map<string, Array<string>>()
  for (const { from, to } of considered) targets.set(from, [...(targets.get(from) ?? []), to])
  const index = new Map<string, number>()
  const low = new Map<string, number>()
  const stack: Array<string> = []
  const found: Array<ReadonlyArray<string>> = []
  const visit = (module: string): number => {
    const at = index.size
    index.set(module, at)
    low.set(module, at)
    stack.push(module)
    for (const to of targets.get(module) ?? []) {
      const reached = index.has(to) ? (stack.includes(to) ? index.get(to)! : at) : visit(to)
      low.set(module, Math.min(low.get(module)!, reached))
    }
    if (low.get(module) === at) {
      const group = stack.splice(stack.indexOf(module))
      if (group.length > 1) found.push(group.toSorted())
    }
    return low.get(module)!
  }
  for (const { from } of considered) if (!index.has(from)) visit(from)
  return found
}

describe("Architecture", () => {
  it("every module of effect-tinker belongs to a layer", () => {
    expect(files.length).toBeGreaterThan(100)
    expect(files.map(nameOf).filter((module) => rankOf(module) < 0)).toEqual([])
  })

  it("modules import values only from their own layer and the layers below", () => {
    expect(upward.filter(({ typeOnly }) => !typeOnly).map(({ from, to }) => `${from} -> ${to}`)).toEqual([])
  })

  it("modules import types only from their own layer and the layers below", () => {
    const types = upward.filter(({ typeOnly }) => typeOnly).map(({ from, to }) => `${from} -> ${to}`)
    expect(types.toSorted()).toEqual(tolerated.toSorted())
  })

  it("value imports have no cycle", () => {
    expect(cycles(edges.filter(({ typeOnly }) => !typeOnly))).toEqual([])
  })

  it("the core imports no effects, fibers, clocks or randomness", () => {
    const core = files.filter((file) => nameOf(file).startsWith("internal/core/"))
    expect(core.length).toBeGreaterThan(3)
    expect(core.flatMap(impureImportsOf)).toEqual([])
    const ambient = /\b(?:Date|performance|setTimeout|setImmediate|queueMicrotask|Promise|process)\b|Math\.random/
    expect(core.filter((file) => ambient.test(codeOf(file))).map(nameOf)).toEqual([])
  })

  it("an upward import and a cycle are detected, so the other checks can fail", () => {
    expect(rankOf("internal/util/Text")).toBeLessThan(rankOf("TrainingClient"))
    const loop = [
      { from: "a", to: "b", typeOnly: false },
      { from: "b", to: "a", typeOnly: false },
      { from: "b", to: "c", typeOnly: false },
    ]
    expect(cycles(loop)).toEqual([["a", "b"]])
  })
})
