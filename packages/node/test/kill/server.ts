/**
 * Runs the scripted server behind a socket in a separate process. `/control/` sets the kind of server and when to kill
 * its client, and returns what was applied.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { Effect, Either, Exit, Scope } from "effect"
import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
import type { Done, Plan } from "./control.ts"

let scope = Effect.runSync(Scope.make())
let server = Effect.runSync(Scope.extend(ScriptedServer.make(), scope))
let trained = false
let plan: Plan | undefined
let timer: NodeJS.Timeout | undefined

const reset = (mode: NonNullable<ScriptedServer.Options["mode"]>) =>
  Effect.gen(function* () {
    yield* Scope.close(scope, Exit.void)
    scope = yield* Scope.make()
    // Work takes a moment, so that clients are killed while results are pending.
    server = yield* Scope.extend(ScriptedServer.make({ mode, work: "2 millis" }), scope)
    trained = false
  })

const done: Effect.Effect<Done> = Effect.suspend(() =>
  Effect.map(server.models, (models) => ({
    models: models.length,
    // A forward pass changes nothing.
    applied: (models[0]?.applied ?? []).flatMap(({ bodyHash, operation }) =>
      operation === "forward" ? [] : [bodyHash],
    ),
    numbers: (models[0]?.applied ?? []).flatMap(({ operation, seq }) => (operation === "forward" ? [] : [seq])),
    weights: models[0]?.weights.value ?? 0,
  })),
)

/** Requests count only after training has started, when there is something to resume. */
const isCounted = (path: string): boolean => {
  trained ||= path.includes("/forward_backward") || path.includes("/optim_step")
  return trained
}

/** Returns the plan if it applies to this request. */
const due = (path: string): Plan | undefined => {
  if (plan === undefined || !isCounted(path) || --plan.requests > 0) return undefined
  const now = plan
  plan = undefined
  return now
}

const kill = ({ pid }: Plan) => process.kill(pid, "SIGKILL")

const control = (path: string, body: string): Effect.Effect<unknown> => {
  switch (path) {
    case "/control/reset":
      return reset(JSON.parse(body))
    case "/control/plan":
      return Effect.sync(() => {
        clearTimeout(timer)
        plan = body === "" ? undefined : JSON.parse(body)
      })
    default:
      return done
  }
}

const bodyOf = async (request: IncomingMessage): Promise<Buffer> => {
  const parts: Array<Buffer> = []
  for await (const part of request) parts.push(part)
  return Buffer.concat(parts)
}

const respond = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
  const body = await bodyOf(request)
  const path = request.url ?? ""
  if (path.startsWith("/control/")) {
    const answer = await Effect.runPromise(control(path, body.toString()))
    response.end(JSON.stringify(answer ?? null))
    return
  }
  const ending = due(path)
  if (ending?.when === "before") {
    kill(ending)
    request.socket.destroy()
    return
  }
  if (ending?.when === "soon") timer = setTimeout(() => kill(ending), ending.delay)
  const headers = Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)]))
  const answer = await Effect.runPromise(
    Effect.either(server.handle({ method: request.method ?? "GET", path, headers, body })),
  )
  if (Either.isLeft(answer)) {
    request.socket.destroy()
    return
  }
  if (ending?.when === "after") {
    kill(ending)
    request.socket.destroy()
    return
  }
  response.writeHead(answer.right.status, answer.right.headers)
  response.end(answer.right.body)
  if (ending?.when === "answered") kill(ending)
}

const http = createServer((request, response) => {
  // The connection of a killed client is closed.
  respond(request, response).catch(() => request.socket.destroy())
})
http.listen(0, "127.0.0.1", () => console.log((http.address() as AddressInfo).port))
