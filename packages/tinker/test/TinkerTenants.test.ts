import { HttpClient, HttpClientRequest } from "@effect/platform"
import { describe, expect, it } from "@effect/vitest"
import {
  Cause,
  Clock,
  Context,
  Data,
  Deferred,
  Duration,
  Effect,
  Exit,
  FastCheck as fc,
  Fiber,
  FiberRef,
  HashMap,
  Layer,
  Logger,
  Option,
  Redacted,
  Scope,
  Supervisor,
} from "effect"
import { RateLimiter, ServiceClient, Tinker, TinkerConfig, TinkerTenants } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import * as Transport from "effect-tinker/Transport"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import * as VirtualTime from "effect-tinker/testing/VirtualTime"
// The package does not export this module, and the compiler refuses to rewrite a `.ts` import into another project.
import * as LeaseMap from "../src/internal/util/LeaseMap.js"
import { adam, ending, pass, server } from "./support/Clients.ts"

const quiet = Logger.remove(Logger.defaultLogger)

const keyOf = (tenant: string) => `tml-${tenant}`

const lookup = (tenant: string): Effect.Effect<TinkerConfig.Values> =>
  Effect.succeed({ baseUrl: "http://server", apiKey: Redacted.make(keyOf(tenant)) })

const http = Layer.service(HttpClient.HttpClient)

type Around = ScriptedServer.ScriptedServer | HttpClient.HttpClient | RateLimiter.RateLimiter

/** One server for all tenants, in virtual time. */
const around = <A, E>(program: Effect.Effect<A, E, Around>, scripted?: ScriptedServer.Options) =>
  program.pipe(
    Effect.provide(Layer.mergeAll(ScriptedServer.layer(scripted), RateLimiter.layer, quiet)),
    VirtualTime.run,
  )

type Options = TinkerTenants.Options<
  TinkerTenants.TenantError,
  never,
  never,
  HttpClient.HttpClient | TinkerConfig.TinkerConfig
>

const layer = (options: Partial<Options> = {}) =>
  TinkerTenants.layer({ lookup, http, session: (displayName) => ({ displayName }), ...options })

const run = <A, E>(
  program: Effect.Effect<A, E, TinkerTenants.TinkerTenants | Around>,
  options?: Partial<Options>,
  scripted?: ScriptedServer.Options,
) => around(Effect.provide(program, layer(options)), scripted)

const { provide } = TinkerTenants
const service = ServiceClient.ServiceClient

/** Opens the tenant if necessary. */
const session = Effect.flatMap(service, ({ session }) => Effect.map(session, ({ id }) => id))

const sessions = Effect.flatMap(server, ({ sessions }) =>
  Effect.map(sessions, (all) => Object.fromEntries(all.map(({ id, state }) => [id, state]))),
)

const health = Effect.flatMap(Transport.Transport, ({ call }) => call(Api.health, {}))

const keysOf = (operation: ScriptedServer.Operation) =>
  Effect.flatMap(server, ({ requestsTo }) =>
    Effect.map(requestsTo(operation), (seen) => seen.map(({ headers }) => headers["x-api-key"])),
  )

