/** Draws plans from seeds. */
import { Effect, Random } from "effect"
import type { Fault, Moment, Plan, Planned } from "./Fault.ts"

export type Class = "recoverable" | "hostile"

const choice = <A>(options: ReadonlyArray<A>): Effect.Effect<A> =>
  Effect.map(Random.nextIntBetween(0, options.length), (index) => options[index]!)

/** Chooses by weight. */
const weighted = <A>(options: ReadonlyArray<readonly [weight: number, value: A]>): Effect.Effect<A> =>
  Effect.map(Random.next, (random) => {
    let left = random * options.reduce((sum, [weight]) => sum + weight, 0)
    return (options.find(([weight]) => (left -= weight) < 0) ?? options.at(-1)!)[1]
  })

const chance = (probability: number) => Effect.map(Random.next, (random) => random < probability)

const between = (from: number, to: number) => Random.nextIntBetween(from, to + 1)

const moment: Effect.Effect<Moment> = choice(["before", "after"])

/** The endpoints that the program uses, how often, and how likely each is to be hit. */
const endpoints: ReadonlyArray<readonly [weight: number, { readonly name: string; readonly requests: number }]> = [
  [1, { name: "client/config", requests: 1 }],
  [1, { name: "auth/token", requests: 1 }],
  [1, { name: "create_session", requests: 1 }],
  [1, { name: "create_model", requests: 1 }],
  [8, { name: "forward_backward", requests: 15 }],
  [5, { name: "optim_step", requests: 5 }],
  [2, { name: "save_weights", requests: 2 }],
  [2, { name: "save_weights_for_sampler", requests: 2 }],
  [2, { name: "load_weights", requests: 1 }],
  [6, { name: "retrieve_future", requests: 30 }],
  [3, { name: "asample", requests: 4 }],
  [1, { name: "checkpoints", requests: 1 }],
  [1, { name: "archive", requests: 1 }],
  [2, { name: "download", requests: 1 }],
]

/** The endpoints of requests that carry a sequence number. */
const numbered = new Set([
  "forward_backward",
  "optim_step",
  "save_weights",
  "save_weights_for_sampler",
  "load_weights",
  "forward",
])

/** Every form of Retry-After, valid or not, that asks for less than two seconds or for nothing that is respected. */
const retryAfter: Effect.Effect<Readonly<Record<string, string>>> = Effect.flatMap(Random.next, () =>
  choice<Readonly<Record<string, string>>>([
    {},
    { "retry-after": "1" },
    { "retry-after": "0.3" },
    { "retry-after": "0" },
    { "retry-after": "-5" },
    { "retry-after": "" },
    { "retry-after": "soon" },
    { "retry-after": "NaN" },
    { "retry-after": "Infinity" },
    { "retry-after": "1e400" },
    { "retry-after": "99999999" },
    { "retry-after": "1, 2" },
    { "retry-after": "Wed, 21 Oct 2015 07:28:00 GMT" },
    { "retry-after": "Wednesday, 21-Oct-15 07:28:00 GMT" },
    { "retry-after": "Wed Oct 21 07:28:00 2015" },
    { "retry-after": "Fri, 99 Foo 2099 99:99:99 GMT" },
    { "retry-after-ms": "120" },
    { "retry-after-ms": "-1" },
    { "retry-after-ms": "many" },
    { "retry-after-ms": "1e308", "retry-after": "0.2" },
  ]),
)

const html = "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body><h1>Bad Gateway</h1></body></html>"

/** Statuses that mean "again later", whether or not the server did the work. */
const transientStatus = Effect.gen(function* () {
  const status = yield* choice([408, 500, 502, 503, 504, 520, 529])
  const fault: Fault = {
    _tag: "Status",
    moment: yield* moment,
    status,
    headers: { ...(yield* retryAfter), ...((yield* chance(0.2)) && { "x-should-retry": "true" }) },
    body: yield* choice(["", html, '{"detail":"try later"}', "{", '{"error":{"message":"overloaded"}}']),
  }
  return fault
})

/** Refusals that come before any work and that the client survives. */
const refusal = (endpoint: string, jwt: boolean) =>
  Effect.gen(function* () {
    const statuses = [
      429,
      429,
      400,
      ...(numbered.has(endpoint) ? [409] : []),
      ...(jwt && endpoint !== "download" ? [401] : []),
    ]
    const status = yield* choice(statuses)
    const fault: Fault = {
      _tag: "Status",
      moment: "before",
      status,
      headers: status === 429 ? yield* retryAfter : {},
      body: status === 400 ? "" : '{"detail":"not now"}',
    }
    return fault
  })

const stall = (lengths: ReadonlyArray<number>) =>
  Effect.map(Effect.all([moment, choice(lengths)]), ([moment, millis]): Fault => ({ _tag: "Stall", moment, millis }))

const unreadable = (hows: ReadonlyArray<Extract<Fault, { _tag: "Unreadable" }>["how"]>) =>
  Effect.map(Effect.all([moment, choice(hows)]), ([moment, how]): Fault => ({ _tag: "Unreadable", moment, how }))

const truncated = (clean: boolean): Effect.Effect<Fault> =>
  Effect.map(Random.next, (fraction) => ({ _tag: "Truncate", clean, fraction }))

