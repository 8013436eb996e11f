// What is left when the process of a client dies, and what the next one makes of it.
import { HttpClient } from "@effect/platform"
import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, Exit, FastCheck as fc, Layer, Logger, Option, Redacted, Stream } from "effect"
import {
  Loss,
  Optimizer,
  ServiceClient,
  type TinkerConfig,
  TinkerError,
  type TrainingClient,
  TrainingJournal,
} from "effect-tinker"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
import { clients } from "./support/Clients.ts"

type Server = HttpClient.HttpClient | ScriptedServer.ScriptedServer

const quiet = Logger.remove(Logger.defaultLogger)

/** Runs several lives of clients on one server. */
const onServer = <A, E>(program: Effect.Effect<A, E, Server>, options?: ScriptedServer.Options) =>
  program.pipe(Effect.provide(Layer.merge(ScriptedServer.layer(options), quiet)), VirtualTime.run)

/** One life, which ends as its program does. */
const live = <A, E, R>(program: Effect.Effect<A, E, R>, values?: TinkerConfig.Values) =>
  Effect.scoped(program).pipe(Effect.provide(clients(values)))

const service = ServiceClient.ServiceClient
const baseModel = "m"
const adam = Optimizer.adam({ learningRate: 1e-3 })

const datum = (n: number) => ({
  modelInput: [n, n + 1],
  inputs: { targetTokens: [n + 1, n + 2], weights: [1, 0.5] },
})
/** The batch of a step: three datums, so that it can be cut. */
const batch = (step: number) => [datum(step), datum(step + 100), datum(step + 200)]

const create = (journal: TrainingJournal.Journal) =>
  Effect.flatMap(service, (service) => service.createLoraTrainingClient({ baseModel, journal }))

const resume = (journal: TrainingJournal.Journal) =>
  Effect.flatMap(service, (service) => service.resumeTrainingClient({ journal }))

// A training run, as a program would have it.

const steps = 2

const trainFrom = (client: TrainingClient.Service, startAt: number) =>
  Stream.range(startAt, steps - 1).pipe(
    Stream.map(batch),
    client.trainSteps(Loss.crossEntropy, adam, { startAt }),
    Stream.runDrain,
    Effect.when(() => startAt < steps),
  )

/** Goes on with what is left: perhaps the second half of a step, then the steps after it. */
const goOn = ({ client, finishStep, nextStep, pending }: TrainingClient.Resumed) =>
  Effect.gen(function* () {
    yield* finishStep(adam)
    yield* trainFrom(client, nextStep)
    yield* Effect.forEach(pending, ({ future }) => future.await, { discard: true })
  })

/** What the server has done to the model; probes change nothing and don't count. */
const done = Effect.gen(function* () {
  // For what it has accepted and not yet done.
  yield* Effect.sleep("1 minute")
  const { models } = yield* ScriptedServer.ScriptedServer
  const [model, another] = yield* models
  expect(another).toBeUndefined()
  return {
    applied: (model?.applied ?? []).filter(({ operation }) => operation !== "forward").map(({ bodyHash }) => bodyHash),
    weights: model?.weights,
    gradient: model?.gradient,
  }
})

// A life that ends without a word.

/** Counts what passes between a client and the world, and cuts it off at one moment. */
class World {
  events: Array<string> = []
  dead = false
  readonly died = Deferred.unsafeMake<void>(Effect.runSync(Effect.fiberId))
  private readonly isEnd: (event: string, index: number) => boolean

  constructor(isEnd: (event: string, index: number) => boolean = () => false) {
    this.isEnd = isEnd
  }

  /** Tells whether the client is still there. */
  readonly passes = (event: string): Effect.Effect<boolean> =>
    Effect.sync(() => {
      if (this.dead) return false
      this.dead = this.isEnd(event, this.events.length)
      this.events.push(event)
      if (this.dead) Deferred.unsafeDone(this.died, Exit.void)
      return !this.dead
    })

  readonly journal = (journal: TrainingJournal.Journal): TrainingJournal.Journal => ({
    read: journal.read,
    append: (entries) =>
      Effect.gen(this, function* () {
        const what = entries.map(({ record }) => record._tag).join(" ")
        if (!(yield* this.passes(`before writing ${what}`))) return
        yield* journal.append(entries)
        yield* this.passes(`after writing ${what}`)
      }),
  })