describe("isolation of fifty tenants", () => {
  const tenants = Array.from({ length: 50 }, (_, i) => `tenant-${String(i).padStart(2, "0")}`)
  const [limited = "", refused = "", crashing = "", dying = "", silent = ""] = tenants
  const withFaults = new Set([limited, refused, crashing, dying, silent])

  /** Training, then samples of the trained weights, then a while of heartbeats only. */
  const work = (baseModel: string) =>
    Effect.gen(function* () {
      const client = yield* (yield* service).createLoraTrainingClient({ baseModel })
      for (let step = 0; step < 2; step++) {
        yield* pass(client, 1, 2, 3)
        yield* client.optimStep(adam)
      }
      const sampler = yield* client.saveWeightsAndGetSamplingClient()
      yield* Effect.forEach([1, 2, 3], () => sampler.sample({ prompt: [1, 2] }), { concurrency: "unbounded" })
      yield* Effect.sleep("25 seconds")
    }).pipe(Effect.scoped)

  const workOrDie = (tenant: string) =>
    tenant === dying ? Effect.zipRight(Effect.fork(work(tenant)), Effect.dieMessage("a bug")) : work(tenant)

  /** How and when each tenant's work ended. */
  const allTenants = (work: (tenant: string) => ReturnType<typeof workOrDie>) =>
    Effect.forEach(
      tenants,
      (tenant, i) =>
        Effect.gen(function* () {
          yield* Effect.sleep(i * 100)
          const how = yield* ending(provide(tenant)(work(tenant)))
          return [tenant, how, yield* Clock.currentTimeMillis] as const
        }),
      { concurrency: "unbounded" },
    )

  /** One client per tenant, each with its own marker; one of them dies in the middle of its work. */
  const ownHttp = (made: Array<string>, crashes: boolean) =>
    Layer.effect(
      HttpClient.HttpClient,
      Effect.gen(function* () {
        const key = Redacted.value(Option.getOrThrow((yield* TinkerConfig.TinkerConfig).apiKey))
        made.push(key)
        let sent = 0
        return HttpClient.transform(
          HttpClient.mapRequest(yield* HttpClient.HttpClient, HttpClientRequest.setHeader("x-client-of", key)),
          (answer) => (crashes && key === keyOf(crashing) && ++sent > 8 ? Effect.dieMessage("a crash") : answer),
        )
      }),
    )

  const scripted: ScriptedServer.Options = { work: "3 seconds" }
  const from = (tenant: string) => (seen: ScriptedServer.Seen) => seen.headers["x-api-key"] === keyOf(tenant)

  it.effect("a rate limit, bad key, crash or silence of one tenant does not affect the others", () =>
    Effect.gen(function* () {
      const withoutFaults = yield* run(allTenants(work), { http: ownHttp([], false) }, scripted)
      const made: Array<string> = []
      const { log, models, outcome, sessions } = yield* run(
        Effect.gen(function* () {
          const { fault, models, rateLimit, requests, sessions } = yield* server
          yield* rateLimit({ for: "90 seconds", on: from(limited), retryAfter: "20 seconds" })
          yield* fault({ on: from(silent), hang: true, after: "10 seconds", for: "2 minutes" })
          const outcome = yield* allTenants(workOrDie)
          return { outcome, log: yield* requests, models: yield* models, sessions: yield* sessions }
        }),
        { http: ownHttp(made, true) },
        { ...scripted, apiKeys: tenants.filter((tenant) => tenant !== refused).map(keyOf) },
      )

      // The others end at the same millisecond as without the faults.
      const others = ([tenant]: (typeof withoutFaults)[number]) => !withFaults.has(tenant)
      expect(outcome.filter(others)).toEqual(withoutFaults.filter(others))
      expect(new Set(withoutFaults.map(([, how]) => how))).toEqual(new Set(["done"]))
      expect(outcome.filter((one) => !others(one)).map(([, how]) => how)).toEqual([
        "done",
        "Unauthorized Refused",
        "RequestFailed PollerDied",
        "died",
        "done",
      ])
      const late = (tenant: string) => {
        const [before, after] = [withoutFaults, outcome].map((all) => all.find(([name]) => name === tenant)?.[2] ?? 0)
        return (after ?? 0) - (before ?? 0)
      }
      expect(late(limited)).toBeGreaterThan(60_000)
      expect(late(silent)).toBeGreaterThan(60_000)

      // One client per tenant, and every request carries the key of the tenant it concerns.
      expect(made.toSorted()).toEqual(tenants.map(keyOf))
      const owners = new Map<unknown, string>(tenants.map((tenant) => [tenant, tenant]))
      for (const { applied, baseModel, id, sessionId } of models) {
        for (const name of [id, sessionId, ...applied.map(({ requestId }) => requestId)]) owners.set(name, baseModel)
      }
      const namesIn = (seen: ScriptedServer.Seen): ReadonlyArray<unknown> => {
        if (seen.json === undefined) {
          const text = new TextDecoder("latin1").decode(seen.bytes)
          return models.map(({ id }) => id).filter((id) => text.includes(id))
        }
        const { base_model, display_name, model_id, request_id, session_id } = seen.json as Record<string, unknown>
        return [base_model, display_name, model_id, request_id, session_id]
      }
      const keys = log.map((seen) => ({
        key: [seen.headers["x-api-key"]],
        client: [seen.headers["x-client-of"]],
        about: [...new Set(namesIn(seen).flatMap((name) => owners.get(name) ?? []))].map(keyOf),
      }))
      expect(keys.filter(({ client, key }) => client[0] !== key[0])).toEqual([])
      const recognised = keys.filter(({ about }) => about.length > 0)
      expect(recognised.filter(({ about, key }) => about.length > 1 || about[0] !== key[0])).toEqual([])
      expect(recognised.length).toBeGreaterThan(log.length / 2)
      // One session per tenant with a valid key.
      expect(sessions.length).toBe(tenants.length - 1)
      expect(new Set(models.map(({ sessionId }) => sessionId)).size).toBe(models.length)
    }),
  )
})

