/** Implements endpoints: their schemas decode requests and encode responses. */
import type * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import { Accepted } from "../../protocol/schemas/Futures.ts"
import type * as Endpoint from "../../protocol/Endpoint.ts"
import * as Routing from "../../protocol/Routing.ts"
import type * as Scripted from "../../testing/ScriptedServer.ts"
import * as Answers from "./Answers.ts"
import type { Call } from "./Incoming.ts"
import { readJson, type Reply } from "./Read.ts"
import type { State } from "./State.ts"

export interface Route {
  readonly endpoint: Endpoint.Endpoint<never, unknown>
  /** Answers synchronously, or waits. */
  readonly answer: (call: Call) => Scripted.Answer | Effect.Effect<Scripted.Answer>
}

// Decoding and encoding by the schemas of the endpoint

const readParams = (schema: Schema.Schema.AnyNoContext, { params }: Call): Reply<object> =>
  Either.mapLeft(Routing.read(schema, params, { where: "path" }), Answers.invalid)

/** Decodes path parameters and body by the schemas of the endpoint. */
const readInput = <I>(endpoint: Endpoint.Endpoint<I, unknown>, call: Call): Reply<I> => {
  const params = endpoint.params === undefined ? Either.right({}) : readParams(endpoint.params, call)
  if (Either.isLeft(params)) return Either.left(params.left)
  const body: Reply<object> = endpoint.body.kind === "json" ? readJson(call, endpoint.body.schema) : Either.right({})
  return Either.map(body, (body) => ({ ...params.right, ...body }) as I)
}

/** Encodes a response; accepted requests have their own status. */
export const write = <A, I>(schema: Schema.Schema<A, I>, value: A, { state }: Call): Scripted.Answer =>
  Answers.json(Schema.encodeSync(schema)(value), schema.ast === Accepted.ast ? state.settings.acceptedStatus : 200)

export const route = <I, A>(endpoint: Endpoint.Endpoint<I, A>, handle: (input: I, call: Call) => Reply<A>): Route => ({
  endpoint,
  answer: (call) =>
    Either.merge(
      Either.map(
        Either.flatMap(readInput(endpoint, call), (input) => handle(input, call)),
        (value) =>
          endpoint.response.kind === "json" ? write(endpoint.response.schema, value, call) : Answers.json({}),
      ),
    ),
})

/** Creates a route whose response is not encoded by a schema. */
export const plain = (
  endpoint: Endpoint.Endpoint<never, unknown>,
  answer: (call: Call) => Scripted.Answer | Effect.Effect<Scripted.Answer>,
): Route => ({ endpoint, answer })

export const found = <A>(value: A | undefined, what: string): Reply<A> =>
  value === undefined ? Answers.refuse(404, `${what} not found`) : Either.right(value)

export const sessionOf = (state: State, id: string) => found(state.sessions.get(id), `Session ${id}`)
export const modelOf = (state: State, id: string) => found(state.models.get(id), `Model ${id}`)
export const samplerOf = (state: State, id: string) => found(state.samplers.get(id), `Sampler ${id}`)
export const checkpointOf = (state: State, path: string) => found(state.checkpoints.get(path), path)