  readonly http = (client: HttpClient.HttpClient): HttpClient.HttpClient =>
    HttpClient.transform(client, (answer, { url }) =>
      Effect.gen(this, function* () {
        const what = url.replace("http://server/api/v1/", "")
        if (!(yield* this.passes(`before sending ${what}`))) return yield* Effect.never
        const answered = yield* answer
        return (yield* this.passes(`after sending ${what}`)) ? answered : yield* Effect.never
      }),
    )
}

/** A life in a world that may end it. */
const liveIn = <A, E, R>(world: World, program: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const http = world.http(yield* HttpClient.HttpClient)
    return yield* live(program).pipe(
      Effect.asSome,
      Effect.raceFirst(Effect.as(Deferred.await(world.died), Option.none<A>())),
      Effect.provideService(HttpClient.HttpClient, http),
    )
  })

const serial = { fwdbwd_max_chunk_len: 1 }
const parallel = { fwdbwd_max_chunk_len: 1, parallel_fwdbwd_chunks: true }

/** What happens in a run of which nothing is disturbed, and what comes of it. */
const undisturbed = (options: ScriptedServer.Options) =>
  onServer(
    Effect.gen(function* () {
      const world = new World()
      const journal = world.journal(yield* TrainingJournal.memory)
      yield* liveIn(
        world,
        Effect.flatMap(create(journal), (client) => trainFrom(client, 0)),
      )
      return { events: world.events, ...(yield* done) }
    }),
    options,
  )

/** A run whose first lives end at these moments, and that is then left in peace. */
const disturbed = (options: ScriptedServer.Options, deaths: ReadonlyArray<number>) =>
  onServer(
    Effect.gen(function* () {
      const memory = yield* TrainingJournal.memory
      let broken: TinkerError.SequenceBroken | undefined
      for (const [life, diesAt] of [...deaths, Number.POSITIVE_INFINITY].entries()) {
        const world = new World((_, index) => index === diesAt)
        const journal = world.journal(memory)
        const ended = yield* Effect.either(
          liveIn(
            world,
            life === 0
              ? Effect.flatMap(create(journal), (client) => trainFrom(client, 0))
              : Effect.flatMap(resume(journal), goOn),
          ),
        )
        if (ended._tag === "Right") continue
        const error = ended.left._tag === "StepFailed" ? causeOf(ended.left) : ended.left
        if (error._tag !== "SequenceBroken") return yield* error
        broken = error
        break
      }
      return { broken, ...(yield* done) }
    }),
    options,
  )

const causeOf = ({ pass, update }: TinkerError.StepFailed): TinkerError.TrainingError => {
  const failed = Exit.isFailure(pass) ? pass : update
  return Exit.isFailure(failed) && failed.cause._tag === "Fail"
    ? failed.cause.error
    : new TinkerError.ClientClosed({ operation: "?" })
}

/** For many lives on a busy machine, in milliseconds. */
const patience = 300_000

const modes = ["dedupe", "nextOnly", "anything"] as const

/** The whole set, for `test:all`. */
const isFull = process.env["TINKER_TESTS"] === "all"

