/** Asks an OpenAI-compatible endpoint for greedy completions with log probabilities. */
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"

/** Where a model is served. */
export interface Endpoint {
  /** The address without `/completions`, e.g. `http://localhost:8000/v1`. */
  readonly url: string
  /** The name of the model at this address: an adapter, a base model, or the path of a checkpoint. */
  readonly model: string
  readonly apiKey?: Redacted.Redacted<string> | undefined
}

export class EndpointFailed extends Data.TaggedError("EndpointFailed")<{
  readonly url: string
  /** The status of the response, if there was one. */
  readonly status: number | undefined
  readonly detail: string
}> {
  override get message(): string {
    return `${this.url}${this.status === undefined ? "" : ` answered ${this.status}`}: ${this.detail}`
  }
}

/** A token of a completion. Servers name it by its text, or by its id if they are able to. */
export interface ServedToken {
  readonly name: Name
  readonly logprob: number
  /** The most likely tokens at this position. */
  readonly top: ReadonlyArray<{ readonly name: Name; readonly logprob: number }>
}

export type Name = { readonly id: number } | { readonly text: string }

export interface Completion {
  readonly tokens: ReadonlyArray<ServedToken>
  /** Whether a token ended it that is not among its tokens. */
  readonly isStopped: boolean
}

/** How vLLM names tokens that are asked for by id. */
const nameOf = (token: string): Name => {
  const id = /^token_id:(\d+)$/.exec(token)?.[1]
  return id === undefined ? { text: token } : { id: Number(id) }
}

const Reply = Schema.Struct({
  choices: Schema.NonEmptyArray(
    Schema.Struct({
      finish_reason: Schema.NullishOr(Schema.String),
      logprobs: Schema.Struct({
        tokens: Schema.Array(Schema.String),
        token_logprobs: Schema.Array(Schema.NullOr(Schema.Number)),
        top_logprobs: Schema.optional(
          Schema.NullOr(Schema.Array(Schema.NullOr(Schema.Record({ key: Schema.String, value: Schema.Number })))),
        ),
      }),
    }),
  ),
})

const decode = Schema.decodeUnknown(Reply)

/** Asks for the most likely completion of a prompt. */
export const complete = (
  client: HttpClient.HttpClient,
  { apiKey, model, url }: Endpoint,
  prompt: ReadonlyArray<number>,
  maxTokens: number,
): Effect.Effect<Completion, EndpointFailed> =>
  Effect.gen(function* () {
    const address = `${url.replace(/\/+$/, "")}/completions`
    const failed = (detail: string, status?: number) => new EndpointFailed({ url: address, status, detail })
    const request = HttpClientRequest.post(address).pipe(
      apiKey === undefined ? (plain) => plain : HttpClientRequest.bearerToken(Redacted.value(apiKey)),
      HttpClientRequest.bodyUnsafeJson({
        model,
        prompt,
        max_tokens: maxTokens,
        temperature: 0,
        logprobs: 5,
        // vLLM returns ids then; other servers ignore it.
        return_tokens_as_token_ids: true,
      }),
    )
    const response = yield* Effect.mapError(client.execute(request), ({ message }) => failed(message))
    const { status } = response
    const text = yield* Effect.mapError(response.text, ({ message }) => failed(message, status))
    if (status < 200 || status > 299) return yield* failed(text.slice(0, 500), status)
    const [choice] = yield* Effect.try(() => JSON.parse(text) as unknown).pipe(
      Effect.flatMap(decode),
      Effect.map(({ choices }) => choices),
      Effect.mapError(() => failed(`expected a completion with log probabilities, got ${text.slice(0, 200)}`, status)),
    )
    const { token_logprobs: logprobs, tokens, top_logprobs: tops } = choice.logprobs
    return {
      isStopped: choice.finish_reason === "stop",
      tokens: tokens.map((token, at) => ({
        name: nameOf(token),
        logprob: logprobs[at] ?? Number.NaN,
        top: Object.entries(tops?.[at] ?? {}).map(([token, logprob]) => ({ name: nameOf(token), logprob })),
      })),
    }
  }).pipe(Effect.scoped)