describe("rate limits of tenants", () => {
  const accounts: Readonly<Record<string, TinkerConfig.Values>> = {
    first: { baseUrl: "http://server", apiKey: Redacted.make("tml-same") },
    alike: { baseUrl: "HTTP://server:80/", apiKey: Redacted.make("tml-same") },
    otherKey: { baseUrl: "http://server", apiKey: Redacted.make("tml-other") },
    otherUrl: { baseUrl: "http://server/other", apiKey: Redacted.make("tml-same") },
  }
  const options = { lookup: (tenant: string) => Effect.succeed(accounts[tenant] ?? {}) }
  const limited: ScriptedServer.Options = {
    faults: [{ on: "asample", status: 429, headers: { "retry-after": "40" } }],
  }

  const sampler = Effect.flatMap(service, (service) => service.createSamplingClient({ baseModel: "m" }))
  const sample = Effect.scoped(Effect.flatMap(sampler, ({ sample }) => sample({ prompt: [1] })))
  /** When each of these tenants gets its sample, all started at once. */
  const sampled = (tenants: ReadonlyArray<string>) =>
    Effect.forEach(tenants, (tenant) => Effect.zipRight(provide(tenant)(sample), Clock.currentTimeMillis), {
      concurrency: "unbounded",
    })

  it.effect("tenants share limits exactly when they have the same server and credential", () =>
    Effect.gen(function* () {
      const times = yield* run(
        Effect.gen(function* () {
          const first = yield* Effect.fork(sampled(["first"]))
          yield* Effect.sleep("1 second")
          return [...(yield* sampled(["alike", "otherKey", "otherUrl"])), ...(yield* Fiber.join(first))]
        }),
        options,
        limited,
      )
      expect(times).toEqual([40_000, 1_000, 1_000, 40_000])
    }),
  )

  it.effect("limits outlive the request that caused them", () =>
    Effect.gen(function* () {
      const times = yield* run(
        Effect.gen(function* () {
          yield* Effect.timeoutOption(sampled(["first"]), "1 second")
          return yield* sampled(["first", "otherKey"])
        }),
        options,
        limited,
      )
      expect(times).toEqual([40_000, 1_000])
    }),
  )
})