const common: ReadonlyArray<readonly [number, Effect.Effect<Fault>]> = [
  [
    6,
    Effect.map(choice<Moment | "body">(["before", "after", "after", "body"]), (moment) => ({ _tag: "Reset", moment })),
  ],
  [3, Effect.map(Effect.all([moment, between(5, 400)]), ([moment, millis]) => ({ _tag: "Delay", moment, millis }))],
  [3, truncated(false)],
  [
    3,
    Effect.map(Effect.all([choice(["first", "second"] as const), choice([0, 0, 3, 50])]), ([answer, apart]) => ({
      _tag: "Duplicate",
      answer,
      apart,
    })),
  ],
  [2, Effect.succeed({ _tag: "Reorder" })],
  [4, transientStatus],
  [
    1,
    Effect.map(Effect.all([moment, choice(["reset", "502"] as const)]), ([moment, gateway]) => ({
      _tag: "Restart",
      moment,
      gateway,
    })),
  ],
]

const recoverable = (endpoint: string, jwt: boolean): Effect.Effect<Fault> => {
  const isPoll = endpoint === "retrieve_future"
  return Effect.flatten(
    weighted<Effect.Effect<Fault>>([
      ...common,
      [2, isPoll ? Effect.succeed({ _tag: "TryAgain" }) : refusal(endpoint, jwt)],
      [2, stall([900, 2500])],
      [2, unreadable(["empty", "html", "encoding"])],
      // A file of any length may be complete: only a checksum shows that a part is missing.
      [endpoint === "download" ? 0 : 1, truncated(true)],
    ]),
  )
}

const anyStatus = Effect.gen(function* () {
  const fault: Fault = {
    _tag: "Status",
    moment: yield* moment,
    status: yield* choice([
      201, 204, 206, 300, 301, 302, 304, 307, 308, 400, 401, 402, 403, 404, 405, 406, 409, 410, 411, 412, 413, 414, 415,
      416, 418, 421, 422, 423, 424, 425, 426, 428, 429, 431, 451, 499, 500, 501, 505, 507, 511, 599, 600, 999,
    ]),
    headers: {
      ...(yield* retryAfter),
      ...(yield* choice<Readonly<Record<string, string>>>([
        {},
        {},
        { "x-should-retry": "true" },
        { "x-should-retry": "false" },
        { "x-should-retry": "perhaps" },
        { location: "http://127.0.0.1:9/" },
        { location: "//" },
        { "content-type": "application/json; charset=utf-99" },
        { "content-encoding": "gzip" },
      ])),
    },
    body: yield* choice([
      "",
      html,
      "{",
      "null",
      "[]",
      '{"detail":{"a":[1]}}',
      '{"detail":"no"}',
      "\u0000\uffff",
      "9".repeat(70_000),
    ]),
  }
  return fault
})

const hostile: Effect.Effect<Fault> = Effect.flatten(
  weighted<Effect.Effect<Fault>>([
    ...common,
    [8, anyStatus],
    [3, unreadable(["empty", "html", "encoding", "json"])],
    [2, truncated(true)],
    [
      4,
      Effect.map(
        Effect.all([choice(["request", "response"] as const), Random.next, between(1, 255)]),
        ([side, fraction, mask]) => ({ _tag: "Corrupt", side, fraction, mask }),
      ),
    ],
    [2, Effect.map(moment, (moment) => ({ _tag: "Bomb", moment }))],
    [2, Effect.succeed({ _tag: "Expired" })],
    [1, Effect.succeed({ _tag: "TryAgain" })],
    [2, stall([900, 2500, 5000])],
  ]),
)

/** Any JSON object is a valid configuration, in which every flag has its default. */
const meaningful = (endpoint: string, fault: Fault): Fault =>
  endpoint === "client/config" && fault._tag === "Unreadable" ? { ...fault, how: "html" } : fault

const times = (kind: Class): Effect.Effect<number> =>
  kind === "recoverable"
    ? weighted([
        [8, 1],
        [1, 2],
        [1, 3],
      ])
    : weighted([
        [16, 1],
        [3, 2],
        [2, 4],
        // More often than any request is repeated.
        [1, 40],
      ])

const planned = (kind: Class, jwt: boolean) =>
  Effect.gen(function* () {
    const { name, requests } = yield* weighted(endpoints.filter(([, { name }]) => jwt || name !== "auth/token"))
    const fault = yield* kind === "recoverable"
      ? recoverable(name, jwt)
      : Effect.map(hostile, (fault) => meaningful(name, fault))
    const one: Planned = {
      endpoint: name,
      nth: yield* between(0, requests - 1),
      // A refused token or number is not expected twice, and a second restart needs another fault.
      times: isRepeatable(fault) ? yield* times(kind) : 1,
      fault,
    }
    return one
  })

const isRepeatable = (fault: Fault) =>
  fault._tag !== "Restart" && !(fault._tag === "Status" && (fault.status === 401 || fault.status === 409))

/** Draws what a seed stands for. The same seed and class always give the same plan. */
export const plan = (kind: Class, seed: number): Effect.Effect<Plan> =>
  Effect.gen(function* () {
    const parallel = yield* chance(0.5)
    const jwt = yield* chance(0.5)
    const count = yield* kind === "recoverable" ? between(1, 4) : between(1, 6)
    return { seed, parallel, jwt, faults: yield* Effect.replicateEffect(planned(kind, jwt), count) }
  }).pipe(Effect.withRandom(Random.make(`${kind} ${seed}`)))
