import { describe, expect, it } from "@effect/vitest"
import { Duration, Option, Schema } from "effect"
import { TinkerError } from "effect-tinker"

describe("TinkerError", () => {
  it("tells operation, status, attempts and the server's words in one line", () => {
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

  it("lets x-should-retry overrule the status", () => {
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

  it("survives a round trip through its schema", () => {
    const error = new TinkerError.RateLimited({ operation: "asample", retryAfter: Option.some(Duration.seconds(2)) })
    const json = JSON.parse(JSON.stringify(Schema.encodeSync(TinkerError.RateLimited)(error)))
    expect(Schema.decodeUnknownSync(TinkerError.RateLimited)(json)).toEqual(error)
  })
})
