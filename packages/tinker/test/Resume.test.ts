// The state left behind when a client's process dies, and how the next process resumes it.
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

/** Runs several client processes against one server. */
const onServer = <A, E>(program: Effect.Effect<A, E, Server>, options?: ScriptedServer.Options) =>
  program.pipe(Effect.provide(Layer.merge(ScriptedServer.layer(options), quiet)), VirtualTime.run)

/** One client process, which ends as its program does. */
const runProcess = <A, E, R>(program: Effect.Effect<A, E, R>, values?: TinkerConfig.Values) =>
  Effect.scoped(program).pipe(Effect.provide(clients(values)))

const service = ServiceClient.ServiceClient
const baseModel = "m"
const adam = Optimizer.adam({ learningRate: 1e-3 })

const datum = (n: number) => ({
  modelInput: [n, n + 1],
  inputs: { targetTokens: [n + 1, n + 2], weights: [1, 0.5] },
})
/** The batch for a step: three datums, so that it can be split. */
const batch = (step: number) => [datum(step), datum(step + 100), datum(step + 200)]

const create = (journal: TrainingJournal.Journal) =>
  Effect.flatMap(service, (service) => service.createLoraTrainingClient({ baseModel, journal }))

const resume = (journal: TrainingJournal.Journal) =>
  Effect.flatMap(service, (service) => service.resumeTrainingClient({ journal }))

// A typical training program.

const steps = 2

const trainFrom = (client: TrainingClient.Service, startAt: number) =>
  Stream.range(startAt, steps - 1).pipe(
    Stream.map(batch),
    client.trainSteps(Loss.crossEntropy, adam, { startAt }),
    Stream.runDrain,
    Effect.when(() => startAt < steps),
  )

/** Continues with the remaining work: possibly the second half of a step, then the following steps. */
const continueRun = ({ client, finishStep, nextStep, pending }: TrainingClient.Resumed) =>
  Effect.gen(function* () {
    yield* finishStep(adam)
    yield* trainFrom(client, nextStep)
    yield* Effect.forEach(pending, ({ future }) => future.await, { discard: true })
  })

