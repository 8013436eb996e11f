import type { Effect, Either, Layer, Redacted, Stream } from "effect"
import * as AdminClient from "effect-tinker/AdminClient"
import type { Accepted } from "effect-tinker/protocol/schemas/Futures"
import type * as Billing from "effect-tinker/protocol/schemas/Billing"
import type * as Management from "effect-tinker/protocol/schemas/Management"
import * as Checkpoint from "effect-tinker/Checkpoint"
import type { Credentials } from "effect-tinker/Credentials"
import * as Pages from "effect-tinker/Pages"
import * as RestClient from "effect-tinker/RestClient"
import type { ServerConfig } from "effect-tinker/protocol/ServerConfig"
import type { Tinker } from "effect-tinker/Tinker"
import type { TinkerConfig } from "effect-tinker/TinkerConfig"
import type {
  DeadlineExceeded,
  InvalidInput,
  RequestFailed,
  TinkerError,
  UnexpectedResponse,
} from "effect-tinker/TinkerError"
import type { Transport } from "effect-tinker/Transport"
import { describe, expect, it } from "tstyche"

declare const rest: RestClient.Service
declare const admin: AdminClient.Service
declare const path: Checkpoint.Path
declare const token: Redacted.Redacted<string>
declare const fetch: Pages.OffsetOptions<number, "mine", "needs">["fetch"]

type Answer<A> = Effect.Effect<A, TinkerError>

describe("RestClient", () => {
  it("creating a RestClient can't fail, and Tinker includes it", () => {
    type Environment = Transport | Credentials | ServerConfig | TinkerConfig
    expect(RestClient.make).type.toBe<Effect.Effect<RestClient.Service, never, Environment>>()
    expect(RestClient.layer).type.toBe<Layer.Layer<RestClient.RestClient, never, Environment>>()
    expect<Tinker>().type.toBeAssignableFrom<RestClient.RestClient | AdminClient.AdminClient>()
  })

  it("RestClient methods require nothing and fail with TinkerError", () => {
    expect(rest.getTrainingRun("r")).type.toBe<Answer<Management.TrainingRun>>()
    expect(rest.listTrainingRuns({ projectId: "p" })).type.toBe<Answer<Management.TrainingRunsPage>>()
    expect(rest.getWeightsInfo(path)).type.toBe<Answer<Management.WeightsInfo>>()
    expect(rest.listCheckpoints("r")).type.toBe<Answer<Management.CheckpointsPage>>()
    expect(rest.deleteCheckpointByPath("tinker://r/weights/n")).type.toBe<Answer<void>>()
    expect(rest.setCheckpointTtl(path, null)).type.toBe<Answer<void>>()
    expect(rest.copyWeights(path, { weightsAccessToken: token })).type.toBe<Answer<Management.CopyWeightsResponse>>()
    expect(rest.searchSessions()).type.toBe<Answer<Management.SearchSessionsResponse>>()
    expect(rest.unloadModel("m")).type.toBe<Answer<Accepted>>()
    expect(rest.whoami).type.toBe<Answer<RestClient.Identity>>()
  })

  it("RestClient methods that wait can also fail with their deadline", () => {
    expect(rest.exportSessionTrace("s")).type.toBe<
      Effect.Effect<string, TinkerError | RequestFailed | DeadlineExceeded>
    >()
    expect(rest.getCheckpointArchiveUrl(path, { deadline: "1 minute" })).type.toBe<
      Effect.Effect<RestClient.CheckpointArchive, TinkerError | DeadlineExceeded>
    >()
  })

  it("RestClient streams emit items and take a page size instead of a limit", () => {
    expect(rest.stream.listTrainingRuns({ pageSize: 5 })).type.toBe<
      Stream.Stream<Management.TrainingRun, TinkerError>
    >()
    expect(rest.stream.listSessions()).type.toBe<Stream.Stream<string, TinkerError>>()
    expect(rest.stream.searchSessions()).type.toBe<Stream.Stream<Management.SessionSummary, TinkerError>>()
    expect(rest.stream.listTrainingRuns).type.not.toBeCallableWith({ limit: 5 })
    expect(rest.listTrainingRuns).type.not.toBeCallableWith({ pageSize: 5 })
  })

  it("RestClient rejects plain-text secrets and a missing TTL", () => {
    expect(rest.copyWeights).type.not.toBeCallableWith(path, { weightsAccessToken: "tml-x" })
    expect(rest.setCheckpointTtl).type.not.toBeCallableWith(path)
    expect(rest.setCheckpointTtl).type.not.toBeCallableWith(path, undefined)
  })
})

describe("AdminClient", () => {
  it("AdminClient requires only a transport", () => {
    expect(AdminClient.make).type.toBe<Effect.Effect<AdminClient.Service, never, Transport>>()
    expect(AdminClient.layer).type.toBe<Layer.Layer<AdminClient.AdminClient, never, Transport>>()
  })

  it("AdminClient takes times, and strings only for days", () => {
    const now = new Date(0)
    expect(admin.getBillingUsage({ startingOn: now, endingBefore: now })).type.toBe<Answer<Billing.Usage>>()
    expect(admin.getBillingUsage).type.not.toBeCallableWith({ startingOn: "2026-01-01", endingBefore: now })
    expect(admin.getAuditLog).type.toBeCallableWith({ day: "2026-01-01", eventType: "teams" })
    expect(admin.getAuditLog).type.not.toBeCallableWith({ eventType: "people" })
    expect(admin.getCheckpointStorageUsage()).type.toBe<Answer<Billing.CheckpointStorage>>()
  })
})

describe("Checkpoint", () => {
  it("Checkpoint.parse returns InvalidInput as a value", () => {
    expect(Checkpoint.parse("tinker://r/weights/n")).type.toBe<Either.Either<Checkpoint.Path, InvalidInput>>()
    expect(path.kind).type.toBe<"training" | "sampler" | "external">()
    expect(Checkpoint.make).type.not.toBeCallableWith({ trainingRunId: "r", kind: "weights", name: "n" })
  })
})

describe("Pages", () => {
  it("Pages adds its own errors to those of a page", () => {
    expect(Pages.byOffset({ operation: "o", fetch, key: String, pageSize: 1 })).type.toBe<
      Stream.Stream<number, "mine" | InvalidInput | UnexpectedResponse, "needs">
    >()
  })
})