describe("tenant lifetime", () => {
  it.effect("a tenant costs nothing until it is used", () =>
    run(
      Effect.gen(function* () {
        yield* provide("a")(Effect.void)
        expect(yield* (yield* server).requests).toEqual([])
      }),
    ),
  )

  it.effect("an idle tenant is closed with all its fibers", () =>
    Effect.gen(function* () {
      const fibers = yield* Supervisor.track
      const alive = Effect.flatMap(fibers.value, (all) =>
        Effect.map(
          Effect.filter(all, (fiber) => Effect.map(Fiber.poll(fiber), Option.isNone)),
          ({ length }) => length,
        ),
      )
      yield* run(
        Effect.gen(function* () {
          const before = yield* alive
          const a = yield* provide("a")(session)
          yield* Effect.sleep("4 minutes")
          expect(yield* provide("a")(session)).toBe(a)
          // The idle time starts here.
          yield* Effect.sleep("299 seconds")
          expect(yield* sessions).toEqual({ [a]: "active" })
          expect(yield* alive).toBeGreaterThan(before)
          yield* Effect.sleep("2 seconds")
          expect(yield* sessions).toEqual({ [a]: "success" })
          expect(yield* alive).toBe(before)
          const heartbeats = yield* keysOf("session_heartbeat")
          expect(heartbeats.length).toBeGreaterThan(50)
          yield* Effect.sleep("1 hour")
          expect((yield* keysOf("session_heartbeat")).length).toBe(heartbeats.length)
          // The next lookup opens it again.
          const again = yield* provide("a")(session)
          expect(yield* sessions).toEqual({ [a]: "success", [again]: "active" })
        }),
      ).pipe(Effect.supervised(fibers))
    }),
  )

  it.effect("a tenant stays open while it is held", () =>
    run(
      Effect.gen(function* () {
        const long = yield* Effect.fork(provide("a")(Effect.zipLeft(session, Effect.sleep("20 minutes"))))
        yield* Effect.sleep("10 minutes")
        yield* provide("a")(Effect.void)
        yield* Effect.sleep("9 minutes")
        const [id] = Object.keys(yield* sessions)
        expect(yield* sessions).toEqual({ [id ?? ""]: "active" })
        expect(yield* Fiber.join(long)).toBe(id)
      }),
      { idleTimeToLive: "1 minute" },
    ),
  )

  it.effect("a tenant's idle time can be zero or infinite", () =>
    Effect.gen(function* () {
      const after = (idleTimeToLive: Duration.DurationInput) =>
        run(
          Effect.gen(function* () {
            yield* provide("a")(session)
            yield* Effect.sleep("1 second")
            const soon = Object.values(yield* sessions)
            yield* Effect.sleep("1 hour")
            return [...soon, ...Object.values(yield* sessions)]
          }),
          { idleTimeToLive },
        )
      expect(yield* after(0)).toEqual(["success", "success"])
      expect(yield* after(Duration.infinity)).toEqual(["active", "active"])
    }),
  )

  it.effect("an invalidated tenant is looked up again, and holders keep the old one", () =>
    Effect.gen(function* () {
      let key = "tml-old"
      yield* run(
        Effect.gen(function* () {
          const done = yield* Deferred.make<void>()
          const holder = yield* provide("a")(
            Effect.gen(function* () {
              const id = yield* session
              yield* Deferred.await(done)
              yield* health
              return id
            }),
          ).pipe(Effect.fork)
          yield* Effect.sleep("1 second")
          key = "tml-new"
          yield* provide("a")(health)
          yield* TinkerTenants.invalidate("a")
          const now = yield* provide("a")(Effect.zipRight(health, session))
          yield* Deferred.succeed(done, undefined)
          const then = yield* Fiber.join(holder)
          yield* provide("a")(health)
          expect(yield* keysOf("healthz")).toEqual(["tml-old", "tml-new", "tml-old", "tml-new"])
          // The old one closes when its last holder is gone; the new one keeps its full idle time.
          yield* Effect.sleep("1 second")
          expect(yield* sessions).toEqual({ [then]: "success", [now]: "active" })
          yield* Effect.sleep("298 seconds")
          expect(yield* sessions).toEqual({ [then]: "success", [now]: "active" })

          // This tenant has no holder.
          yield* TinkerTenants.invalidate("a")
          yield* Effect.sleep("1 second")
          expect(yield* sessions).toEqual({ [then]: "success", [now]: "success" })
          yield* TinkerTenants.invalidate("a")
          yield* TinkerTenants.invalidate("nobody")
        }),
        { lookup: () => Effect.sync(() => ({ baseUrl: "http://server", apiKey: Redacted.make(key) })) },
      )
    }),
  )

  it.effect("a tenant's logs and spans are annotated", () =>
    run(
      Effect.gen(function* () {
        const annotations = Effect.all([Effect.logAnnotations, Effect.spanAnnotations])
        const inside = yield* provide("a")(annotations)
        for (const found of inside) expect(HashMap.get(found, "tinker.tenant")).toEqual(Option.some("a"))
        for (const found of yield* annotations) expect(HashMap.size(found)).toBe(0)
      }),
    ),
  )

  it.effect("a tenant belongs to the scope of the program, not of its first user", () =>
    Effect.gen(function* () {
      class Request extends Context.Reference<Request>()("test/Request", { defaultValue: () => "none" }) {}
      const seen: Array<unknown> = []
      yield* run(
        provide("a")(Request).pipe(
          Effect.tap((inside) => Effect.sync(() => seen.push(inside))),
          Effect.provideService(Request, "the first"),
          Effect.withSpan("the first"),
          Effect.annotateLogs("request", "the first"),
        ),
        {
          lookup: (tenant) =>
            Effect.gen(function* () {
              const span = yield* Effect.option(Effect.currentParentSpan)
              seen.push(yield* Request, Option.isNone(span), [...HashMap.keys(yield* Effect.logAnnotations)])
              return yield* lookup(tenant)
            }),
        },
      )
      expect(seen).toEqual(["none", true, ["tinker.tenant"], "the first"])
    }),
  )
})

