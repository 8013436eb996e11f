/** Sends raw requests to a server with the stand-in model. */
import { Effect, Either, type Scope } from "effect"
import * as Endpoint from "effect-tinker/protocol/Endpoint"
import { ModelHost, type ServerOptions, TinkerServer } from "@effect-tinker/server"
import * as StandInModel from "./StandInModel.ts"

export interface Reply {
  readonly status: number
  readonly body: ReturnType<typeof JSON.parse>
  readonly headers: Readonly<Record<string, string>>
}

const bodyOf = (body: unknown): Uint8Array =>
  body === undefined
    ? new Uint8Array(0)
    : body instanceof Uint8Array
      ? body
      : new TextEncoder().encode(typeof body === "string" ? body : JSON.stringify(body))

/** Starts a server and returns functions that send requests to it. */
export const make = (options: ServerOptions.ServerOptions = {}, model: Parameters<typeof StandInModel.make>[0] = {}) =>
  Effect.map(
    Effect.provideService(TinkerServer.make(options), ModelHost.ModelHost, ModelHost.inline(StandInModel.make(model))),
    (server) => {
      const ask = (
        method: string,
        path: string,
        body?: unknown,
        headers: Readonly<Record<string, string>> = {},
      ): Effect.Effect<Reply> =>
        Effect.map(
          server.handle({
            method,
            path: path.startsWith("/") ? path : `/api/v1/${path}`,
            headers: { "x-api-key": "tml-a", "content-type": "application/json", ...headers },
            body: bodyOf(body),
          }),
          (answer) => {
            const text =
              typeof answer.body === "string"
                ? answer.body
                : answer.body instanceof Uint8Array
                  ? new TextDecoder().decode(answer.body)
                  : ""
            const isJson = answer.headers["content-type"] === "application/json"
            return { status: answer.status, headers: answer.headers, body: isJson ? JSON.parse(text) : answer.body }
          },
        )
      const post = (path: string, body?: unknown, headers?: Readonly<Record<string, string>>) =>
        ask("POST", path, body, headers)
      /** Retrieves the result of an accepted request. */
      const result = (accepted: Reply, headers?: Readonly<Record<string, string>>) =>
        post("retrieve_future", { request_id: accepted.body.request_id, allow_metadata_only: false }, headers)
      const session = Effect.map(post("create_session", { sdk_version: "1" }), ({ body }): string => body.session_id)
      const model = (sessionId: string, number = 0, lora: object = { seed: 1 }) =>
        Effect.gen(function* () {
          const accepted = yield* post("create_model", {
            session_id: sessionId,
            model_seq_id: number,
            base_model: StandInModel.name,
            lora_config: { rank: 8, ...lora },
          })
          yield* result(accepted)
          return `${sessionId}:train:${number}`
        })
      return { server, ask, post, result, session, model }
    },
  )

export type Raw = Effect.Effect.Success<ReturnType<typeof make>>
export type Needs = Scope.Scope

export const pass = (modelId: string, seq: number, tokens: ReadonlyArray<number> = [1, 2, 3, 4]) => ({
  model_id: modelId,
  seq_id: seq,
  forward_backward_input: {
    data: [
      {
        model_input: { chunks: [{ type: "encoded_text", tokens: tokens.slice(0, -1) }] },
        loss_fn_inputs: {
          target_tokens: { data: tokens.slice(1), dtype: "int64", shape: [tokens.length - 1] },
          weights: { data: tokens.slice(1).map(() => 1), dtype: "float32", shape: [tokens.length - 1] },
        },
      },
    ],
    loss_fn: "cross_entropy",
  },
})

export const step = (modelId: string, seq: number, learningRate = 0.1) => ({
  model_id: modelId,
  seq_id: seq,
  type: "optim_step",
  adam_params: {
    learning_rate: learningRate,
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-12,
    weight_decay: 0,
    grad_clip_norm: 0,
  },
})

export const rendered = <I, A>(endpoint: Endpoint.Endpoint<I, A>, input: NoInfer<I>) =>
  Either.getOrThrow(Endpoint.render(endpoint, input))
