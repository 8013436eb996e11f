/** Performs a fault on one exchange. */
import { gzipSync } from "node:zlib"
import { Effect } from "effect"
import type { Exchange } from "./Exchange.ts"
import type { Fault } from "./Fault.ts"
import type { Message, Reply, UpstreamLost } from "./Message.ts"

/** What faults can use besides the exchange itself. */
export interface Surroundings {
  readonly forward: (message: Message) => Effect.Effect<Reply, UpstreamLost>
  /** Kills the server and starts it again; requests during that time fail. */
  readonly restart: Effect.Effect<void>
  /** Waits until another request has passed, but not for long. */
  readonly overtaken: Effect.Effect<void>
}

const text = (status: number, type: string, body: string, headers: Readonly<Record<string, string>> = {}): Reply => ({
  status,
  headers: ["content-type", type, ...Object.entries(headers).flat()],
  body: Buffer.from(body),
})

export const page = (status: number): Reply =>
  text(status, "text/html", "<!DOCTYPE html><html><body><h1>This is the page of a proxy</h1></body></html>")

let bomb: Buffer | undefined

/** 64 MiB of zeros; the client accepts 8 MiB. */
const inflating = (): Reply => {
  bomb ??= gzipSync(Buffer.alloc(64 * 2 ** 20))
  return { status: 200, headers: ["content-type", "application/json", "content-encoding", "gzip"], body: bomb }
}

const unreadable = (how: Extract<Fault, { _tag: "Unreadable" }>["how"]): Reply => {
  switch (how) {
    case "empty":
      return text(200, "application/json", "")
    case "html":
      return page(200)
    case "encoding":
      return text(200, "application/json", "{}", { "content-encoding": "x-unknown" })
    case "json":
      return text(200, "application/json", '{"unexpected":[true]}')
  }
}

const flipped = (body: Buffer, fraction: number, mask: number): Buffer => {
  const copy = Buffer.from(body)
  const at = Math.min(copy.length - 1, Math.floor(fraction * copy.length))
  if (at >= 0) copy[at] = copy[at]! ^ mask
  return copy
}

/** Replaces the response: instead of the server, or after it has done the work. */
const replace = (
  { forward }: Surroundings,
  { message, reply }: Exchange,
  moment: "before" | "after",
  replacement: () => Reply,
) =>
  Effect.flatMap(message, (request) =>
    moment === "before"
      ? reply(replacement())
      : Effect.zipRight(
          forward(request),
          Effect.suspend(() => reply(replacement())),
        ),
  )

const duplicate = (
  { forward }: Surroundings,
  { message, reply }: Exchange,
  { answer, apart }: Extract<Fault, { _tag: "Duplicate" }>,
) =>
  Effect.gen(function* () {
    const request = yield* message
    const [first, second] = yield* Effect.all([forward(request), Effect.delay(forward(request), apart)], {
      concurrency: "unbounded",
    })
    yield* reply(answer === "first" ? first : second)
  })

const truncate = (
  { message, reply, replyPartly }: Exchange,
  { forward }: Surroundings,
  clean: boolean,
  fraction: number,
) =>
  Effect.flatMap(Effect.flatMap(message, forward), (whole) => {
    const length = Math.floor(fraction * whole.body.length)
    return clean ? reply({ ...whole, body: whole.body.subarray(0, length) }) : replyPartly(whole, length)
  })

const passOn = ({ forward }: Surroundings, { message, reply }: Exchange) =>
  Effect.flatMap(Effect.flatMap(message, forward), reply)

/** Reads the request, and lets the server do the work if the fault comes after it. */
const until = ({ forward }: Surroundings, { message }: Exchange, moment: "before" | "after") =>
  Effect.flatMap(message, (request) => (moment === "before" ? Effect.void : Effect.asVoid(forward(request))))

/** Carries out an exchange, with or without a fault. */
export const perform = (
  around: Surroundings,
  exchange: Exchange,
  fault: Fault | undefined,
): Effect.Effect<void, UpstreamLost> => {
  const { firstBytes, message, reply, reset } = exchange
  const { forward } = around
  switch (fault?._tag) {
    case undefined:
      return passOn(around, exchange)
    case "Reset":
      if (fault.moment === "body") return Effect.zipRight(firstBytes, reset)
      return Effect.zipRight(until(around, exchange, fault.moment), reset)
    case "Delay":
      return fault.moment === "before"
        ? Effect.flatMap(message, (request) => Effect.delay(Effect.flatMap(forward(request), reply), fault.millis))
        : Effect.flatMap(Effect.flatMap(message, forward), (answer) => Effect.delay(reply(answer), fault.millis))
    case "Truncate":
      return truncate(exchange, around, fault.clean, fault.fraction)
    case "Duplicate":
      return duplicate(around, exchange, fault)
    case "Reorder":
      return Effect.flatMap(Effect.tap(message, around.overtaken), (request) => Effect.flatMap(forward(request), reply))
    case "Corrupt":
      return Effect.flatMap(message, (request) =>
        fault.side === "request"
          ? Effect.flatMap(forward({ ...request, body: flipped(request.body, fault.fraction, fault.mask) }), reply)
          : Effect.flatMap(forward(request), (answer) =>
              reply({ ...answer, body: flipped(answer.body, fault.fraction, fault.mask) }),
            ),
      )
    case "Stall":
      return until(around, exchange, fault.moment).pipe(
        Effect.zipRight(Effect.sleep(fault.millis)),
        Effect.zipRight(reset),
      )
    case "Status":
      return replace(around, exchange, fault.moment, () =>
        text(fault.status, fault.body.startsWith("<") ? "text/html" : "application/json", fault.body, fault.headers),
      )
    case "Unreadable":
      return replace(around, exchange, fault.moment, () => unreadable(fault.how))
    case "Bomb":
      return replace(around, exchange, fault.moment, inflating)
    case "TryAgain":
      return replace(around, exchange, "before", () => text(200, "application/json", '{"type":"try_again"}'))
    case "Expired":
      return replace(around, exchange, "before", () => text(410, "application/json", '{"detail":"Promise expired"}'))
    case "Restart":
      return until(around, exchange, fault.moment).pipe(
        Effect.zipRight(around.restart),
        Effect.zipRight(fault.gateway === "502" ? reply(page(502)) : reset),
      )
  }
}
