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
