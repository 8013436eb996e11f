/** Builds responses and refusals in the format of the service. */
import * as Either from "effect/Either"
import type { Problem } from "../../protocol/Routing.ts"
import type { Answer } from "../../testing/ScriptedServer.ts"

export const json = (value: unknown, status = 200, headers: Answer["headers"] = {}): Answer => ({
  status,
  headers: { "content-type": "application/json", ...headers },
  body: JSON.stringify(value),
})

export const detail = (status: number, detail: unknown): Answer => json({ detail }, status)

export const refuse = (status: number, words: string): Either.Either<never, Answer> =>
  Either.left(detail(status, words))

/** Builds a scripted response: text and bytes are sent unchanged, anything else as JSON. */
export const scripted = (status: number, body: unknown, headers: Answer["headers"] = {}): Answer =>
  body === undefined || typeof body === "string" || body instanceof Uint8Array
    ? { status, headers, body: body ?? "" }
    : json(body, status, headers)

/** Builds a 422 that lists every problem of a body with its location. */
export const invalid = (problems: ReadonlyArray<Problem>): Answer => detail(422, problems)
