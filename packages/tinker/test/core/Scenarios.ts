/** The programs and servers that are explored. */
import type * as Server from "./ModelServer.ts"
import type { Budget, Scenario, Step } from "./SequenceModel.ts"

const step = (kind: Step["kind"], more: Partial<Step> = {}): Step => ({
  kind,
  pieces: 1,
  parallel: false,
  follows: false,
  taken: false,
  ...more,
})

export const programs = {
  pass: [step("pass")],
  trainStep: [step("pass"), step("optim", { follows: true })],
  updateThenPass: [step("optim"), step("pass")],
  updateThenSerial: [step("optim"), step("pass", { pieces: 2 })],
  updateThenStep: [step("optim"), step("pass"), step("optim", { follows: true })],
  fourUpdates: [step("optim"), step("optim"), step("optim"), step("optim")],
  updatesThenParallel: [step("optim"), step("optim"), step("pass", { pieces: 3, parallel: true })],
  updateThenSave: [step("optim"), step("save")],
  threeUpdates: [step("optim"), step("optim"), step("optim")],
  serialStep: [step("pass", { pieces: 2 }), step("optim", { follows: true })],
  parallelPass: [step("pass", { pieces: 2, parallel: true })],
  parallelThree: [step("pass", { pieces: 3, parallel: true })],
  parallelStep: [step("pass", { pieces: 2, parallel: true }), step("optim")],
  parallelAfter: [step("optim"), step("pass", { pieces: 2, parallel: true })],
  savePass: [step("save"), step("pass")],
  takenPass: [step("save", { taken: true }), step("pass")],
  forwardUpdate: [step("forward", { pieces: 2 }), step("optim")],
  serialLoad: [step("pass", { pieces: 2 }), step("load"), step("optim")],
  /** An operation without requests only waits for its turn, as unloading a model does. */
  barrier: [step("pass"), step("forward", { pieces: 0 })],
} satisfies { readonly [name: string]: ReadonlyArray<Step> }

const kinds = ["byBody", "byNumber", "nextOnly", "atWork", "anything"] as const
const zeros = ["Conflict", "Rejected", "Executed"] as const

/** Every server that differs in how it counts. One that ignores numbers does not count the creation of the model. */
export const servers: ReadonlyArray<Server.Traits> = kinds.flatMap((kind) => {
  const both = [false, true]
  // A server that checks numbers only at work does not see those of rejected requests.
  const rejected = kind === "anything" || kind === "atWork" ? [false] : both
  const failed = kind === "anything" ? [true] : both
  return rejected.flatMap((rejectedConsumed) =>
    failed.flatMap((failedConsumed) =>
      zeros
        .filter((zero) => kind !== "anything" || zero !== "Conflict")
        .map((zero) => ({ kind, rejectedConsumed, failedConsumed, zero, reads: "both" as const })),
    ),
  )
})

/** One server of each kind: the simplest, and one that differs from it in everything. */
export const fewServers: ReadonlyArray<Server.Traits> = servers.filter(
  ({ failedConsumed, kind, rejectedConsumed, zero }) =>
    kind === "anything" || kind === "atWork"
      ? zero === "Executed"
      : rejectedConsumed !== failedConsumed && zero === (rejectedConsumed ? "Conflict" : "Executed"),
)

export const scenario = (
  name: keyof typeof programs,
  server: Server.Traits,
  budget: Partial<Budget>,
  more: Partial<Scenario> = {},
): Scenario => {
  const all: Budget = { faults: 0, crashes: 0, cancels: 0, closes: 0, ...budget }
  return {
    program: programs[name],
    server,
    journaled: all.crashes > 0,
    onUnknownOutcome: "probe",
    budget: all,
    ...more,
  }
}

/** Pieces are sent in parallel only to servers whose flags allow any order. */
const mayRun = ({ program, server }: Scenario): boolean =>
  (server.kind !== "nextOnly" && server.kind !== "atWork") || program.every(({ parallel }) => !parallel)

