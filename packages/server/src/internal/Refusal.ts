/** A request that is not done, and what is said about it. */
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

/** As the OpenAI-compatible endpoints tell it. */
export const asOpenAi = ({ message, status }: Refusal) => ({
  error: {
    message,
    type: status >= 500 ? "server_error" : status === 401 ? "authentication_error" : "invalid_request_error",
    param: null,
    code: status,
  },
})

export const invalid = (problems: ReadonlyArray<Problem>): Refusal => new Refusal({ status: 422, detail: problems })

/** A field that was read and makes no sense. */
export const bad = (field: string, problem: string): Refusal =>
  new Refusal({ status: 400, detail: `${field}: ${problem}` })

export const found = <A>(value: A | undefined, what: string): Effect.Effect<A, Refusal> =>
  value === undefined ? refuse(404, `${what} not found`) : Effect.succeed(value)