describe("tenant lookup", () => {
  class UnknownTenant extends Data.TaggedError("UnknownTenant")<{ readonly tenant: string }> {}

  class Tenants extends Context.Tag("test/Tenants")<
    Tenants,
    TinkerTenants.Service<UnknownTenant | TinkerTenants.TenantError>
  >() {}

  type Lookup<R = never> = TinkerTenants.Options<UnknownTenant, R>["lookup"]

  const withLookup = <A, E>(program: Effect.Effect<A, E, Tenants | Around>, lookup: Lookup) =>
    around(Effect.provide(program, Layer.scoped(Tenants, TinkerTenants.make({ lookup, http }))))

  const fiveTimes = Effect.flatMap(Tenants, ({ provide }) =>
    Effect.forEach([1, 2, 3, 4, 5], () => ending(provide("a")(health)), { concurrency: "unbounded" }),
  )
  const each = (how: string) => [how, how, how, how, how]

  it.effect("concurrent users of a tenant share one lookup", () =>
    Effect.gen(function* () {
      let lookups = 0
      const ids = yield* withLookup(
        Effect.flatMap(Tenants, (tenants) =>
          Effect.forEach(Array.from({ length: 20 }), () => tenants.provide("a")(session), { concurrency: "unbounded" }),
        ),
        (tenant) =>
          Effect.delay(
            Effect.zipRight(
              Effect.sync(() => lookups++),
              lookup(tenant),
            ),
            "1 second",
          ),
      )
      expect(new Set(ids).size).toBe(1)
      expect(lookups).toBe(1)
    }),
  )

  it.effect("a lookup continues when one waiter leaves and stops when the last one leaves", () =>
    Effect.gen(function* () {
      const seen: Array<string> = []
      yield* withLookup(
        Effect.gen(function* () {
          const { provide } = yield* Tenants
          const first = yield* Effect.fork(provide("a")(health))
          const second = yield* Effect.fork(provide("a")(health))
          yield* Effect.sleep("1 second")
          yield* Fiber.interrupt(first)
          expect(yield* Fiber.join(second)).toBeDefined()
          const third = yield* Effect.fork(provide("b")(health))
          yield* Effect.sleep("1 second")
          yield* Fiber.interrupt(third)
          // The next lookup does not wait for the abandoned one.
          yield* Effect.fork(provide("b")(health))
          yield* Effect.sleep("1 second")
          expect(seen).toEqual(["begun a", "begun b", "interrupted b", "begun b"])
        }),
        (tenant) =>
          Effect.sync(() => seen.push(`begun ${tenant}`)).pipe(
            Effect.zipRight(Effect.delay(lookup(tenant), "2 seconds")),
            Effect.onInterrupt(() => Effect.sync(() => seen.push(`interrupted ${tenant}`))),
          ),
      )
    }),
  )

  const troubles: ReadonlyArray<readonly [string, string, Lookup]> = [
    ["fails", "UnknownTenant", (tenant) => new UnknownTenant({ tenant })],
    ["dies", "died", () => Effect.dieMessage("a bug")],
    ["finds no key", "InvalidConfig", () => Effect.succeed({})],
    ["gives up", "ClientClosed", () => Effect.interrupt],
  ]

  it.effect.each(troubles)("a lookup that %s is reported to all waiters and retried by the next", ([, how, trouble]) =>
    Effect.gen(function* () {
      let lookups = 0
      yield* withLookup(
        Effect.gen(function* () {
          expect(yield* fiveTimes).toEqual(each(how))
          expect(lookups).toBe(1)
          expect(yield* fiveTimes).toEqual(each("done"))
          expect(yield* fiveTimes).toEqual(each("done"))
          expect(lookups).toBe(2)
        }),
        (tenant) => Effect.suspend(() => Effect.delay(++lookups === 1 ? trouble(tenant) : lookup(tenant), "1 second")),
      )
    }),
  )
})

