import { NodeContext } from "@effect/platform-node"
import { describe, expect, it } from "@effect/vitest"
import {
  Decisions,
  Distillation,
  Preference,
  PromptDistillation,
  Rl,
  RunConfig,
  Supervised,
} from "@effect-tinker/recipes"
import { Effect, Either, Option, Schema } from "effect"
import { fileOf } from "./support/Files.ts"

const flags = (...argv: ReadonlyArray<string>) => RunConfig.parseFlags(Rl.Config, argv)
const problem = (...argv: ReadonlyArray<string>) => Either.getOrThrow(Either.flip(flags(...argv))).message
const load = (...argv: ReadonlyArray<string>) => RunConfig.load(Supervised.Config, argv)

describe("RunConfig", () => {
  it("flags of all types are read, with a value after a space or an equals sign", () => {
    const read = flags(
      "--learning-rate",
      "1e-4",
      "--loss=ppo",
      "--normalize-advantages",
      "--no-drop-constant-groups",
      "--checkpoints.every-steps",
      "20",
      "--checkpoints.ttl-seconds",
      "null",
      "--checkpoints.best.metric=x",
      "data.jsonl",
      "--groupSize",
      "4",
      "--max_tokens",
      "9",
      "--config",
      "a.yaml",
      "--",
      "--model",
    )
    expect(read).toEqual(
      Either.right({
        values: {
          learningRate: 1e-4,
          loss: "ppo",
          normalizeAdvantages: true,
          dropConstantGroups: false,
          checkpoints: { everySteps: 20, ttlSeconds: null, best: { metric: "x" } },
          groupSize: 4,
          maxTokens: 9,
        },
        file: Option.some("a.yaml"),
        isHelp: false,
        rest: ["data.jsonl", "--model"],
      }),
    )
  })

  it("a flag that does not exist, lacks its value or has a wrong one is refused by its name", () => {
    expect(problem("--lerning-rate", "1")).toBe(
      "--lerning-rate: there is no such setting; did you mean --learning-rate?",
    )
    expect(problem("--checkpoints.every-step", "1")).toContain("did you mean --checkpoints.every-steps?")
    expect(problem("--zzz")).toBe("--zzz: there is no such setting")
    expect(problem("--learning-rate")).toBe("--learning-rate: needs a value")
    expect(problem("--learning-rate", "--loss")).toBe("--learning-rate: needs a value")
    expect(problem("--learning-rate", "fast")).toBe("--learning-rate: expected a number, got fast")
    expect(problem("--loss", "mse")).toContain("expected importance_sampling or ppo")
  })

  it("help has a line for every setting of a recipe, with its type, default and meaning", () => {
    const text = RunConfig.help(Supervised.Config)
    expect(text).toMatch(/^ {2}--model <string> +The base model, e\.g\. Qwen\/Qwen3-8B\. Required\.$/m)
    expect(text).toMatch(/^ {2}--rank <number> +The rank of the adapters\. Default: 32\.$/m)
    expect(text).toMatch(/^ {2}--batch-size <number> +How many conversations a pass has\. Default: 128\.$/m)
    expect(text).toMatch(/^ {2}--checkpoints\.every-steps <number> +Saves .* Default: 20\.$/m)
    expect(RunConfig.settings(Supervised.Config).filter(({ isRequired }) => isRequired)).toHaveLength(1)
    expect(text).toMatch(/--on-long-row <truncate\|skip\|fail>/)
    for (const { Config } of [Supervised, Preference, Distillation, PromptDistillation, Decisions])
      for (const { description, name } of RunConfig.settings(Config))
        expect({ name, isDescribed: Option.isSome(description) }).toEqual({ name, isDescribed: true })
  })

  it("every setting of every recipe has a description", () => {
    const configs = [Supervised, Rl, Preference, Distillation, PromptDistillation, Decisions].map(
      ({ Config }) => Config,
    )
    const silent = configs.flatMap((config) =>
      RunConfig.settings(config).flatMap(({ description, name }) => (Option.isNone(description) ? [name] : [])),
    )
    expect(silent.filter((name) => name !== "learningRate")).toEqual([])
  })

  it.scoped("a wrong value is named with what is expected", () =>
    Effect.gen(function* () {
      const problem = (settings: object) =>
        Effect.gen(function* () {
          const path = yield* fileOf(JSON.stringify({ model: "m", ...settings }), ".json")
          return (yield* Effect.flip(load("--config", path))).message.replace(`${path}: `, "")
        })
      expect(yield* problem({ rank: 1.5 })).toBe("rank: expected an integer, got 1.5")
      expect(yield* problem({ schedule: "Linear" })).toBe(
        'schedule: expected "linear" or "cosine" or "constant", got "Linear"',
      )
      expect(yield* problem({ rank: 0, seed: -1 })).toBe(
        "rank: expected a positive number, got 0; seed: expected a non-negative number, got -1",
      )
      expect(yield* problem({ checkpoints: { everySteps: -3 } })).toBe(
        "checkpoints.everySteps: expected a non-negative number, got -3",
      )
      expect(yield* problem({ checkpoints: { best: { metric: "test/nll" } } })).toBe(
        "checkpoints.best.direction: is missing",
      )
    }).pipe(Effect.provide(NodeContext.layer)),
  )

  it("a setting that is at its default has the value that the schema decodes it to", () => {
    const decoded = Schema.decodeSync(Supervised.Config)({ model: "m" })
    const defaults = RunConfig.settings(Supervised.Config).flatMap((setting) =>
      Option.isSome(setting.default) && Object.hasOwn(decoded, setting.name)
        ? [[setting.name, setting.default.value]]
        : [],
    )
    expect(defaults.length).toBeGreaterThan(8)
    for (const [name, value] of defaults)
      expect([name, String(Object.entries(decoded).find(([key]) => key === name)?.[1])]).toEqual([name, value])
  })

  it.scoped("flags replace settings of a YAML or JSON file, part by part", () =>
    Effect.gen(function* () {
      const yaml = yield* fileOf(
        "model: m\nlearningRate: 1e-4\ncheckpoints:\n  everySteps: 5\n  everyTokens: 7\n",
        ".yaml",
      )
      const json = yield* fileOf(
        JSON.stringify({ model: "m", learningRate: 1e-4, checkpoints: { everySteps: 5, everyTokens: 7 } }),
        ".json",
      )
      for (const path of [yaml, json]) {
        const loaded = yield* load("--config", path, "--checkpoints.every-steps", "9", "rows.jsonl")
        expect(loaded).toEqual({
          _tag: "Config",
          config: { model: "m", learningRate: 1e-4, checkpoints: { everySteps: 9, everyTokens: 7 } },
          rest: ["rows.jsonl"],
        })
      }
      expect(yield* load("--help")).toMatchObject({ _tag: "Help", text: expect.stringContaining("--config <file>") })
    }).pipe(Effect.provide(NodeContext.layer)),
  )

  it.scoped("a file with a misspelled setting, a wrong value or another format is refused", () =>
    Effect.gen(function* () {
      const refused = (text: string, suffix: string) =>
        Effect.gen(function* () {
          const error = yield* Effect.flip(load("--config", yield* fileOf(text, suffix)))
          expect(error._tag).toBe("InvalidInput")
          return error.message
        })
      expect(yield* refused("model: m\nlearning_rate: 1", ".yaml")).toContain("did you mean learningRate?")
      expect(yield* refused("model: m\ncheckpoints: { everyStep: 1 }", ".yml")).toContain(
        "checkpoints.everyStep: there is no such setting; did you mean checkpoints.everySteps?",
      )
      expect(yield* refused('{"model":"m","rank":"high"}', ".json")).toMatch(/: rank: expected number, got "high"$/)
      expect(yield* refused("{", ".json")).toContain("JSON")
      expect(yield* refused("- 1", ".yaml")).toContain("expected an object of settings")
      expect(yield* refused("model = 1", ".toml")).toContain(".json, .yaml or .yml")
      expect((yield* Effect.flip(load())).message).toBe("flags: model: is missing")
    }).pipe(Effect.provide(NodeContext.layer)),
  )
})
