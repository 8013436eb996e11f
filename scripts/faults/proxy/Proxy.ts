/** A proxy between client and server that injects the faults of a plan. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { Deferred, Effect, FiberSet, type Scope } from "effect"
import * as Exchange from "./Exchange.ts"
import { describe, type Plan, type Planned } from "./Fault.ts"
import { forward } from "./Message.ts"
import { page, perform, type Surroundings } from "./Perform.ts"

/** The server behind the proxy. */
export interface Upstream {
  /** The port at the moment; a restarted server has another one. */
  readonly port: () => number
  readonly restart: Effect.Effect<void>
}

export interface Proxy {
  readonly url: string
  /** The faults that were injected, in order. */
  readonly injected: () => ReadonlyArray<Planned>
  /** Requests and faults in the order of their arrival. */
  readonly log: () => ReadonlyArray<string>
}

/** Returns the name of an endpoint as plans use it. */
export const endpointOf = (path: string): string => {
  const [plain = ""] = path.split("?")
  const name = plain.replace(/^\/api\/v1\//, "")
  if (name.startsWith("/")) return "download"
  if (name.endsWith("/archive")) return "archive"
  if (name.endsWith("/finish")) return "finish"
  if (name.endsWith("/checkpoints")) return "checkpoints"
  return name
}

/** Chooses the fault for each request, in the order of arrival. */
const chooser = ({ faults }: Plan) => {
  const seen = new Map<string, number>()
  return (endpoint: string): Planned | undefined => {
    const count = seen.get(endpoint) ?? 0
    seen.set(endpoint, count + 1)
    return faults.find((one) => one.endpoint === endpoint && count >= one.nth && count < one.nth + one.times)
  }
}

/** Lets held requests continue when another one arrives. */
const turnstile = () => {
  let next = Deferred.unsafeMake<void>(undefined as never)
  return {
    pass: () => {
      Deferred.unsafeDone(next, Effect.void)
      next = Deferred.unsafeMake<void>(undefined as never)
    },
    overtaken: Effect.suspend(() => Deferred.await(next)).pipe(
      Effect.timeoutTo({ duration: "150 millis", onSuccess: () => undefined, onTimeout: () => undefined }),
      Effect.delay("1 millis"),
      Effect.zipRight(Effect.sleep("20 millis")),
    ),
  }
}

const listen = (handle: (request: IncomingMessage, response: ServerResponse) => void) =>
  Effect.acquireRelease(
    Effect.async<{ readonly port: number; readonly close: Effect.Effect<void> }>((resume) => {
      const server = createServer({ keepAliveTimeout: 60_000 }, handle)
      server.listen(0, "127.0.0.1", () =>
        resume(
          Effect.succeed({
            port: (server.address() as AddressInfo).port,
            close: Effect.async<void>((closed) => {
              server.close(() => closed(Effect.void))
              server.closeAllConnections()
            }),
          }),
        ),
      )
    }),
    ({ close }) => close,
  )

/** Starts a proxy in the current scope. `onRequest` is called when a request arrives, before it is forwarded. */
export const make = (
  upstream: Upstream,
  plan: Plan,
  onRequest: () => void = () => {},
): Effect.Effect<Proxy, never, Scope.Scope> =>
  Effect.gen(function* () {
    const choose = chooser(plan)
    const { overtaken, pass } = turnstile()
    const injected: Array<Planned> = []
    const log: Array<string> = []
    const run = yield* FiberSet.makeRuntime()
    const around: Surroundings = {
      forward: (message) => Effect.suspend(() => forward(upstream.port(), message)),
      restart: upstream.restart,
      overtaken,
    }
    const { port } = yield* listen((request, response) => {
      const endpoint = endpointOf(request.url ?? "/")
      const planned = choose(endpoint)
      if (planned !== undefined) injected.push(planned)
      log.push(`${request.method} ${endpoint}${planned === undefined ? "" : ` ← ${describe(planned)}`}`)
      pass()
      onRequest()
      const exchange = Exchange.make(request, response)
      const fiber = run(
        perform(around, exchange, planned?.fault).pipe(
          // A gateway without a server answers 502 or closes the connection; the log's length decides, without chance.
          Effect.catchAll(() => (log.length % 2 === 0 ? exchange.reply(page(502)) : exchange.reset)),
        ),
      )
      // A client that gives up takes its request to the server with it, unless the server is being restarted.
      response.once("close", () => {
        if (!response.writableFinished && planned?.fault._tag !== "Restart") fiber.unsafeInterruptAsFork(fiber.id())
      })
    })
    return { url: `http://127.0.0.1:${port}`, injected: () => injected, log: () => log }
  })
