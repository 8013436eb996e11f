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
  threeUpdates: [step("optim"), step("optim"), step("optim")],
  serialStep: [step("pass", { pieces: 2 }), step("optim", { follows: true })],
  parallelPass: [step("pass", { pieces: 2, parallel: true })],
  parallelThree: [step("pass", { pieces: 3, parallel: true })],
  parallelStep: [step("pass", { pieces: 2, parallel: true }), step("optim")],
  savePass: [step("save"), step("pass")],
  takenPass: [step("save", { taken: true }), step("pass")],
  forwardUpdate: [step("forward", { pieces: 2 }), step("optim")],
  serialLoad: [step("pass", { pieces: 2 }), step("load"), step("optim")],
} satisfies { readonly [name: string]: ReadonlyArray<Step> }

const kinds = ["byBody", "byNumber", "nextOnly", "anything"] as const
const zeros = ["Conflict", "Rejected", "Executed"] as const

/** Every server that differs in how it counts. One that ignores numbers does not count the creation of the model. */
export const servers: ReadonlyArray<Server.Traits> = kinds.flatMap((kind) => {
  const consumes = kind === "anything" ? [true] : [false, true]
  return consumes.flatMap((rejectedConsumed) =>
    consumes.flatMap((failedConsumed) =>
      zeros
        .filter((zero) => kind !== "anything" || zero !== "Conflict")
        .map((zero) => ({ kind, rejectedConsumed, failedConsumed, zero, reads: "both" as const })),
    ),
  )
})

/** One server of each kind: the simplest, and one that differs from it in everything. */
export const fewServers: ReadonlyArray<Server.Traits> = servers.filter(
  ({ failedConsumed, kind, rejectedConsumed, zero }) =>
    kind === "anything"
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

/** Pieces are sent in parallel only to servers that say that they accept them in any order. */
const mayRun = ({ program, server }: Scenario): boolean =>
  server.kind !== "nextOnly" || program.every(({ parallel }) => !parallel)

const names = Object.keys(programs) as Array<keyof typeof programs>
const readings = ["json415", "json500"] as const

const unreadable = (servers: ReadonlyArray<Server.Traits>): ReadonlyArray<Server.Traits> =>
  servers.flatMap((server) => readings.map((reads) => ({ ...server, reads })))

/** Runs with every test: every kind of server, and every branch of the core. */
export const small: ReadonlyArray<Scenario> = [
  ...servers.flatMap((server) => [
    scenario("pass", server, { faults: 2 }),
    scenario("updateThenPass", server, { faults: 1 }),
    scenario("serialStep", server, { faults: 1 }),
  ]),
  ...fewServers.flatMap((server) => [
    ...names.map((name) => scenario(name, server, { faults: 1 })),
    scenario("pass", server, { faults: 1, crashes: 1 }),
    scenario("serialStep", server, { crashes: 1 }),
    scenario("savePass", server, { crashes: 1 }),
    scenario("pass", server, { crashes: 1 }, { forgetsBytes: true }),
    scenario("parallelPass", server, { crashes: 1 }),
    scenario("parallelThree", server, { faults: 2 }, { faults: ["errorAfter", "lostAfter"] }),
    scenario("parallelPass", server, { faults: 2 }),
    scenario("trainStep", server, { cancels: 1, closes: 1 }),
    scenario("trainStep", server, { faults: 1, closes: 1 }, { faults: ["lostBefore", "conflict", "error"] }),
    scenario(
      "trainStep",
      server,
      { faults: 2 },
      { faults: ["fails", "lostAfter", "lostBefore", "reject", "conflict"] },
    ),
    scenario("serialStep", server, { faults: 2 }, { faults: ["fails", "lostAfter", "reject"] }),
    scenario("pass", server, { faults: 1 }, { onUnknownOutcome: "stop" }),
    scenario("pass", server, { faults: 1 }, { onUnknownOutcome: "resend" }),
    scenario("serialStep", server, { faults: 1 }, { journaled: true }),
    scenario("takenPass", server, { faults: 1, crashes: 1 }, { faults: ["lostBefore"] }),
  ]),
  ...unreadable(fewServers).flatMap((server) => [
    scenario("pass", server, { faults: 1 }),
    scenario("parallelPass", server, {}),
    scenario("serialStep", server, {}, { journaled: true }),
  ]),
].filter(mayRun)

/** Everything that takes minutes instead of seconds. */
export const full: ReadonlyArray<Scenario> = [
  ...small,
  ...servers.flatMap((server) => [
    ...names.filter((name) => name !== "parallelThree").map((name) => scenario(name, server, { faults: 2 })),
    scenario("pass", server, { faults: 2, crashes: 1 }),
    scenario("trainStep", server, { faults: 1, crashes: 1 }),
    scenario("takenPass", server, { faults: 1, crashes: 1 }),
    scenario("trainStep", server, { faults: 1, cancels: 1, closes: 1 }),
    scenario("serialStep", server, { crashes: 2 }),
  ]),
  ...fewServers.flatMap((server) => [
    scenario("serialStep", server, { faults: 1, crashes: 1 }),
    scenario("parallelPass", server, { faults: 1, crashes: 1 }),
    scenario("serialLoad", server, { crashes: 1 }),
    scenario("parallelThree", server, { faults: 1 }),
  ]),
  ...unreadable(servers).flatMap((server) => [
    scenario("trainStep", server, { faults: 1 }),
    scenario("parallelPass", server, { faults: 1 }),
  ]),
].filter(mayRun)

/** Small programs on every server, with the events that the client received. */
export const traced: ReadonlyArray<Scenario> = [...servers, ...unreadable(servers)]
  .flatMap((server) => [
    scenario("pass", server, { faults: 2 }, { traced: true }),
    scenario("pass", server, { faults: 1, crashes: 1 }, { traced: true }),
  ])
  .filter(mayRun)