describe("a client that dies at any moment", () => {
  const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i)
  /** Before it is written down there is nothing to go on with. */
  const firstDeath = (events: ReadonlyArray<string>) => events.indexOf("after writing Opened")
  const deaths = (events: ReadonlyArray<string>) =>
    range(firstDeath(events), events.length).filter((_, i) => isFull || i % 4 === 0)

  for (const [name, flags] of Object.entries({ plain: {}, serial, parallel })) {
    for (const mode of modes) {
      // Only the next number is taken there: out of order is not possible.
      if (mode === "nextOnly" && name === "parallel") continue
      it.effect(
        `is resumed and does everything once, or says that it does not know (${name}, ${mode})`,
        () =>
          Effect.gen(function* () {
            const options: ScriptedServer.Options = { mode, flags, work: "3 seconds" }
            const whole = yield* undisturbed(options)
            expect(whole.applied.length).toBe(steps * (name === "plain" ? 2 : 4))
            const endings = { done: 0, unknown: 0 }
            for (const diesAt of deaths(whole.events)) {
              const { applied, broken, gradient, weights } = yield* disturbed(options, [diesAt])
              const when = `death at ${diesAt}, ${whole.events[diesAt]}`
              // Never twice, and never something else.
              expect(new Set(applied).size, when).toBe(applied.length)
              if (name !== "parallel") expect(applied, when).toEqual(whole.applied.slice(0, applied.length))
              if (broken === undefined) {
                endings.done++
                expect(applied.toSorted(), when).toEqual(whole.applied.toSorted())
                expect({ weights, gradient }, when).toEqual({ weights: whole.weights, gradient: whole.gradient })
              } else {
                endings.unknown++
                expect(broken.applied, when).toBe("unknown")
                // It is this one that may have been done or not.
                if (name !== "parallel") expect([broken.seq - 1, broken.seq], when).toContain(applied.length)
              }
            }
            expect(endings.done).toBeGreaterThan(0)
            if (mode === "dedupe") expect(endings.unknown).toBe(0)
            else expect(endings.unknown).toBeGreaterThan(0)
          }),
        patience,
      )
    }
  }

  it.effect(
    "may die again and again",
    () =>
      Effect.gen(function* () {
        const options: ScriptedServer.Options = { flags: serial, work: "3 seconds" }
        const whole = yield* undisturbed(options)
        const from = firstDeath(whole.events)
        const deaths = fc.tuple(
          fc.integer({ min: from, max: whole.events.length - 1 }),
          fc.array(fc.integer({ min: 0, max: 30 }), { minLength: 1, maxLength: 4 }),
        )
        for (const [first, more] of fc.sample(deaths, { numRuns: isFull ? 25 : 8, seed: 7 })) {
          const { applied, broken, weights } = yield* disturbed(options, [first, ...more])
          expect(broken).toBeUndefined()
          expect(applied, `deaths at ${[first, ...more].join()}`).toEqual(whole.applied)
          expect(weights).toEqual(whole.weights)
        }
      }),
    patience,
  )
})

/** A life that ends at an event that begins like this, after so many others of the kind. */
const diesAt = (event: string, nth = 1) => {
  let seen = 0
  return new World((happened) => happened.startsWith(event) && ++seen === nth)
}

/** Goes through one life that dies, and begins the next. */
const found = <A, E, R>(
  world: World,
  first: (client: TrainingClient.Service) => Effect.Effect<unknown, unknown>,
  then: (resumed: TrainingClient.Resumed) => Effect.Effect<A, E, R>,
  options: TrainingClient.Options = {},
) =>
  Effect.gen(function* () {
    const memory = yield* TrainingJournal.memory
    const life = Effect.flatMap(
      Effect.flatMap(service, (service) =>
        service.createLoraTrainingClient({ baseModel, journal: world.journal(memory), ...options }),
      ),
      (client) => Effect.zipRight(Effect.either(first(client)), Effect.never),
    )
    expect(yield* liveIn(world, life)).toEqual(Option.none())
    return yield* live(Effect.flatMap(resume(memory), then))
  })

const server = ScriptedServer.ScriptedServer
const fault = (fault: ScriptedServer.Fault) => Effect.flatMap(server, (server) => server.fault(fault))
/** What was sent, as e.g. `1 forward_backward`, in order, without asking for results. */
const sent = Effect.map(
  Effect.flatMap(server, ({ requests }) => requests),
  (seen) => seen.flatMap(({ operation, seq }) => (seq === undefined ? [] : [`${seq} ${operation}`])),
)
const applied = Effect.flatMap(server, ({ models }) =>
  Effect.map(models, ([model]) => (model?.applied ?? []).map(({ operation, seq }) => `${seq} ${operation}`)),
)

const brief = ({ completed, pending }: TrainingClient.Resumed) => ({
  completed: completed.map(({ operation, seqs, succeeded, tag }) => [operation, seqs.join(), succeeded, tag]),
  pending: pending.map(({ kind, operation, seqs, tag }) => [kind, operation, seqs.join(), tag]),
})

const pass = (client: TrainingClient.Service, step: number) =>
  client.forwardBackward(batch(step), Loss.crossEntropy, { tag: `step ${step}` })

