/** The recordings of the reference SDK in `test/wire`. */
import { readFileSync } from "node:fs"
import type { Reply } from "./HttpScript.ts"

export interface RecordedRequest {
  readonly t: number
  readonly request: string
  readonly idempotencyKey?: number
  readonly retryCount?: string
  readonly readTimeout?: string
  readonly credential?: "apiKey" | "jwt"
  readonly body?: unknown
}

export interface RecordedError {
  readonly $error: string
  readonly status_code?: number
  readonly body?: unknown
}

export interface Behaviour {
  readonly script: ReadonlyArray<{
    readonly for: string
    readonly status?: number
    readonly headers?: Record<string, string>
    readonly body?: unknown
    readonly bodyBase64?: string
    readonly contentEncoding?: string
    readonly transferEncoding?: string
    readonly delaySeconds?: number
    readonly dropConnection?: boolean
  }>
  readonly expect: {
    readonly requests: ReadonlyArray<RecordedRequest>
    readonly totalRequests: number
    readonly result?: unknown
    readonly error?: RecordedError
    readonly errors?: ReadonlyArray<RecordedError>
    readonly outcomes?: ReadonlyArray<{ readonly case?: string; readonly result?: unknown } & Partial<RecordedError>>
  }
}

export interface Vector {
  readonly call: { readonly op: string }
  readonly request: {
    readonly method: string
    readonly path: string
    readonly headers: Record<string, string>
    readonly body: unknown
  }
  readonly response: { readonly status: number; readonly body: unknown }
  readonly exchanges: ReadonlyArray<Pick<Vector, "request" | "response">>
  readonly result: unknown
}

const read = (file: string): unknown =>
  JSON.parse(readFileSync(new URL(`../../../../test/wire/${file}`, import.meta.url), "utf8"))

export const behaviour = (file: `behaviours/${string}.json`): Behaviour => read(file) as Behaviour

export const vector = (file: `${"vectors" | "vectors-0.25.0"}/${string}.json`): Vector => read(file) as Vector

export const pathOf = (request: string): string => request.replace(/^[A-Z]+ \/(api\/v1\/)?/, "")

/** The recorded answers as replies by path; start-up calls missing from the recording get an empty object. */
export const replies = (script: Behaviour["script"]): Record<string, Array<Reply>> => {
  const result: Record<string, Array<Reply>> = {}
  for (const { body, delaySeconds, dropConnection, headers, status, ...answer } of script) {
    const list = (result[pathOf(answer.for)] ??= [])
    list.push({
      ...(status === undefined ? {} : { status }),
      ...(headers === undefined ? {} : { headers }),
      ...(body === null ? {} : { body }),
      ...(delaySeconds === undefined ? {} : { delaySeconds }),
      ...(dropConnection === true ? { drop: "after" as const } : {}),
    })
  }
  result["client/config"] ??= [{ body: {} }]
  return result
}

/** The exception classes of the reference and the corresponding tags. */
export const tagOf: Readonly<Record<string, string>> = {
  APIConnectionError: "Unavailable",
  APIResponseValidationError: "UnexpectedResponse",
  APITimeoutError: "Unavailable",
  AuthenticationError: "Unauthorized",
  BadRequestError: "RequestRejected",
  BillingError: "BillingPaused",
  ConflictError: "RequestRejected",
  InternalServerError: "Unavailable",
  NotFoundError: "NotFound",
  PermissionDeniedError: "Forbidden",
  RateLimitError: "RateLimited",
  TinkerError: "InvalidConfig",
  UnprocessableEntityError: "RequestRejected",
}
