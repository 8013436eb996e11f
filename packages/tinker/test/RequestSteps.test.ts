import { describe, expect, it } from "@effect/vitest"
import { Duration, Option } from "effect"
import { TinkerError } from "effect-tinker"
import { nextStep } from "../src/internal/request/Request.js"

const endpoint = { operation: "op", retry: "standard", sequenced: false } as const
const fresh = { isRenewed: false, hasOwnPolicy: false }
const fields = { operation: "op", attempts: 1, elapsed: Duration.zero, detail: "" }

const refused = new TinkerError.Unauthorized({ ...fields, reason: "Refused" })
const down = new TinkerError.Unavailable({ ...fields, reason: "ServerError" })
const conflict = new TinkerError.RequestRejected({ ...fields, reason: "Conflict" })
const billing = new TinkerError.BillingPaused(fields)
const asking = { shouldRetry: Option.some(true) }

describe("failed attempts", () => {
  it("a request renews a refused token once", () => {
    expect(nextStep(endpoint, refused, fresh)).toBe("Renew")
    expect(nextStep(endpoint, refused, { ...fresh, isRenewed: true })).toBe("Fail")
    expect(nextStep({ ...endpoint, retry: "none" }, refused, fresh)).toBe("Renew")
  })

  it("a request is retried if the error is transient and its own", () => {
    expect(nextStep(endpoint, down, fresh)).toBe("Retry")
    expect(nextStep(endpoint, new TinkerError.NotFound(fields), fresh)).toBe("Fail")
    expect(nextStep(endpoint, new TinkerError.Unavailable({ ...down, operation: "auth/token" }), fresh)).toBe("Fail")
    expect(nextStep(endpoint, new TinkerError.ClientClosed({ operation: "op" }), fresh)).toBe("Fail")
    expect(nextStep(endpoint, new TinkerError.InvalidConfig({ setting: "a", problem: "b" }), fresh)).toBe("Fail")
  })

  it("a request of a caller with its own loop is retried only with a policy of that caller", () => {
    const polled = { ...endpoint, retry: "none" } as const
    expect(nextStep(polled, down, fresh)).toBe("Fail")
    expect(nextStep(polled, down, { ...fresh, hasOwnPolicy: true })).toBe("Retry")
    expect(nextStep(polled, billing, { ...fresh, hasOwnPolicy: true })).toBe("Fail")
    expect(nextStep(endpoint, billing, fresh)).toBe("Retry")
  })

  it("a conflict over a sequence number is left to the sequence rules, unless the server asks for a retry", () => {
    const sequenced = { ...endpoint, sequenced: true }
    expect(nextStep(endpoint, conflict, fresh)).toBe("Retry")
    expect(nextStep(sequenced, conflict, fresh)).toBe("Fail")
    expect(nextStep(sequenced, new TinkerError.RequestRejected({ ...conflict, ...asking }), fresh)).toBe("Retry")
    expect(nextStep(sequenced, down, fresh)).toBe("Retry")
  })
})
