/** How the engine gives up; `ChatTemplate` makes a `TemplateError` of it, so it is never seen outside. */
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

/** What Python would raise here. */
export const raise = (exception: string, problem: string): never => {
  throw new Failure("Failed", problem, { exception })
}

export const typeError = (problem: string): never => raise("TypeError", problem)

/** What would not be identical is not rendered. */
export const unsupported = (construct: string, line?: number): never => {
  throw new Failure("Unsupported", `${construct} is not supported, as it would not be exact`, { construct }, line)
}