describe("the next life is told", () => {
  const tag = Option.some("step 0")
  const underway = [
    ["pass", "forward_backward", "1", tag],
    ["update", "optim_step", "2", tag],
  ]
  const cases: ReadonlyArray<readonly [string, () => World, ReturnType<typeof brief>]> = [
    ["nothing of what was queued", () => diesAt("before writing Intent"), { completed: [], pending: [] }],
    [
      "of what was written down and not sent",
      () => diesAt("before sending forward_backward"),
      { completed: [], pending: underway.slice(0, 1) },
    ],
    [
      "of what was sent and whose answer was lost",
      () => diesAt("after sending optim_step"),
      { completed: [], pending: underway },
    ],
    ["of what was acknowledged", () => diesAt("after writing Acknowledged", 2), { completed: [], pending: underway }],
    [
      "of what was settled",
      () => diesAt("after writing Settled"),
      { completed: [["forward_backward", "1", true, tag]], pending: underway.slice(1) },
    ],
  ]
  for (const [name, world, expected] of cases) {
    it.effect(name, () =>
      onServer(
        found(
          world(),
          (client) => client.trainStep(batch(0), Loss.crossEntropy, adam, { tag: "step 0" }),
          (resumed) =>
            Effect.gen(function* () {
              expect(brief(resumed)).toEqual(expected)
              for (const { future, kind } of resumed.pending) {
                const result = yield* future.await
                if (kind === "pass") expect(result).toMatchObject({ metrics: { "loss:sum": expect.any(Number) } })
              }
              // And the numbers go on.
              yield* resumed.client.optimStep(adam)
              const count = expected.completed.length + expected.pending.length
              expect(yield* applied).toEqual([...whole.slice(0, count), `${count + 1} optim_step`])
            }),
        ),
        { work: "1 second" },
      ),
    )
  }
  const whole = ["1 forward_backward", "2 optim_step"]

  it.effect("the results of a batch in the order of its pieces, whichever was sent again", () =>
    Effect.gen(function* () {
      for (const flags of [serial, parallel]) {
        const result = yield* onServer(
          live(Effect.flatMap(Effect.flatMap(TrainingJournal.memory, create), (client) => pass(client, 0))),
          { flags },
        )
        expect(result.outputs.length).toBe(3)
        for (const nth of [1, 2, 3]) {
          const resumed = yield* onServer(
            found(
              diesAt("after sending forward_backward", nth),
              (client) => pass(client, 0),
              ({ pending: [only] }) =>
                Effect.gen(function* () {
                  expect(only?.seqs).toEqual([1, 2, 3])
                  return yield* only?.future.await ?? Effect.void
                }),
            ),
            { flags },
          )
          expect(resumed).toEqual(result)
        }
      }
    }),
  )

  it.effect("that what failed before has used its number, and how it failed", () =>
    onServer(
      Effect.gen(function* () {
        yield* fault({ on: "forward_backward", failFuture: { error: "no", category: "user" } })
        yield* found(
          diesAt("after writing Settled"),
          (client) => pass(client, 0),
          (resumed) =>
            Effect.gen(function* () {
              expect(brief(resumed)).toEqual({
                completed: [["forward_backward", "1", false, Option.some("step 0")]],
                pending: [],
              })
              yield* pass(resumed.client, 1)
              expect(yield* applied).toEqual(["2 forward_backward"])
            }),
        )
      }),
    ),
  )

  it.effect("of saves that were under way, and they are where to go back to", () =>
    onServer(
      found(
        diesAt("after sending retrieve_future", 2),
        (client) =>
          Effect.all([client.saveState("a"), client.saveWeightsForSampler("b")], { concurrency: "unbounded" }),
        ({ client, pending }) =>
          Effect.gen(function* () {
            const [state, sampler] = yield* Effect.forEach(pending, ({ future }) => future.await)
            const path = `tinker://${client.modelId}/weights/a`
            expect(state).toMatchObject({ path })
            expect(sampler).toMatchObject({ path: Option.some(`tinker://${client.modelId}/sampler_weights/b`) })
            yield* fault({ on: "optim_step", status: 409, times: 9 })
            expect(yield* Effect.flip(client.optimStep(adam))).toMatchObject({
              _tag: "SequenceBroken",
              lastCheckpoint: Option.some(path),
            })
          }),
      ),
      { work: "1 second" },
    ),
  )
})

