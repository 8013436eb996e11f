/**
 * Measures CPU time per small request, with the server in another process: undici's bare `dispatch`, its `request`, our
 * client, a whole call of ours (schemas, credentials, deadline, retries, span), and the client of
 * @effect/platform-node. Run: tsx scripts/bench/http.ts [requests per round]
 */
import { HttpBody, HttpClient, HttpClientRequest } from "@effect/platform"
import { NodeHttpClient } from "@effect/platform-node"
import { UndiciHttpClient } from "@effect-tinker/node"
import { Context, Effect, Layer, Redacted } from "effect"
import { TinkerConfig } from "effect-tinker"
import * as Api from "effect-tinker/protocol/Api"
import * as Transport from "effect-tinker/Transport"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { Pool } from "undici"

const requests = Number(process.argv[2] ?? 2000)
const rounds = 15
const concurrency = 64

const server = spawn(
  process.execPath,
  [
    "-e",
    `require("node:http").createServer((q, r) => { q.on("end", () => r.setHeader("content-type", "application/json")
      .end('{"request_id":"req-1","model_id":"m"}')).resume() }).listen(0, "127.0.0.1", function () { console.log(this.address().port) })`,
  ],
  { stdio: ["ignore", "pipe", "inherit"] },
)
const [line] = (await once(server.stdout, "data")) as [Buffer]
const origin = `http://127.0.0.1:${String(line).trim()}`

const body = JSON.stringify({ model_id: "m", seq_id: 1, data: Array.from({ length: 20 }, (_, i) => i) })
const headers = { "content-type": "application/json", "x-api-key": "k" }
const options = { path: "/x", method: "POST", headers, body } as const

const pool = new Pool(origin, { connections: concurrency, pipelining: 1 })

const many = (one: () => Promise<unknown>) => async (): Promise<void> => {
  let left = requests
  const worker = async () => {
    while (left-- > 0) await one()
  }
  await Promise.all(Array.from({ length: concurrency }, worker))
}

const dispatch = () =>
  new Promise<unknown>((resolve, reject) => {
    const chunks: Array<Buffer> = []
    pool.dispatch(options, {
      onRequestStart() {},
      onResponseStart() {},
      onResponseData: (_, chunk) => void chunks.push(chunk),
      onResponseEnd: () => resolve(JSON.parse(Buffer.concat(chunks).toString())),
      onResponseError: (_, error) => reject(error),
    })
  })

const request = async () => (await pool.request(options)).body.json()

const build = () =>
  HttpClientRequest.post(`${origin}/x`, { headers: { "x-api-key": "k" } }).pipe(
    HttpClientRequest.setBody(HttpBody.text(body, "application/json")),
  )

const call = (client: HttpClient.HttpClient, request: HttpClientRequest.HttpClientRequest) =>
  Effect.flatMap(client.execute(request), (response) => response.json)

const effects = (one: () => Effect.Effect<unknown, unknown>) => () => {
  let left = requests
  const worker = Effect.whileLoop({ while: () => left-- > 0, body: one, step: () => {} })
  return Effect.runPromise(
    Effect.all(
      Array.from({ length: concurrency }, () => worker),
      { concurrency, discard: true },
    ),
  )
}

const program = Effect.gen(function* () {
  const ours = yield* UndiciHttpClient.make({ connections: { rest: concurrency, train: concurrency } })
  const theirs = Context.get(yield* Layer.build(NodeHttpClient.layerUndici), HttpClient.HttpClient)
  const built = build()
  const { transport } = yield* Transport.make.pipe(
    Effect.provideService(HttpClient.HttpClient, ours),
    Effect.provide(TinkerConfig.layer({ baseUrl: origin, apiKey: Redacted.make("tml-k") })),
  )
  const cases: Record<string, () => Promise<void>> = {
    "undici dispatch": many(dispatch),
    "undici request": many(request),
    "dispatch in an Effect": effects(() => Effect.promise(dispatch)),
    UndiciHttpClient: effects(() => call(ours, built)),
    "  including building the request": effects(() => call(ours, build())),
    "Transport.call": effects(() => transport.call(Api.unloadModel, { modelId: "m" })),
    "Transport.call, tracer off": effects(() =>
      Effect.withTracerEnabled(transport.call(Api.unloadModel, { modelId: "m" }), false),
    ),
    "NodeHttpClient.layerUndici": effects(() => call(theirs, built)),
    "layerUndici, tracer off": effects(() => Effect.withTracerEnabled(call(theirs, built), false)),
  }
  const best = new Map<string, number>()
  for (let round = 0; round <= rounds; round++) {
    for (const [name, run] of Object.entries(cases)) {
      const before = process.cpuUsage()
      yield* Effect.promise(run)
      const { system, user } = process.cpuUsage(before)
      // The first round is warm-up.
      if (round > 0) best.set(name, Math.min(best.get(name) ?? Number.POSITIVE_INFINITY, (user + system) / requests))
    }
  }
  const base = best.get("undici dispatch") ?? Number.NaN
  for (const [name, micros] of best) {
    console.log(`${name.padEnd(30)}${micros.toFixed(1).padStart(8)} us CPU${(micros / base).toFixed(2).padStart(8)}x`)
  }
})

await Effect.runPromise(Effect.scoped(program)).finally(() => server.kill())
await pool.destroy()