describe("program end", () => {
  /** Tenants in their own scope, which a test can close while they are in use. */
  const opened = (options?: Partial<Options>) =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const context = yield* Layer.buildWithScope(layer(options), scope)
      return { scope, tenants: Context.get(context, TinkerTenants.TinkerTenants) }
    })

  it.effect("closing the program finishes all sessions concurrently with the reason", () =>
    around(
      Effect.gen(function* () {
        const { scope, tenants } = yield* opened()
        const names = Array.from({ length: 10 }, (_, i) => `t${i}`)
        const users = yield* Effect.forEach(names, (name) =>
          Effect.fork(tenants.provide(name)(Effect.zipRight(session, name < "t5" ? Effect.never : Effect.void))),
        )
        yield* Effect.sleep("1 second")
        yield* (yield* server).fault({ on: "sessions/finish", delay: "3 seconds", times: 10 })
        const before = yield* Clock.currentTimeMillis
        yield* Scope.close(scope, Exit.die("a bug"))
        expect((yield* Clock.currentTimeMillis) - before).toBe(3_000)
        expect(Object.values(yield* sessions)).toEqual(names.map(() => "errored"))
        yield* Fiber.interruptAll(users)
      }),
    ),
  )

  it.effect("closing the program fails waiting and later lookups", () =>
    around(
      Effect.gen(function* () {
        const { scope, tenants } = yield* opened({
          lookup: (tenant) => (tenant === "a" ? Effect.never : lookup(tenant)),
        })
        const waiting = yield* Effect.fork(Effect.exit(tenants.provide("a")(health)))
        const using = yield* Effect.fork(
          Effect.exit(tenants.provide("b")(Effect.zipRight(Effect.sleep("2 seconds"), health))),
        )
        yield* Effect.sleep("1 second")
        yield* Scope.close(scope, Exit.void)
        const late = yield* Effect.exit(tenants.provide("c")(health))
        for (const exit of [yield* Fiber.join(waiting), yield* Fiber.join(using), late]) {
          const error = Exit.isFailure(exit) ? Cause.failureOption(exit.cause) : Option.none()
          expect(error).toMatchObject({ value: { _tag: "ClientClosed" } })
        }
        yield* tenants.invalidate("b")
      }),
    ),
  )
})

describe("a lookup that has not started", () => {
  const both = (end: (scope: Scope.CloseableScope, asking: Fiber.Fiber<unknown, string>) => Effect.Effect<unknown>) =>
    Effect.gen(function* () {
      const fibers = yield* Supervisor.track
      const scope = yield* Scope.make()
      const { get } = yield* LeaseMap.make({
        idleTimeToLive: Duration.minutes(1),
        closed: () => "closed",
        make: () => Effect.never,
      }).pipe(Scope.extend(scope), Effect.supervised(fibers))
      const asking = yield* Effect.fork(Effect.scoped(get("a")))
      // The lookup was requested, but its fiber has not started.
      yield* Effect.fork(end(scope, asking))
      const exit = yield* Fiber.await(asking)
      yield* Scope.close(scope, Exit.void)
      yield* Effect.sleep("1 second")
      expect(yield* fibers.value).toEqual([])
      return exit
    }).pipe(VirtualTime.run)

  it.effect("closing the program or interrupting the only waiter before a lookup starts ends all waiters", () =>
    Effect.gen(function* () {
      expect(yield* both((scope) => Scope.close(scope, Exit.void))).toEqual(Exit.fail("closed"))
      expect(Exit.isInterrupted(yield* both((_, asking) => Fiber.interrupt(asking)))).toBe(true)
    }),
  )
})