describe("numbers go on", () => {
  it.effect("after a batch that was not written down as a whole, none of which is sent", () =>
    onServer(
      Effect.gen(function* () {
        const memory = yield* TrainingJournal.memory
        // The disk takes one record of three.
        const torn: TrainingJournal.Journal = {
          read: memory.read,
          append: (entries) =>
            entries.length === 3
              ? Effect.zipRight(
                  memory.append(entries.slice(0, 1)),
                  new TinkerError.JournalFailed({ reason: "Write", detail: "full" }),
                )
              : memory.append(entries),
        }
        const failed = yield* Effect.flip(live(Effect.flatMap(create(torn), (client) => pass(client, 0))))
        expect(failed._tag).toBe("JournalFailed")
        yield* live(
          Effect.gen(function* () {
            const resumed = yield* resume(memory)
            expect(brief(resumed)).toEqual({ completed: [], pending: [] })
            yield* resumed.client.optimStep(adam)
          }),
        )
        expect(yield* sent).toEqual(["1 optim_step"])
        // Nor is it there for the life after that.
        expect(brief(yield* live(resume(memory)))).toEqual({
          completed: [["optim_step", "1", true, Option.none()]],
          pending: [],
        })
      }),
      { flags: serial },
    ),
  )

  it.effect("on a server that does not count what failed", () =>
    onServer(
      Effect.gen(function* () {
        yield* fault({ on: "optim_step", failFuture: { error: "no", category: "server" } })
        yield* found(
          diesAt("after writing Settled", 2),
          (client) => Effect.zipRight(pass(client, 0), client.optimStep(adam)),
          ({ client }) => client.optimStep(adam),
        )
        expect(yield* applied).toEqual(["1 forward_backward", "2 optim_step"])
      }),
      { mode: "nextOnly" },
    ),
  )

  it.effect("on a server that counts what it refused", () =>
    onServer(
      Effect.gen(function* () {
        yield* fault({ on: "optim_step", status: 400, body: { detail: "no" } })
        yield* found(
          diesAt("after writing Withdrawn"),
          (client) => Effect.zipRight(pass(client, 0), client.optimStep(adam)),
          // Something else: the same again would be refused again.
          ({ client }) => client.optimStep(Optimizer.adam({ learningRate: 1e-4 })),
        )
        expect(yield* applied).toEqual(["1 forward_backward", "3 optim_step"])
      }),
      { rejectedUsesNumber: true },
    ),
  )

  it.effect("with what was learnt about the server", () =>
    onServer(
      Effect.gen(function* () {
        yield* found(
          diesAt("after writing Settled"),
          (client) => pass(client, 0),
          ({ client }) => pass(client, 1),
        )
        const { requestsTo } = yield* server
        const types = (yield* requestsTo("forward_backward")).map(({ headers }) => headers["content-type"])
        expect(types).toEqual(["application/x-protobuf", "application/json", "application/json"])
      }),
      { wire: "json" },
    ),
  )

  it.effect("for models and samplers of each life, apart from those of the others", () =>
    onServer(
      Effect.gen(function* () {
        const memory = yield* TrainingJournal.memory
        const sample = (client: TrainingClient.Service) =>
          Effect.zipRight(client.saveWeightsAndGetSamplingClient(), client.saveWeightsAndGetSamplingClient())
        yield* Effect.exit(live(Effect.zipRight(Effect.flatMap(create(memory), sample), Effect.interrupt)))
        for (let life = 0; life < 2; life++)
          yield* Effect.exit(
            live(
              Effect.zipRight(
                Effect.flatMap(resume(memory), ({ client }) => sample(client)),
                Effect.interrupt,
              ),
            ),
          )
        const { requestsTo } = yield* server
        const numbers = (yield* requestsTo("save_weights_for_sampler")).map(
          ({ json }) => (json as { readonly sampling_session_seq_id: number }).sampling_session_seq_id,
        )
        expect(numbers.length).toBe(6)
        expect(new Set(numbers).size).toBe(6)
      }),
    ),
  )

  it.effect("after more steps than fit into the arguments of a function", () =>
    onServer(
      Effect.gen(function* () {
        const memory = yield* TrainingJournal.memory
        yield* Effect.exit(live(Effect.zipRight(create(memory), Effect.interrupt)))
        const count = 150_000
        yield* memory.append(
          Array.from({ length: count }, (_, i): TrainingJournal.Entry => ({
            record: {
              _tag: "Intent",
              seq: i + 1,
              operation: "optim_step",
              kind: "OptimStep",
              chunk: 0,
              chunks: 1,
              repeatable: false,
              idempotencyKey: "k",
              hash: "h",
              tag: Option.none(),
            },
          })),
        )
        yield* memory.append(
          Array.from({ length: count }, (_, i): TrainingJournal.Entry => ({
            record: { _tag: "Settled", seq: i + 1, succeeded: true },
          })),
        )
        yield* live(
          Effect.gen(function* () {
            const { client, completed } = yield* resume(memory)
            expect(completed.length).toBe(count)
            yield* client.submit.optimStep(adam)
          }),
        )
        expect(yield* sent).toEqual([`${count + 1} optim_step`])
      }),
    ),
  )
})