/** Returns the requests that the server has applied to the model, without probes, which change nothing. */
const done = Effect.gen(function* () {
  // Lets the server finish the operations it has accepted.
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

// A process that is killed.

/** Counts the events between a client and its environment, and cuts the client off at one of them. */
class World {
  events: Array<string> = []
  dead = false
  readonly died = Deferred.unsafeMake<void>(Effect.runSync(Effect.fiberId))
  private readonly isEnd: (event: string, index: number) => boolean

  constructor(isEnd: (event: string, index: number) => boolean = () => false) {
    this.isEnd = isEnd
  }

  /** Returns whether the client is still alive. */
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

/** A client process in a world that can kill it. */
const runProcessIn = <A, E, R>(world: World, program: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const http = world.http(yield* HttpClient.HttpClient)
    return yield* runProcess(program).pipe(
      Effect.asSome,
      Effect.raceFirst(Effect.as(Deferred.await(world.died), Option.none<A>())),
      Effect.provideService(HttpClient.HttpClient, http),
    )
  })

const serial = { fwdbwd_max_chunk_len: 1 }
const parallel = { fwdbwd_max_chunk_len: 1, parallel_fwdbwd_chunks: true }

/** The events and the outcome of a run without a crash. */
const completeRun = (options: ScriptedServer.Options) =>
  onServer(
    Effect.gen(function* () {
      const world = new World()
      const journal = world.journal(yield* TrainingJournal.memory)
      yield* runProcessIn(
        world,
        Effect.flatMap(create(journal), (client) => trainFrom(client, 0)),
      )
      return { events: world.events, ...(yield* done) }
    }),
    options,
  )

/** A run whose first processes die at these events; the last one is not killed. */
const killedRun = (options: ScriptedServer.Options, deaths: ReadonlyArray<number>) =>
  onServer(
    Effect.gen(function* () {
      const memory = yield* TrainingJournal.memory
      let broken: TinkerError.SequenceBroken | undefined
      for (const [life, diesAt] of [...deaths, Number.POSITIVE_INFINITY].entries()) {
        const world = new World((_, index) => index === diesAt)
        const journal = world.journal(memory)
        const ended = yield* Effect.either(
          runProcessIn(
            world,
            life === 0
              ? Effect.flatMap(create(journal), (client) => trainFrom(client, 0))
              : Effect.flatMap(resume(journal), continueRun),
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

const causeOf = ({ pass, update }: TrainingClient.StepFailed): TinkerError.TrainingError => {
  const failed = Exit.isFailure(pass) ? pass : update
  return Exit.isFailure(failed) && failed.cause._tag === "Fail"
    ? failed.cause.error
    : new TinkerError.ClientClosed({ operation: "?" })
}

/** In milliseconds; many processes on a busy machine take long. */
const patience = 300_000

const modes = ["dedupe", "nextOnly", "anything"] as const

/** `test:all` runs every case. */
const isFull = process.env["TINKER_TESTS"] === "all"

describe("a client killed at any event", () => {
  const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i)
  /** Before the journal is opened there is nothing to resume. */
  const firstDeath = (events: ReadonlyArray<string>) => events.indexOf("after writing Opened")
  const deaths = (events: ReadonlyArray<string>) =>
    range(firstDeath(events), events.length).filter((_, i) => isFull || i % 4 === 0)

  for (const [name, flags] of Object.entries({ plain: {}, serial, parallel })) {
    for (const mode of modes) {
      // This mode accepts only the next number, so requests cannot arrive out of order.
      if (mode === "nextOnly" && name === "parallel") continue
      it.effect(
        `a killed run is resumed and applies everything once, or reports an unknown outcome (${name}, ${mode})`,
        () =>
          Effect.gen(function* () {
            const options: ScriptedServer.Options = { mode, flags, work: "3 seconds" }
            const whole = yield* completeRun(options)
            expect(whole.applied.length).toBe(steps * (name === "plain" ? 2 : 4))
            const endings = { done: 0, unknown: 0 }
            for (const diesAt of deaths(whole.events)) {
              const { applied, broken, gradient, weights } = yield* killedRun(options, [diesAt])
              const when = `death at ${diesAt}, ${whole.events[diesAt]}`
              // Never twice, and never anything else.
              expect(new Set(applied).size, when).toBe(applied.length)
              if (name !== "parallel") expect(applied, when).toEqual(whole.applied.slice(0, applied.length))
              if (broken === undefined) {
                endings.done++
                expect(applied.toSorted(), when).toEqual(whole.applied.toSorted())
                expect({ weights, gradient }, when).toEqual({ weights: whole.weights, gradient: whole.gradient })
              } else {
                endings.unknown++
                expect(broken.applied, when).toBe("unknown")
                // This is the operation that may or may not have been applied.
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
    "a run can be killed repeatedly and still applies everything once",
    () =>
      Effect.gen(function* () {
        const options: ScriptedServer.Options = { flags: serial, work: "3 seconds" }
        const whole = yield* completeRun(options)
        const from = firstDeath(whole.events)
        const deaths = fc.tuple(
          fc.integer({ min: from, max: whole.events.length - 1 }),
          fc.array(fc.integer({ min: 0, max: 30 }), { minLength: 1, maxLength: 4 }),
        )
        for (const [first, more] of fc.sample(deaths, { numRuns: isFull ? 25 : 8, seed: 7 })) {
          const { applied, broken, weights } = yield* killedRun(options, [first, ...more])
          expect(broken).toBeUndefined()
          expect(applied, `deaths at ${[first, ...more].join()}`).toEqual(whole.applied)
          expect(weights).toEqual(whole.weights)
        }
      }),
    patience,
  )
})

/** A world that kills its client at the nth event with this prefix. */
const diesAt = (event: string, nth = 1) => {
  let seen = 0
  return new World((happened) => happened.startsWith(event) && ++seen === nth)
}

/** Runs one process that is killed, then resumes in the next. */
const resumedAfter = <A, E, R>(
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
    expect(yield* runProcessIn(world, life)).toEqual(Option.none())
    return yield* runProcess(Effect.flatMap(resume(memory), then))
  })

const server = ScriptedServer.ScriptedServer
const fault = (fault: ScriptedServer.Fault) => Effect.flatMap(server, (server) => server.fault(fault))
/** The sequenced requests, in order, e.g. `1 forward_backward`. */
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

describe("what resume reports", () => {
  const tag = Option.some("step 0")
  const underway = [
    ["pass", "forward_backward", "1", tag],
    ["update", "optim_step", "2", tag],
  ]
  const cases: ReadonlyArray<readonly [string, () => World, ReturnType<typeof brief>]> = [
    [
      "resume reports nothing for an operation that was only queued",
      () => diesAt("before writing Intent"),
      { completed: [], pending: [] },
    ],
    [
      "resume reports an operation that was journaled and not sent as pending",
      () => diesAt("before sending forward_backward"),
      { completed: [], pending: underway.slice(0, 1) },
    ],
    [
      "resume reports an operation whose response was lost as pending",
      () => diesAt("after sending optim_step"),
      { completed: [], pending: underway },
    ],
    [
      "resume reports an acknowledged operation as pending",
      () => diesAt("after writing Acknowledged", 2),
      { completed: [], pending: underway },
    ],
    [
      "resume reports a settled operation as completed",
      () => diesAt("after writing Settled"),
      { completed: [["forward_backward", "1", true, tag]], pending: underway.slice(1) },
    ],
  ]
  for (const [name, world, expected] of cases) {
    it.effect(name, () =>
      onServer(
        resumedAfter(
          world(),
          (client) => client.trainStep(batch(0), Loss.crossEntropy, adam, { tag: "step 0" }),
          (resumed) =>
            Effect.gen(function* () {
              expect(brief(resumed)).toEqual(expected)
              for (const { future, kind } of resumed.pending) {
                const result = yield* future.await
                if (kind === "pass") expect(result).toMatchObject({ metrics: { "loss:sum": expect.any(Number) } })
              }
              // The numbering continues.
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

  it.effect("resumed results of a batch are in chunk order, whichever chunk was sent again", () =>
    Effect.gen(function* () {
      for (const flags of [serial, parallel]) {
        const result = yield* onServer(
          runProcess(Effect.flatMap(Effect.flatMap(TrainingJournal.memory, create), (client) => pass(client, 0))),
          { flags },
        )
        expect(result.outputs.length).toBe(3)
        for (const nth of [1, 2, 3]) {
          const resumed = yield* onServer(
            resumedAfter(
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

  it.effect("resume reports an operation that failed before, which has used its number", () =>
    onServer(
      Effect.gen(function* () {
        yield* fault({ on: "forward_backward", failFuture: { error: "no", category: "user" } })
        yield* resumedAfter(
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

  it.effect("resume returns pending saves, and a finished save becomes the last checkpoint", () =>
    onServer(
      resumedAfter(
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

describe("numbering after resume", () => {
  it.effect("after resume a batch that was journaled only in part is not sent and uses no numbers", () =>
    onServer(
      Effect.gen(function* () {
        const memory = yield* TrainingJournal.memory
        // The disk stores one of three records.
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
        const failed = yield* Effect.flip(runProcess(Effect.flatMap(create(torn), (client) => pass(client, 0))))
        expect(failed._tag).toBe("JournalFailed")
        yield* runProcess(
          Effect.gen(function* () {
            const resumed = yield* resume(memory)
            expect(brief(resumed)).toEqual({ completed: [], pending: [] })
            yield* resumed.client.optimStep(adam)
          }),
        )
        expect(yield* sent).toEqual(["1 optim_step"])
        // The next resume does not see it either.
        expect(brief(yield* runProcess(resume(memory)))).toEqual({
          completed: [["optim_step", "1", true, Option.none()]],
          pending: [],
        })
      }),
      { flags: serial },
    ),
  )

  it.effect("numbering continues after resume on a server that does not count failed operations", () =>
    onServer(
      Effect.gen(function* () {
        yield* fault({ on: "optim_step", failFuture: { error: "no", category: "server" } })
        yield* resumedAfter(
          diesAt("after writing Settled", 2),
          (client) => Effect.zipRight(pass(client, 0), client.optimStep(adam)),
          ({ client }) => client.optimStep(adam),
        )
        expect(yield* applied).toEqual(["1 forward_backward", "2 optim_step"])
      }),
      { mode: "nextOnly" },
    ),
  )

  it.effect("numbering continues after resume on a server that counts rejected requests", () =>
    onServer(
      Effect.gen(function* () {
        yield* fault({ on: "optim_step", status: 400, body: { detail: "no" } })
        yield* resumedAfter(
          diesAt("after writing Withdrawn"),
          (client) => Effect.zipRight(pass(client, 0), client.optimStep(adam)),
          // A different request: the same one would be rejected again.
          ({ client }) => client.optimStep(Optimizer.adam({ learningRate: 1e-4 })),
        )
        expect(yield* applied).toEqual(["1 forward_backward", "3 optim_step"])
      }),
      { rejectedUsesNumber: true },
    ),
  )

  it.effect("resume keeps what the client learned about the server", () =>
    onServer(
      Effect.gen(function* () {
        yield* resumedAfter(
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

  it.effect("models and samplers of each resumed process get numbers of their own", () =>
    onServer(
      Effect.gen(function* () {
        const memory = yield* TrainingJournal.memory
        const sample = (client: TrainingClient.Service) =>
          Effect.zipRight(client.saveWeightsAndGetSamplingClient(), client.saveWeightsAndGetSamplingClient())
        yield* Effect.exit(runProcess(Effect.zipRight(Effect.flatMap(create(memory), sample), Effect.interrupt)))
        for (let life = 0; life < 2; life++)
          yield* Effect.exit(
            runProcess(
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

  it.effect("resume handles more steps than fit into the arguments of a function", () =>
    onServer(
      Effect.gen(function* () {
        const memory = yield* TrainingJournal.memory
        yield* Effect.exit(runProcess(Effect.zipRight(create(memory), Effect.interrupt)))
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
        yield* runProcess(
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

describe("operations with an unknown outcome", () => {
  it.effect("resume fails with SequenceBroken if the request in doubt was not journaled", () =>
    Effect.gen(function* () {
      const error = yield* onServer(
        Effect.flip(
          resumedAfter(
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

  it.effect("resume does not resend a request that contained a secret", () =>
    onServer(
      Effect.gen(function* () {
        const error = yield* Effect.flip(
          resumedAfter(
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

  it.effect("resume resends a request byte for byte with the same idempotency key", () =>
    onServer(
      Effect.gen(function* () {
        yield* resumedAfter(
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

describe("partially accepted batches", () => {
  const partial = (
    then: (resumed: TrainingClient.Resumed) => Effect.Effect<void, unknown, ScriptedServer.ScriptedServer>,
  ) =>
    onServer(
      Effect.gen(function* () {
        yield* fault({ on: "forward_backward", nth: 3, status: 400, body: { detail: "no" } })
        yield* resumedAfter(
          diesAt("after writing Withdrawn"),
          (client) => Effect.zipRight(client.saveState("a"), pass(client, 0)),
          then,
        )
      }),
      { flags: serial },
    )

  it.effect("a partially accepted batch is still partial after resume", () =>
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

  it.effect("loading a checkpoint resolves a partially accepted batch after resume", () =>
    partial(({ client }) =>
      Effect.gen(function* () {
        yield* client.loadState(`tinker://${client.modelId}/weights/a`)
        yield* client.optimStep(adam)
        expect((yield* applied).slice(-2)).toEqual(["4 load_weights", "5 optim_step"])
      }),
    ),
  )
})

describe("resume failures", () => {
  it.effect("resume fails for an empty journal", () =>
    onServer(
      Effect.gen(function* () {
        const error = yield* Effect.flip(runProcess(Effect.flatMap(TrainingJournal.memory, resume)))
        expect(error).toMatchObject({ _tag: "JournalFailed", reason: "Empty" })
        expect(yield* Effect.flatMap(server, ({ sessions }) => sessions)).toEqual([])
      }),
    ),
  )

  it.effect("resume fails for the journal of another server", () =>
    onServer(
      Effect.gen(function* () {
        const memory = yield* TrainingJournal.memory
        yield* Effect.exit(runProcess(Effect.zipRight(create(memory), Effect.interrupt)))
        const error = yield* Effect.flip(runProcess(resume(memory), { baseUrl: "http://another" }))
        expect(error).toMatchObject({ _tag: "InvalidConfig", setting: "baseUrl" })
        expect(error.message).toContain("http://server")
      }),
    ),
  )

  it.effect("resume of a lost session fails with SessionLost and names the last checkpoint", () =>
    onServer(
      Effect.gen(function* () {
        const memory = yield* TrainingJournal.memory
        yield* Effect.exit(
          runProcess(
            Effect.zipRight(
              Effect.flatMap(create(memory), (client) => client.saveState("a")),
              Effect.interrupt,
            ),
          ),
        )
        yield* Effect.flatMap(server, ({ endSession }) => endSession())
        const [session] = yield* Effect.flatMap(server, ({ sessions }) => sessions)
        const error = yield* Effect.flip(runProcess(resume(memory)))
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

describe("finishing the session", () => {
  const states = Effect.flatMap(server, ({ sessions }) => Effect.map(sessions, (all) => all.map(({ state }) => state)))
  const boom = new TinkerError.InvalidInput({ path: "a", problem: "b" })

  it.effect("with a journal only a process that succeeds finishes the session", () =>
    onServer(
      Effect.gen(function* () {
        const memory = yield* TrainingJournal.memory
        const endings = [Effect.interrupt, Effect.fail(boom), Effect.die("boom")]
        yield* Effect.exit(runProcess(Effect.zipRight(create(memory), Effect.fail(boom))))
        expect(yield* states).toEqual(["active"])
        for (const ending of endings) {
          yield* Effect.exit(runProcess(Effect.zipRight(resume(memory), ending)))
          expect(yield* states).toEqual(["active"])
        }
        yield* runProcess(resume(memory))
        expect(yield* states).toEqual(["success"])
      }),
    ),
  )

  it.effect("a process that fails to resume does not finish the session", () =>
    onServer(
      Effect.gen(function* () {
        const memory = yield* TrainingJournal.memory
        yield* Effect.exit(runProcess(Effect.zipRight(create(memory), Effect.interrupt)))
        const full = new TinkerError.JournalFailed({ reason: "Write", detail: "full" })
        const error = yield* Effect.flip(runProcess(resume({ read: memory.read, append: () => full })))
        expect(error).toEqual(full)
        expect(yield* states).toEqual(["active"])
      }),
    ),
  )

  for (const dies of ["Intent", "Acknowledged"] as const) {
    it.effect(`a journal that dies at ${dies} leaves no caller waiting`, () =>
      onServer(
        Effect.gen(function* () {
          const memory = yield* TrainingJournal.memory
          const append: TrainingJournal.Journal["append"] = (entries) =>
            entries.some(({ record }) => record._tag === dies) ? Effect.die(boom) : memory.append(entries)
          const exit = yield* Effect.exit(
            runProcess(Effect.flatMap(create({ read: memory.read, append }), (client) => client.saveState("x"))),
          )
          // A record that only speeds up a resume is not worth a failure.
          expect(Exit.isSuccess(exit)).toBe(dies === "Acknowledged")
        }),
      ),
    )
  }

  it.effect("without a journal a failed process finishes the session as errored", () =>
    onServer(
      Effect.gen(function* () {
        const client = Effect.flatMap(service, (service) => service.createLoraTrainingClient({ baseModel }))
        yield* Effect.exit(runProcess(Effect.zipRight(client, Effect.fail(boom))))
        expect(yield* states).toEqual(["errored"])
      }),
    ),
  )
})