describe("Tinker.layer", () => {
  it.effect("Tinker.layer provides the whole SDK for a configuration, also several times in one program", () =>
    around(
      Effect.gen(function* () {
        const tinker = Tinker.layer()
        const configured = (name: string) => {
          const tag = Context.GenericTag<Context.Context<Tinker.Tinker>>(name)
          const config = TinkerConfig.layer({ baseUrl: "http://server", apiKey: Redacted.make(`tml-${name}`) })
          return { tag, layer: Layer.map(Layer.provide(tinker, config), (context) => Context.make(tag, context)) }
        }
        const [a, b] = [configured("a"), configured("b")]
        const ids = yield* Effect.flatMap(Effect.all([a.tag, b.tag]), (contexts) =>
          Effect.forEach(contexts, (context) => Effect.provide(Effect.zipLeft(session, health), context)),
        ).pipe(Effect.provide(Layer.merge(a.layer, b.layer)))
        expect(new Set(ids).size).toBe(2)
        expect(yield* keysOf("healthz")).toEqual(["tml-a", "tml-b"])
        expect(yield* keysOf("create_session")).toEqual(["tml-a", "tml-b"])
        // One transport for all its clients.
        expect(yield* keysOf("client/config")).toEqual(["tml-a", "tml-b"])
      }),
    ),
  )
})

describe("LeaseMap", () => {
  interface Thing {
    readonly name: string
    /** The number of invalidations before it was created. */
    readonly age: number
    closed: number
    holders: number
    idleSince: number
  }

  type Command =
    | { readonly _tag: "Hold"; readonly name: string; readonly fails: boolean }
    | { readonly _tag: "Leave"; readonly which: number }
    | { readonly _tag: "Invalidate"; readonly name: string }
    | { readonly _tag: "Wait"; readonly millis: number }

  const name = fc.constantFrom("a", "b")
  const rarely = fc.nat(5).map((n) => n === 0)
  const command: fc.Arbitrary<Command> = fc.oneof(
    { weight: 4, arbitrary: fc.record({ _tag: fc.constant("Hold"), name, fails: rarely }) },
    { weight: 4, arbitrary: fc.record({ _tag: fc.constant("Leave"), which: fc.nat(20) }) },
    { weight: 1, arbitrary: fc.record({ _tag: fc.constant("Invalidate"), name }) },
    { weight: 3, arbitrary: fc.record({ _tag: fc.constant("Wait"), millis: fc.constantFrom(3, 400, 900) }) },
  ) as fc.Arbitrary<Command>

  const timeToLive = 1_000

  const check = (commands: ReadonlyArray<Command>) =>
    Effect.gen(function* () {
      const things: Array<Thing> = []
      const ages: Record<string, number> = {}
      let failing = false
      const scope = yield* Scope.make()
      const map = yield* LeaseMap.make({
        idleTimeToLive: Duration.millis(timeToLive),
        closed: () => "closed" as const,
        make: (name: string) =>
          Effect.gen(function* () {
            const age = ages[name] ?? 0
            const fails = failing
            const thing: Thing = { name, age, closed: 0, holders: 0, idleSince: 0 }
            yield* Effect.addFinalizer(() =>
              // For example with a timeout.
              Effect.zipRight(
                Effect.interruptible(Effect.yieldNow()),
                Effect.sync(() => thing.closed++),
              ),
            )
            yield* Effect.sleep(2)
            if (fails) return yield* Effect.fail("failed" as const)
            things.push(thing)
            return thing
          }),
      }).pipe(Scope.extend(scope))

      const hold = (name: string) =>
        Effect.gen(function* () {
          const thing = yield* map.get(name)
          yield* Effect.acquireRelease(
            Effect.sync(() => thing.holders++),
            () =>
              Effect.map(Clock.currentTimeMillis, (now) => {
                thing.holders--
                thing.idleSince = now
              }),
          )
          return yield* Effect.never
        }).pipe(Effect.scoped)

      const held: Array<Fiber.RuntimeFiber<never, "failed" | "closed">> = []
      for (const command of commands) {
        switch (command._tag) {
          case "Hold":
            failing = command.fails
            held.push(yield* Effect.fork(hold(command.name)))
            break
          case "Leave":
            yield* Effect.forEach(held.splice(command.which % (held.length + 1), 1), Fiber.interrupt)
            break
          case "Invalidate":
            ages[command.name] = (ages[command.name] ?? 0) + 1
            yield* map.invalidate(command.name)
            break
          case "Wait":
            yield* Effect.sleep(command.millis)
        }
        yield* Effect.sleep(1)
        const now = yield* Clock.currentTimeMillis
        const given = things.filter((thing) => thing.closed === 0 && thing.age === (ages[thing.name] ?? 0))
        expect(new Set(given.map((thing) => thing.name)).size).toBe(given.length)
        for (const thing of things) {
          const idle = now - thing.idleSince
          if (thing.holders > 0) expect(thing.closed).toBe(0)
          else if (thing.age < (ages[thing.name] ?? 0) || idle > timeToLive + 1) expect(thing.closed).toBe(1)
          else if (idle < timeToLive) expect(thing.closed).toBe(0)
        }
      }
      yield* Scope.close(scope, Exit.void)
      expect(things.map(({ closed }) => closed)).toEqual(things.map(() => 1))
      expect(yield* Effect.flip(Effect.scoped(map.get("a")))).toBe("closed")
      yield* Fiber.interruptAll(held)
    }).pipe(VirtualTime.run)

  it.effect.prop(
    "LeaseMap has one resource per key, keeps it open while it is held, and closes it after its idle time",
    [fc.array(command, { minLength: 10, maxLength: 50 })],
    ([commands]) => check(commands),
  )
})