describe("what was in doubt", () => {
  it.effect("is not sent again if its request was not kept", () =>
    Effect.gen(function* () {
      const error = yield* onServer(
        Effect.flip(
          found(
            diesAt("after sending optim_step"),
            (client) => client.optimStep(adam),
            () => Effect.void,
            { journalRequests: false },
          ),
        ),
      )
      expect(error).toMatchObject({ _tag: "SequenceBroken", seq: 1, applied: "unknown", acknowledged: 0 })
    }),
  )

  it.effect("is not sent again if it held a secret", () =>
    onServer(
      Effect.gen(function* () {
        const error = yield* Effect.flip(
          found(
            diesAt("after sending load_weights"),
            (client) =>
              Effect.flatMap(client.saveState("a"), ({ path }) =>
                client.loadState(path, { weightsAccessToken: Redacted.make("theirs") }),
              ),
            () => Effect.void,
          ),
        )
        expect(error).toMatchObject({ _tag: "SequenceBroken", seq: 2, applied: "unknown" })
        expect(error).toMatchObject({ lastCheckpoint: Option.some(expect.stringContaining("/weights/a")) })
        expect(yield* sent).toEqual(["1 save_weights", "2 load_weights"])
      }),
    ),
  )

  it.effect("is sent again bit by bit, with the same key", () =>
    onServer(
      Effect.gen(function* () {
        yield* found(
          diesAt("after sending forward_backward"),
          (client) => pass(client, 0),
          () => Effect.void,
        )
        const { requestsTo } = yield* server
        const [first, probe, again, ...more] = yield* requestsTo("forward_backward")
        expect(more).toEqual([])
        expect(probe?.seq).toBe(0)
        expect(again?.bytes).toEqual(first?.bytes)
        for (const name of ["content-type", "x-idempotency-key"]) {
          expect(first?.headers[name]).toEqual(expect.any(String))
          expect(again?.headers[name]).toBe(first?.headers[name])
        }
        expect(yield* applied).toEqual(["1 forward_backward"])
      }),
    ),
  )
})

describe("a batch that was accepted in part", () => {
  const partial = (
    then: (resumed: TrainingClient.Resumed) => Effect.Effect<void, unknown, ScriptedServer.ScriptedServer>,
  ) =>
    onServer(
      Effect.gen(function* () {
        yield* fault({ on: "forward_backward", nth: 3, status: 400, body: { detail: "no" } })
        yield* found(
          diesAt("after writing Withdrawn"),
          (client) => Effect.zipRight(client.saveState("a"), pass(client, 0)),
          then,
        )
      }),
      { flags: serial },
    )

  it.effect("is still one in the next life", () =>
    partial(({ client, pending }) =>
      Effect.gen(function* () {
        expect(pending.map(({ seqs }) => seqs)).toEqual([[2, 3]])
        const broken = yield* Effect.flip(client.optimStep(adam))
        expect(broken).toMatchObject({ _tag: "SequenceBroken", applied: "partial", seq: 4, acknowledged: 3 })
        yield* client.acceptPartial
        yield* client.optimStep(adam)
        expect((yield* applied).at(-1)).toBe("4 optim_step")
      }),
    ),
  )

  it.effect("is put an end to by going back to a checkpoint", () =>
    partial(({ client }) =>
      Effect.gen(function* () {
        yield* client.loadState(`tinker://${client.modelId}/weights/a`)
        yield* client.optimStep(adam)
        expect((yield* applied).slice(-2)).toEqual(["4 load_weights", "5 optim_step"])
      }),
    ),
  )
})