const ground = (
  scenarios: () => ReadonlyArray<Scenario>,
  commands: ReadonlyArray<string> = [],
): { readonly scenarios: ReadonlyArray<Scenario>; readonly commands: ReadonlyArray<string> } => ({
  // Most mistakes show on the servers with the fewest checks, which come last.
  scenarios: scenarios().filter(mayRun).toReversed(),
  commands,
})

/** Programs that are short enough to be explored with every fault in each run. */
const names = [
  "trainStep",
  "updateThenPass",
  "serialStep",
  "parallelPass",
  "savePass",
  "takenPass",
  "forwardUpdate",
] as const
const readings = ["json415", "json500"] as const

const unreadable = (servers: ReadonlyArray<Server.Traits>): ReadonlyArray<Server.Traits> =>
  servers.flatMap((server) => readings.map((reads) => ({ ...server, reads })))

/** The servers on which a number is used only when its request succeeds. */
const counting = servers.filter(
  ({ kind, failedConsumed, zero }) =>
    (kind === "nextOnly" || kind === "atWork") && !failedConsumed && zero !== "Rejected",
)

/** Runs with every test: every kind of server, and every branch of the core. */
export const small: ReadonlyArray<Scenario> = [
  ...servers.map((server) => scenario("pass", server, { faults: 2 })),
  ...fewServers.flatMap((server) => [
    ...names.map((name) => scenario(name, server, { faults: 1 })),
    scenario("serialLoad", server, { faults: 2 }, { faults: ["reject", "garbled"] }),
    scenario(
      "pass",
      server,
      { faults: 2 },
      { journaled: true, faults: ["badRequest", "unknownField", "journalFails"] },
    ),
    scenario("serialStep", server, { faults: 1 }, { journaled: true, faults: ["lostBefore", "reject"] }),
    scenario("updateThenSerial", server, { faults: 1 }, { journaled: true, faults: ["lostAfter"] }),
    scenario("updateThenPass", server, { faults: 2 }, { faults: ["fails"] }),
    scenario("updateThenSave", server, { faults: 1 }, { faults: ["fails"] }),
    scenario("parallelPass", server, { faults: 2 }, { faults: ["notSent", "reject"] }),
    scenario("pass", server, { faults: 1, crashes: 1 }),
    scenario("pass", server, { crashes: 1 }, { forgetsBytes: true }),
    scenario("savePass", server, { crashes: 1 }),
    scenario("parallelPass", server, { crashes: 1 }),
    scenario("parallelThree", server, { faults: 2 }, { faults: ["errorAfter", "lostAfter"] }),
    scenario("trainStep", server, { cancels: 1, closes: 1 }),
    scenario("trainStep", server, { faults: 1, closes: 1 }, { faults: ["lostBefore", "conflict", "error"] }),
    scenario("pass", server, { faults: 1 }, { onUnknownOutcome: "stop" }),
    scenario("pass", server, { faults: 1 }, { onUnknownOutcome: "resend" }),
    scenario("pass", server, { faults: 4 }, { faults: ["conflict"] }),
    scenario("updateThenPass", server, {}, { queued: 2 }),
    scenario("barrier", server, { faults: 1 }),
  ]),
  ...counting.map((server) => scenario("threeUpdates", server, { faults: 2 }, { faults: ["fails", "lostBefore"] })),
  ...counting.map((server) => scenario("updateThenSerial", server, { faults: 1 }, { faults: ["fails"] })),
  ...unreadable(fewServers).flatMap((server) => [
    scenario("pass", server, { faults: 1 }),
    scenario("parallelPass", server, {}),
    scenario("serialStep", server, {}, { journaled: true }),
  ]),
].filter(mayRun)

/** Small programs on every server, with the events that the client received. */
export const tracedFull: ReadonlyArray<Scenario> = [...servers, ...unreadable(servers)].flatMap((server) => [
  scenario("pass", server, { faults: 2 }, { traced: true }),
  scenario("pass", server, { faults: 1, crashes: 1 }, { traced: true }),
])

