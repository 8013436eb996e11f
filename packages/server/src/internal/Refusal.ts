/** A refused request: the HTTP status and the detail of the response. */
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import type { Problem } from "effect-tinker/protocol/Routing"

export class Refusal extends Data.TaggedError("Refusal")<{
  readonly status: number
  readonly detail: unknown
  readonly headers?: Readonly<Record<string, string>>
}> {
  override get message(): string {
    return typeof this.detail === "string" ? this.detail : JSON.stringify(this.detail)
  }
}

export const refuse = (status: number, detail: unknown): Effect.Effect<never, Refusal> =>
  Effect.fail(new Refusal({ status, detail }))

/** Converts a refusal to the error format of the OpenAI-compatible endpoints. */
export const asOpenAi = ({ message, status }: Refusal) => ({
  error: {
    message,
    type: status >= 500 ? "server_error" : status === 401 ? "authentication_error" : "invalid_request_error",
    param: null,
    code: status,
  },
})

export const invalid = (problems: ReadonlyArray<Problem>): Refusal => new Refusal({ status: 422, detail: problems })

/** Refuses a field with an invalid value. */
export const bad = (field: string, problem: string): Refusal =>
  new Refusal({ status: 400, detail: `${field}: ${problem}` })

export const found = <A>(value: A | undefined, what: string): Effect.Effect<A, Refusal> =>
  value === undefined ? refuse(404, `${what} not found`) : Effect.succeed(value)
