/** The internal exception of the template engine; `ChatTemplate` converts it to a `TemplateError`. */
import type { Reason } from "../../TemplateError.ts"

export class Failure extends Error {
  readonly reason: Reason
  readonly line: number | undefined
  readonly detail: { readonly construct?: string; readonly exception?: string }
  constructor(reason: Reason, problem: string, detail: Failure["detail"] = {}, line?: number) {
    super(problem)
    this.reason = reason
    this.detail = detail
    this.line = line
  }
}

/** Fails with the exception that Python would raise. */
export const raise = (exception: string, problem: string): never => {
  throw new Failure("Failed", problem, { exception })
}

export const typeError = (problem: string): never => raise("TypeError", problem)

/** Fails for a construct whose result could differ from Python's. */
export const unsupported = (construct: string, line?: number): never => {
  throw new Failure(
    "Unsupported",
    `${construct} is not supported: the result could differ from Python's`,
    { construct },
    line,
  )
}