describe("TinkerTenants credentials", () => {
  /** Collects everything that logs and spans are annotated with. */
  const annotations = Effect.gen(function* () {
    const logs = yield* FiberRef.get(FiberRef.currentLogAnnotations)
    const spans = yield* FiberRef.get(FiberRef.currentTracerSpanAnnotations)
    return JSON.stringify([...logs, ...spans])
  })

  it.effect("provideCredentials uses the key of the request, and equal credentials share a session", () =>
    run(
      Effect.gen(function* () {
        const asked = (key: string) =>
          TinkerTenants.provideCredentials({ apiKey: Redacted.make(key), baseUrl: "http://server" })(session)
        const [one, again, other] = [yield* asked("tml-one"), yield* asked("tml-one"), yield* asked("tml-two")]
        expect(again).toBe(one)
        expect(other).not.toBe(one)
        expect(yield* keysOf("create_session")).toEqual(["tml-one", "tml-two"])
      }),
    ),
  )

  it.effect("a credential appears in no annotation, also where it is passed as the name of a tenant", () =>
    run(
      Effect.gen(function* () {
        const byCredential = TinkerTenants.provideCredentials({ apiKey: Redacted.make("tml-secret") })
        expect(yield* byCredential(Effect.zipRight(Transport.Transport, annotations))).not.toContain("tml-secret")
        const byName = yield* provide("tml-secret")(Effect.zipRight(Transport.Transport, annotations))
        expect(byName).not.toContain("tml-secret")
        expect(byName).toContain("<redacted>")
      }),
    ),
  )

  it.effect("a base URL that is not valid is reported as InvalidConfig", () =>
    run(
      Effect.gen(function* () {
        const bad = TinkerTenants.provideCredentials({ apiKey: Redacted.make("tml-a"), baseUrl: "nonsense" })
        expect(yield* ending(bad(session))).toBe("InvalidConfig")
      }),
    ),
  )
})