/** A crash shows nothing without another fault, and encodings hardly affect what the client can know. */
export const traced: ReadonlyArray<Scenario> = servers.map((server) =>
  scenario("pass", server, { faults: 2 }, { traced: true }),
)

/** Small scenarios for finding mutants, with the commands and outcomes that must occur in them. */
export const grounds = {
  single: ground(
    () => fewServers.map((server) => scenario("pass", server, { faults: 2 })),
    ["Learn that it deduplicates", "Learn that it repeats"],
  ),
  conflicts: ground(() =>
    fewServers.map((server) => scenario("pass", server, { faults: 4 }, { faults: ["conflict"] })),
  ),
  pair: ground(() => fewServers.map((server) => scenario("trainStep", server, { faults: 1 }))),
  users: ground(() => fewServers.map((server) => scenario("trainStep", server, { cancels: 1, closes: 1 }))),
  rejections: ground(
    () => [
      ...servers.map((server) =>
        scenario("updateThenPass", server, { faults: 2 }, { faults: ["reject", "conflict", "lostBefore"] }),
      ),
      ...fewServers.map((server) => scenario("threeUpdates", server, { faults: 2 }, { faults: ["reject"] })),
    ],
    ["Learn that rejections use numbers"],
  ),
  repeatable: ground(() => fewServers.map((server) => scenario("forwardUpdate", server, { faults: 1 }))),
  waiting: ground(() => [
    ...servers.map((server) =>
      scenario("updateThenPass", server, { faults: 2 }, { faults: ["lostBefore", "lostAfter"] }),
    ),
    ...fewServers.map((server) => scenario("barrier", server, { faults: 1 })),
  ]),
  parts: ground(() => [
    ...fewServers.map((server) => scenario("serialStep", server, { faults: 1 })),
    ...fewServers.map((server) => scenario("serialLoad", server, { faults: 1 }, { faults: ["reject", "garbled"] })),
  ]),
  failures: ground(() =>
    counting.flatMap((server) => [
      scenario("updateThenPass", server, { faults: 2 }, { faults: ["fails", "lostAfter", "lostBefore", "reject"] }),
      scenario("threeUpdates", server, { faults: 2 }, { faults: ["fails", "lostBefore", "reject"] }),
      scenario("updateThenSerial", server, { faults: 1 }, { faults: ["lostAfter"] }),
      scenario("updateThenStep", server, { faults: 1 }, { faults: ["fails"] }),
      scenario("updateThenSerial", server, { faults: 1 }, { faults: ["fails"] }),
      scenario("fourUpdates", server, { faults: 1 }, { faults: ["fails"] }),
    ]),
  ),
  failedParts: ground(() =>
    counting.map((server) =>
      scenario("serialStep", server, { faults: 2 }, { faults: ["fails", "lostBefore", "reject"] }),
    ),
  ),
  journal: ground(() => [
    ...fewServers.map((server) =>
      scenario(
        "pass",
        server,
        { faults: 2, crashes: 1 },
        { faults: ["badRequest", "unknownField", "reject", "journalFails"] },
      ),
    ),
    ...fewServers.map((server) =>
      scenario("serialStep", server, { faults: 1 }, { journaled: true, faults: ["reject", "unknownField"] }),
    ),
  ]),
  names: ground(() => [
    ...servers.map((server) => scenario("takenPass", server, { faults: 1 })),
    ...servers.map((server) => scenario("savePass", server, { faults: 2 }, { faults: ["lostAfter", "reject"] })),
  ]),
  crash: ground(() => fewServers.map((server) => scenario("pass", server, { faults: 1, crashes: 1 }))),
  crashParts: ground(() => fewServers.map((server) => scenario("serialStep", server, { crashes: 1 }))),
  crashMoved: ground(() =>
    counting
      .filter(({ kind, zero }) => kind === "nextOnly" && zero === "Executed")
      .map((server) => scenario("serialStep", server, { faults: 1, crashes: 1 }, { faults: ["lostBefore"] })),
  ),
  crashRejected: ground(() =>
    servers
      .filter(({ zero }) => zero === "Executed")
      .map((server) => scenario("pass", server, { faults: 2, crashes: 1 }, { faults: ["lostBefore", "reject"] })),
  ),
  doubtAfterPart: ground(() =>
    servers
      .filter(({ kind, zero }) => kind === "atWork" && zero === "Executed")
      .map((server) => scenario("updateThenSerial", server, { faults: 2 }, { faults: ["lostAfter", "reject"] })),
  ),
  forgets: ground(() => fewServers.map((server) => scenario("pass", server, { crashes: 1 }, { forgetsBytes: true }))),
  parallel: ground(() => fewServers.map((server) => scenario("parallelPass", server, { faults: 2 }))),
  parallelStep: ground(() => fewServers.map((server) => scenario("parallelStep", server, {}))),
  parallelAfter: ground(
    () =>
      fewServers.flatMap((server) => [
        scenario("parallelAfter", server, { faults: 1 }, { faults: ["fails", "reject"] }),
        scenario("updatesThenParallel", server, { faults: 1 }, { faults: ["reject"] }),
      ]),
    ["Send in parallel after a rejection"],
  ),
  parallelThree: ground(
    () =>
      fewServers.map((server) =>
        scenario("parallelThree", server, { faults: 2 }, { faults: ["errorAfter", "lostAfter", "lostBefore"] }),
      ),
    ["Send in parallel"],
  ),
  encoding: ground(
    () =>
      unreadable(fewServers).flatMap((server) => [
        scenario("pass", server, { faults: 1 }),
        scenario("updateThenPass", server, {}),
        scenario("serialStep", server, {}),
      ]),
    ["Learn that it reads json"],
  ),
  told: ground(() =>
    (["stop", "resend"] as const).flatMap((onUnknownOutcome) =>
      fewServers.map((server) => scenario("pass", server, { faults: 1 }, { onUnknownOutcome })),
    ),
  ),
  prepare: ground(
    () =>
      fewServers.flatMap((server) => [
        scenario("threeUpdates", server, {}, { queued: 2 }),
        scenario("updateThenPass", server, {}, { queued: 2 }),
      ]),
    ["Prepare"],
  ),
} satisfies { readonly [name: string]: { readonly scenarios: ReadonlyArray<Scenario> } }