describe("there is nothing to go on with", () => {
  it.effect("in an empty journal", () =>
    onServer(
      Effect.gen(function* () {
        const error = yield* Effect.flip(live(Effect.flatMap(TrainingJournal.memory, resume)))
        expect(error).toMatchObject({ _tag: "JournalFailed", reason: "Empty" })
        expect(yield* Effect.flatMap(server, ({ sessions }) => sessions)).toEqual([])
      }),
    ),
  )

  it.effect("in the journal of another server", () =>
    onServer(
      Effect.gen(function* () {
        const memory = yield* TrainingJournal.memory
        yield* Effect.exit(live(Effect.zipRight(create(memory), Effect.interrupt)))
        const error = yield* Effect.flip(live(resume(memory), { baseUrl: "http://another" }))
        expect(error).toMatchObject({ _tag: "InvalidConfig", setting: "baseUrl" })
        expect(error.message).toContain("http://server")
      }),
    ),
  )

  it.effect("in a session that is gone, and the last checkpoint is named", () =>
    onServer(
      Effect.gen(function* () {
        const memory = yield* TrainingJournal.memory
        yield* Effect.exit(
          live(
            Effect.zipRight(
              Effect.flatMap(create(memory), (client) => client.saveState("a")),
              Effect.interrupt,
            ),
          ),
        )
        yield* Effect.flatMap(server, ({ endSession }) => endSession())
        const [session] = yield* Effect.flatMap(server, ({ sessions }) => sessions)
        const error = yield* Effect.flip(live(resume(memory)))
        expect(error).toBeInstanceOf(TinkerError.SessionLost)
        expect(error).toMatchObject({
          _tag: "SessionLost",
          sessionId: session?.id,
          reason: "Gone",
          lastCheckpoint: Option.some(expect.stringContaining("/weights/a")),
        })
        expect(error.message).toContain("last checkpoint: tinker://")
      }),
    ),
  )
})

describe("the session is ended", () => {
  const states = Effect.flatMap(server, ({ sessions }) => Effect.map(sessions, (all) => all.map(({ state }) => state)))
  const boom = new TinkerError.InvalidInput({ path: "a", problem: "b" })

  it.effect("by a life that succeeds, and by no other", () =>
    onServer(
      Effect.gen(function* () {
        const memory = yield* TrainingJournal.memory
        const endings = [Effect.interrupt, Effect.fail(boom), Effect.die("boom")]
        yield* Effect.exit(live(Effect.zipRight(create(memory), Effect.fail(boom))))
        expect(yield* states).toEqual(["active"])
        for (const ending of endings) {
          yield* Effect.exit(live(Effect.zipRight(resume(memory), ending)))
          expect(yield* states).toEqual(["active"])
        }
        yield* live(resume(memory))
        expect(yield* states).toEqual(["success"])
      }),
    ),
  )

  it.effect("by no life that could not begin", () =>
    onServer(
      Effect.gen(function* () {
        const memory = yield* TrainingJournal.memory
        yield* Effect.exit(live(Effect.zipRight(create(memory), Effect.interrupt)))
        const full = new TinkerError.JournalFailed({ reason: "Write", detail: "full" })
        const error = yield* Effect.flip(live(resume({ read: memory.read, append: () => full })))
        expect(error).toEqual(full)
        expect(yield* states).toEqual(["active"])
      }),
    ),
  )

  it.effect("by a failure without a journal, as ever", () =>
    onServer(
      Effect.gen(function* () {
        const client = Effect.flatMap(service, (service) => service.createLoraTrainingClient({ baseModel }))
        yield* Effect.exit(live(Effect.zipRight(client, Effect.fail(boom))))
        expect(yield* states).toEqual(["errored"])
      }),
    ),
  )
})
