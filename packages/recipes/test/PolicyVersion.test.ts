import { expect, it } from "@effect/vitest"
import { Rl, Run, RunStore } from "@effect-tinker/recipes"
import { Effect, Exit, Schema, Stream } from "effect"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import { dying } from "./support/Dying.ts"
import { scripted, small } from "./support/Rollouts.ts"
import { clients, onServer } from "./support/Scripted.ts"

/** Evaluations sample from prompts that begin with this token and end with the version that they get. */
const evaluation = 900

const train = (store: RunStore.Service, config: Rl.Input) =>
  Rl.train({
    config,
    task: scripted().task,
    tasks: "scripted",
    decode: (tokens) => Effect.succeed(tokens.join(" ")),
    evaluations: [
      {
        name: "test",
        everySteps: 2,
        evaluate: (sampler, { step }) =>
          Effect.as(Effect.orDie(sampler.sample({ prompt: [evaluation, step], params: { maxTokens: 2 } })), {
            metrics: { asked: 1 },
            samples: [{ prompt: `question ${step}`, tokens: [] }],
          }),
      },
    ],
  }).pipe(Stream.runDrain, Effect.scoped, Effect.provideService(RunStore.RunStore, store), Effect.provide(clients))

const Sampled = Schema.Struct({
  sampling_session_id: Schema.String,
  prompt: Schema.Struct({ chunks: Schema.Array(Schema.Struct({ tokens: Schema.Array(Schema.Number) })) }),
})
const Sampler = Schema.Struct({
  session_id: Schema.optional(Schema.String),
  model_id: Schema.optional(Schema.String),
  seq_id: Schema.optional(Schema.Number),
  sampling_session_seq_id: Schema.optional(Schema.Number),
  model_path: Schema.optional(Schema.String),
})

/** Returns how many updates the weights really had that each prompt was sampled from, according to the server. */
const versions = Effect.gen(function* () {
  const { checkpoints, models, requestsTo } = yield* ScriptedServer.ScriptedServer
  const steps = new Map((yield* checkpoints).map(({ path, weights }) => [path, weights.steps]))
  const updates = new Map((yield* models).map(({ applied, id }) => [id, applied]))
  const samplers = new Map<string, number>()
  for (const { json } of [
    ...(yield* requestsTo("save_weights_for_sampler")),
    ...(yield* requestsTo("create_sampling_session")),
  ]) {
    const {
      model_id: model = "",
      model_path: path,
      sampling_session_seq_id: number,
      seq_id: seq = 0,
      session_id,
    } = yield* Schema.decodeUnknown(Sampler)(json)
    if (number === undefined) continue
    const session = session_id ?? model.split(":")[0]
    const before = updates.get(model)?.filter((one) => one.operation === "optim_step" && one.seq < seq).length
    samplers.set(`${session}:sample:${number}`, (path === undefined ? before : steps.get(path)) ?? Number.NaN)
  }
  const found = new Map<string, Set<number>>()
  for (const { json } of yield* requestsTo("asample")) {
    const { prompt, sampling_session_id } = yield* Schema.decodeUnknown(Sampled)(json)
    const name = prompt.chunks.flatMap(({ tokens }) => tokens).join(" ")
    found.set(name, (found.get(name) ?? new Set()).add(samplers.get(sampling_session_id) ?? Number.NaN))
  }
  return found
})

it.effect.each([
  { maxStaleness: 0, updatesPerIteration: 1 },
  { maxStaleness: 0, updatesPerIteration: 2 },
  { maxStaleness: 3, updatesPerIteration: 2 },
])("rollouts, samples and evaluations carry the version of the weights that the server sampled from: %o", (settings) =>
  onServer(
    Effect.gen(function* () {
      const config = { ...small, ...settings, iterations: 4 }
      const store = yield* RunStore.memory()
      expect(Exit.isFailure(yield* Effect.exit(train(dying(store, 45), config)))).toBe(true)
      yield* train(store, config)

      const sampledFrom = yield* versions
      const lines = (yield* store.lines("rollouts.jsonl")).map(
        (line) => JSON.parse(line) as { version: number; turns: ReadonlyArray<{ prompt: ReadonlyArray<number> }> },
      )
      expect(lines).toHaveLength(config.iterations * 4)
      for (const { turns, version } of lines)
        expect([...(sampledFrom.get(turns[0]?.prompt.join(" ") ?? "") ?? [])]).toEqual([version])

      const events = yield* Run.readEvents(store)
      const evaluated = events.flatMap((event) => (event._tag === "Evaluation" ? [event.step] : []))
      expect(evaluated.length).toBeGreaterThan(2)
      for (const step of evaluated) expect([...(sampledFrom.get(`${evaluation} ${step}`) ?? [])]).toEqual([step])

      const samples = events.flatMap((event) => (event._tag === "Sample" ? [event] : []))
      const answers = samples.filter(({ source }) => source === "test")
      expect(answers.map(({ prompt }) => prompt)).toEqual(answers.map(({ step }) => `question ${step}`))
      expect(answers).toHaveLength(evaluated.length)
      const rollouts = samples.filter(({ source }) => source === "rollout")
      expect(rollouts.length).toBeGreaterThan(8)
      for (const { prompt, step } of rollouts) {
        const task = Number(prompt.replace("task ", ""))
        expect([...(sampledFrom.get(`${task + 1} 2`) ?? [])]).toEqual([step])
      }
    }),
  ),
)