export type Ground = keyof typeof grounds

/** Everything that takes minutes instead of seconds. */
export const full: ReadonlyArray<Scenario> = [
  ...small,
  ...Object.values(grounds).flatMap(({ scenarios }) => scenarios),
  ...servers.flatMap((server) => [
    scenario("trainStep", server, { faults: 2 }),
    scenario("updateThenPass", server, { faults: 2 }),
    scenario("savePass", server, { faults: 2 }),
    scenario("takenPass", server, { faults: 2 }),
    scenario("parallelPass", server, { faults: 2 }),
    scenario("pass", server, { faults: 2, crashes: 1 }),
  ]),
  ...fewServers.flatMap((server) => [
    scenario("serialStep", server, { faults: 2 }),
    scenario("updateThenSerial", server, { faults: 2 }),
    scenario("forwardUpdate", server, { faults: 2 }),
    scenario("parallelStep", server, { faults: 2 }),
    scenario("trainStep", server, { faults: 1, crashes: 1 }),
    scenario("takenPass", server, { faults: 1, crashes: 1 }),
    scenario("parallelPass", server, { faults: 1, crashes: 1 }),
    scenario("trainStep", server, { faults: 1, cancels: 1, closes: 1 }),
    scenario("parallelThree", server, { faults: 1 }),
    scenario("pass", server, { crashes: 2 }),
  ]),
  ...unreadable(servers).flatMap((server) => [
    scenario("trainStep", server, { faults: 1 }),
    scenario("parallelPass", server, { faults: 1 }),
  ]),
].filter(mayRun)
