import { describe, expect, it } from "@effect/vitest"
import { Duration, Option, Schema } from "effect"
import { TinkerError } from "effect-tinker"

describe("TinkerError", () => {
  it("a TinkerError message has operation, status, attempts and the server's detail in one line", () => {
    const error = new TinkerError.Unavailable({
      operation: "optim_step",
      reason: "ServerError",
      status: Option.some(503),
      detail: "overloaded",
      attempts: 11,
      elapsed: Duration.seconds(62),
    })
    expect(error.message).toBe("optim_step failed on the server (HTTP 503) after 11 attempts in 1m 2s: overloaded")
  })

  it("a message names the reason of an unexpected response, and hints at what to check", () => {
    const facts = { operation: "create_session", detail: "no" }
    expect(new TinkerError.UnexpectedResponse({ ...facts, reason: "Schema" }).message).toBe(
      "create_session: unexpected response (Schema): no",
    )
    expect(new TinkerError.NotFound({ ...facts, status: Option.some(404) }).message).toBe(
      "create_session: not found (HTTP 404): no",
    )
    const wrong = { operation: "create_session", status: Option.some(404), baseUrl: Option.some("http://server") }
    expect(new TinkerError.NotFound(wrong).message).toBe(
      "create_session: not found (HTTP 404) at http://server: check the base URL",
    )
  })

  it("a message shows no status of the poll for failed results", () => {
    const poll = { operation: "SaveWeights", status: Option.some(200), detail: "disk full" }
    expect(new TinkerError.RequestFailed({ ...poll, reason: "Server" }).message).toBe("SaveWeights failed: disk full")
    expect(new TinkerError.RequestRejected({ ...poll, reason: "UserCategory" }).message).toBe(
      "SaveWeights was rejected: disk full",
    )
    const refused = new TinkerError.RequestRejected({ ...poll, status: Option.some(422), reason: "Unprocessable" })
    expect(refused.message).toBe("SaveWeights was rejected (HTTP 422): disk full")
  })

  it("isTinkerError recognizes every error of the module and nothing else", () => {
    const request = { operation: "optim_step" }
    const wait = { requestId: "r", requestType: "OptimStep", queueState: "active", age: Duration.zero, iterations: 1 }
    const closed = new TinkerError.ClientClosed(request)
    const errors = [
      new TinkerError.InvalidConfig({ setting: "apiKey", problem: "not set" }),
      new TinkerError.InvalidInput({ path: "data", problem: "missing" }),
      closed,
      new TinkerError.Unauthorized({ ...request, reason: "Refused" }),
      new TinkerError.Forbidden(request),
      new TinkerError.NotFound(request),
      new TinkerError.RequestRejected({ ...request, reason: "BadRequest" }),
      new TinkerError.RateLimited(request),
      new TinkerError.BillingPaused(request),
      new TinkerError.Unavailable({ ...request, reason: "Connect" }),
      new TinkerError.UnexpectedResponse({ ...request, reason: "Empty" }),
      new TinkerError.SessionLost({ sessionId: "s", reason: "Gone" }),
      new TinkerError.RequestFailed({ ...request, reason: "Server" }),
      new TinkerError.PromiseExpired(wait),
      new TinkerError.Stalled(wait),
      new TinkerError.DeadlineExceeded(wait),
      new TinkerError.SequenceBroken({ ...request, seq: 1, applied: "no", acknowledged: 0 }),
      new TinkerError.JournalFailed({ reason: "Write", detail: "disk full" }),
      new TinkerError.FileFailed({ reason: "Other", path: "a", detail: "b" }),
      new TinkerError.Corrupted({ path: "a", reason: "Length", expected: "1", actual: "2" }),
    ]
    for (const error of errors) expect(TinkerError.isTinkerError(error), error._tag).toBe(true)
    for (const other of [undefined, null, "NotFound", new Error("no"), { _tag: "NotFound" }]) {
      expect(TinkerError.isTinkerError(other)).toBe(false)
    }
  })

  it("x-should-retry overrides the status", () => {
    const rejected = new TinkerError.RequestRejected({
      operation: "create_session",
      reason: "Unprocessable",
      shouldRetry: Option.some(true),
    })
    const unavailable = new TinkerError.Unavailable({
      operation: "create_session",
      reason: "ServerError",
      shouldRetry: Option.some(false),
    })
    expect(TinkerError.isRetryable(rejected)).toBe(true)
    expect(TinkerError.isRetryable(unavailable)).toBe(false)
  })

  it("TinkerError survives a schema round trip", () => {
    const error = new TinkerError.RateLimited({ operation: "asample", retryAfter: Option.some(Duration.seconds(2)) })
    const json = JSON.parse(JSON.stringify(Schema.encodeSync(TinkerError.RateLimited)(error)))
    expect(Schema.decodeUnknownSync(TinkerError.RateLimited)(json)).toEqual(error)
  })
})
