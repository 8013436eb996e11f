/**
 * One training step on the wire, end to end, over a real socket. The server is scripted: it replays answers that were
 * recorded, so nothing is trained yet; everything on this side of the socket is the real thing.
 */
import { readFileSync } from "node:fs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { NodeTinker } from "@effect-tinker/node"
import { NodeRuntime } from "@effect/platform-node"
import { Console, Effect, Redacted, Schedule } from "effect"
import { Api, Endpoint, type ForwardBackward, Loss, Optimizer, Transport, TrainingResult } from "effect-tinker"

const recorded = (name: string) =>
  JSON.parse(readFileSync(new URL(`../test/wire/vectors/${name}.json`, import.meta.url), "utf8"))

const passResult: string = recorded("forward_backward_cross_entropy").exchanges.at(-1).response.bodyBase64

/** Answers by path; the first `optim_step` is refused with 503, to be seen being retried. */
const scripted = Effect.acquireRelease(
  Effect.async<{ readonly url: string; readonly close: () => void }>((resume) => {
    let refusals = 1
    const answers: Record<string, unknown> = {
      "client/config": {},
      get_server_capabilities: recorded("get_server_capabilities").response.body,
      create_session: { type: "create_session", session_id: "demo-session" },
      create_model: { request_id: "r0" },
      forward_backward: { request_id: "r1" },
      optim_step: { request_id: "r2" },
      "demo-session/finish": {},
    }
    const futures: Record<string, unknown> = {
      r0: { model_id: "demo-session:train:0" },
      r2: { metrics: { "grad_norm:mean": 0.25 } },
    }
    const server = createServer((request, response) => {
      const chunks: Array<Buffer> = []
      request.on("data", (chunk: Buffer) => chunks.push(chunk))
      request.on("end", () => {
        const path = (request.url ?? "").replace(/^\/api\/v1\/(sessions\/)?/, "")
        const json = (status: number, body: unknown, headers = {}) =>
          response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body))
        if (path === "optim_step" && refusals-- > 0) {
          return json(503, { detail: "the scripted server is busy" }, { "retry-after-ms": "300" })
        }
        if (path !== "retrieve_future")
          return json(path in answers ? 200 : 404, answers[path] ?? { detail: "no script" })
        const { request_id } = JSON.parse(Buffer.concat(chunks).toString())
        if (request_id !== "r1") return json(200, futures[request_id])
        return response
          .writeHead(200, { "content-type": "application/x-protobuf" })
          .end(Buffer.from(passResult, "base64"))
      })
    })
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo
      resume(Effect.succeed({ url: `http://127.0.0.1:${port}`, close: () => server.close() }))
    })
  }),
  ({ close }) => Effect.sync(close),
)

const program = Effect.gen(function* () {
  const { call } = yield* Transport.Transport
  const retrieve = (requestId: string, accept = "application/json") =>
    call(Api.retrieveFuture, { requestId, allowMetadataOnly: false }, { headers: { accept } })

  const { supportedModels } = yield* call(Api.getServerCapabilities, {})
  yield* Console.log(`models      ${supportedModels.length} offered by the server`)

  const { sessionId } = yield* call(Api.createSession, { sdkVersion: "demo" })
  yield* Console.log(`session     ${sessionId}`)

  const created = yield* call(Api.createModel, {
    sessionId,
    modelSeqId: 0,
    baseModel: "Qwen/Qwen3-8B",
    loraConfig: { rank: 32 },
  })
  const modelId = `${sessionId}:train:0`
  yield* retrieve(created.requestId)
  yield* Console.log(`model       ${modelId}`)

  const batch = yield* Loss.prepare(Loss.crossEntropy, [
    { modelInput: [1, 2, 3], inputs: { targetTokens: [2, 3, 4], weights: [0, 1, 1] } },
    { modelInput: [9, 8], inputs: { targetTokens: [8, 7], weights: [1, 0.5] } },
  ])
  const request: ForwardBackward.Request = { modelId, seqId: 1, batch, forwardOnly: false }
  const bytes = yield* Endpoint.render(Api.forwardBackward, request)
  const pass = yield* call(Api.forwardBackward, request)
  yield* Console.log(`pass        ${bytes.body?.bytes.length} bytes of protobuf sent, request ${pass.requestId}`)

  const answer = yield* retrieve(pass.requestId, "application/x-protobuf")
  const result = yield* TrainingResult.fromProtobuf(answer.body)
  const logprobs = result.outputs.map((output) => output["logprobs"]?.data.join(" ")).join(" | ")
  yield* Console.log(`result      ${JSON.stringify(result.metrics)}, log-probabilities ${logprobs}`)

  yield* Console.log("update      the first answer will be a 503, which is retried:")
  const optimizer = Optimizer.adam({ learningRate: 1e-4 })
  const update = yield* call(Api.optimStep, {
    modelId,
    seqId: 2,
    ...Optimizer.toParams(yield* Optimizer.validate(optimizer)),
  })
  yield* retrieve(update.requestId)
  yield* Console.log(`update      applied, request ${update.requestId}`)

  yield* call(Api.finishSession, { sessionId, reason: { type: "success" } })

  const error = yield* Effect.flip(
    call(Api.getTrainingRun, { trainingRunId: "nobody" }, { retryPolicy: Schedule.stop }),
  )
  yield* Console.log(`an error    ${error._tag}: ${error.message}`)
})

Effect.gen(function* () {
  yield* Console.log("effect-tinker demo: one training step over a real socket.")
  yield* Console.log("The server is SCRIPTED: it replays recorded answers, and no model is trained.\n")
  const { url } = yield* scripted
  yield* Effect.provide(program, NodeTinker.layer({ baseUrl: url, apiKey: Redacted.make("tml-demo") }))
}).pipe(Effect.scoped, NodeRuntime.runMain)
