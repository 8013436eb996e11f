/**
 * Implements an in-memory Tinker server for tests. It enforces sequence numbers like real servers, has weights that
 * change with every step, holds polls while it works, and fails as scripted. All waiting uses the `Clock`, so under
 * `TestClock` hours pass instantly.
 *
 * `layer` provides an `HttpClient` for the clients and a {@link ScriptedServer} for the test, which inspects the
 * requests and the state of the server, and changes the script while the program runs.
 *
 * @since 0.1.0
 */
import * as HttpClient from "@effect/platform/HttpClient"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import type { SampleRequest } from "../protocol/schemas/Sampling.ts"
import * as HttpFailure from "../http/HttpFailure.ts"
import { exitOf } from "../internal/util/Callback.ts"
import type { JsonObject } from "../internal/codec/Wire.ts"
import * as Core from "../internal/scripted/Core.ts"
import type { Dropped } from "../internal/scripted/Dropped.ts"
import * as Exchange from "../protocol/Exchange.ts"

/**
 * The supported operations, by wire name; all other paths get 404.
 *
 * @since 0.1.0
 * @category models
 */
export type Operation =
  | "client/config"
  | "client/dynamic_config"
  | "auth/token"
  | "create_session"
  | "session_heartbeat"
  | "sessions/finish"
  | "get_server_capabilities"
  | "healthz"
  | "telemetry"
  | "create_model"
  | "unload_model"
  | "get_info"
  | "forward"
  | "forward_backward"
  | "optim_step"
  | "save_weights"
  | "save_weights_for_sampler"
  | "save_weights_external"
  | "load_weights"
  | "weights_info"
  | "create_sampling_session"
  | "join_sampling_session"
  | "asample"
  | "samplers/get"
  | "retrieve_future"
  | "retrieve_futures"
  | "cancel_future"

// Configuration

/**
 * A sampled sequence. If omitted, log probabilities are generated and the stop reason is `length`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Sampled {
  readonly tokens: ArrayLike<number>
  readonly logprobs?: ArrayLike<number> | undefined
  readonly stopReason?: "stop" | "length" | undefined
}

/**
 * A step for which metrics are computed.
 *
 * @since 0.1.0
 * @category models
 */
export interface Step {
  readonly operation: "forward" | "forward_backward" | "optim_step"
  readonly modelId: string
  readonly seq: number
  /** Number of optimizer steps applied to the weights, including this one. */
  readonly steps: number
  /** Number of datums in the pass. */
  readonly data: number
}

/**
 * Options of the server. By default it implements the newest protocol, accepts everything, and has results immediately.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * How sequence numbers are handled. `dedupe` (the default): a repeated number with the same body is the same request,
   * with a different body it is a conflict; later numbers wait for earlier ones. `nextOnly`: only the next number is
   * accepted, and it is used up only if its request succeeds. `anything`: every number is accepted as it arrives.
   */
  readonly mode?: "dedupe" | "nextOnly" | "anything" | undefined
  /** Whether a request that a fault rejects with 4xx uses up its number. Default: no. */
  readonly rejectedUsesNumber?: boolean | undefined
  /** The accepted encodings of passes. Default: `both`. */
  readonly wire?: "both" | "json" | "protobuf" | undefined
  /** The status for a pass in an encoding that is not accepted. Default: 415. */
  readonly wireStatus?: 400 | 415 | 422 | undefined
  /** The encoding of pass and sample results. Default: `protobuf`. */
  readonly results?: "protobuf" | "json" | undefined
  /** The response to `client/config`, in wire format. */
  readonly flags?: JsonObject | undefined
  /** The response to `client/dynamic_config`, in wire format; `missing` if the endpoint does not exist. */
  readonly dynamicFlags?: JsonObject | "missing" | undefined
  /** Messages that are returned when a session is created. */
  readonly messages?: { readonly info?: string; readonly warning?: string; readonly error?: string } | undefined
  readonly supportedModels?: ReadonlyArray<JsonObject> | undefined
  /** The accepted API keys. Default: any key, or none, is accepted. */
  readonly apiKeys?: ReadonlyArray<string> | undefined
  /** Lifetime of a token from `auth/token`. Default: 1 hour. */
  readonly tokenLife?: Duration.DurationInput | undefined
  /** Whether fields that the API does not have are refused. Default: they are ignored. */
  readonly strict?: boolean | undefined
  /** Wire names of body fields that this server does not know and refuses. */
  readonly unknownFields?: ReadonlyArray<string> | undefined
  /** The status of an accepted request. Default: 200. */
  readonly acceptedStatus?: 200 | 201 | 202 | undefined
  /** The format of request ids. Default: `name`, e.g. `req-0001`. */
  readonly requestIds?: "decimal" | "uuid" | "name" | undefined
  /** Whether accepted samples get sequence ids. Default: yes. */
  readonly sampleSequenceIds?: boolean | undefined
  /** How long a poll is held without a result. Default: 30 seconds. */
  readonly hold?: Duration.DurationInput | undefined
  /** How a poll without a result is answered. Default: `408`. */
  readonly pending?: "408" | "try_again" | undefined
  /** Size in bytes above which results are announced by size first. Default: never. */
  readonly metadataAbove?: number | undefined
  /** How long the work on a request takes. Default: no time. */
  readonly work?: Duration.DurationInput | ((request: Seen) => Duration.DurationInput) | undefined
  /** Computes metrics of a step, in addition to `loss:sum` of a pass. */
  readonly metrics?: ((step: Step) => Readonly<Record<string, number>>) | undefined
  /** Returns one sequence of a sample. Default: derived from weights, prompt, seed and `index`. */
  readonly sample?: ((request: SampleRequest, index: number) => Sampled) | undefined
  /** Whether prompt log probabilities omit the first token, as on some servers. */
  readonly promptLogprobsShort?: boolean | undefined
  /**
   * The form of sampler paths: `tinker://model/sampler_weights/name`, or `tinker://model/name` as on some servers.
   * Default: `canonical`.
   */
  readonly samplerPath?: "canonical" | "two-part" | undefined
  /**
   * How many of the newest requests the server remembers, with their results: `requests` returns no others, and a number
   * of an older one is not recognized. Bounds the memory of a long run. Default: all.
   */
  readonly keep?: number | undefined
  /** The initial faults. */
  readonly faults?: ReadonlyArray<Fault> | undefined
}

// Faults

/**
 * The effect of a fault on a request, instead of or in addition to a normal response.
 *
 * @since 0.1.0
 * @category faults
 */
export type Action =
  /** Not processed; returns this response. A body that is neither text nor bytes is sent as JSON. */
  | { readonly status: number; readonly body?: unknown; readonly headers?: Readonly<Record<string, string>> }
  /**
   * No response. `before`: connection refused, nothing was sent; `underway`: sent and lost, never processed; `after`:
   * processed, but the response was lost.
   */
  | { readonly drop: "before" | "underway" | "after" }
  /** Sent, but never processed or answered. */
  | { readonly hang: true }
  /** Not processed; returns a 200 with an invalid body. */
  | { readonly garbage: string | Uint8Array }
  /** Accepted, but fails: reported in the result, or as the status of the poll. Nothing is applied. */
  | {
      readonly failFuture:
        | { readonly error: string; readonly category?: string }
        | { readonly status: number; readonly detail: string }
    }
  /** Accepted and applied, but the result is lost: polls get 410. */
  | { readonly expireFuture: true }
  /** Accepted, but the work is delayed for this long, and polls return the reason. */
  | {
      readonly stateFor: {
        readonly queueState: string
        readonly reason?: string
        readonly duration: Duration.DurationInput
      }
    }
  /** Ends the session of the request: this request and all later ones of the session get 410. */
  | { readonly endSession: true }
  /** Processed normally; only useful with a `delay`. */
  | { readonly delay: Duration.DurationInput }

/**
 * Selects the requests that a fault applies to. Requests are counted from when the fault is added. Faults are checked
 * in the order in which they were added; the first match applies, and later faults do not count the request.
 *
 * @since 0.1.0
 * @category faults
 */
export interface Trigger {
  /** The operation or condition to match. Default: every request. */
  readonly on?: Operation | ((request: Seen) => boolean) | undefined
  /** The number of the first matching request that the fault applies to. Default: 1. */
  readonly nth?: number | undefined
  /** Number of consecutive requests that the fault applies to. Default: 1, or all of them with `for`. */
  readonly times?: number | undefined
  /** Time after adding the fault from which it is active. */
  readonly after?: Duration.DurationInput | undefined
  /** How long the fault is active. */
  readonly for?: Duration.DurationInput | undefined
  /** Delay of the response or failure. */
  readonly delay?: Duration.DurationInput | undefined
}

/**
 * A fault: which requests it applies to, and what happens to them.
 *
 * @since 0.1.0
 * @category faults
 */
export type Fault = Trigger & Action

/**
 * Inspects or removes a fault.
 *
 * @since 0.1.0
 * @category faults
 */
export interface FaultHandle {
  /** Number of requests that the fault was applied to. */
  readonly fired: Effect.Effect<number>
  readonly remove: Effect.Effect<void>
}

// State

/**
 * A request as sent by a client, even if it never arrived.
 *
 * @since 0.1.0
 * @category models
 */
export interface Seen {
  /** Time of arrival, in milliseconds since 1970. */
  readonly at: number
  /** Undefined if there is no such endpoint. */
  readonly operation: Operation | undefined
  readonly method: string
  /** The path without the query. */
  readonly path: string
  readonly headers: Readonly<Record<string, string | undefined>>
  /** The body, if it is JSON. */
  readonly json: unknown
  readonly bytes: Uint8Array
  /** The sequence number, if the request has one. */
  readonly seq: number | undefined
  /** The status of the response, or when the connection was dropped; undefined while the request is pending. */
  readonly answered: number | Dropped["when"] | undefined
}

/**
 * A request that was applied to a model.
 *
 * @since 0.1.0
 * @category models
 */
export interface Applied {
  readonly seq: number
  readonly operation: Operation
  readonly bodyHash: string
  readonly requestId: string
}

/**
 * Simulated weights: one number that every optimizer step changes by the accumulated gradient. The same data in the
 * same steps gives the same number, in either encoding and however the data was split into requests.
 *
 * @since 0.1.0
 * @category models
 */
export interface Weights {
  readonly value: number
  readonly steps: number
}

/**
 * A model of the server.
 *
 * @since 0.1.0
 * @category models
 */
export interface Model {
  readonly id: string
  readonly sessionId: string
  readonly baseModel: string
  /** The requests that were applied, in order. */
  readonly applied: ReadonlyArray<Applied>
  /** Hash of all applied requests, including their bodies and order. */
  readonly hash: string
  readonly weights: Weights
  /** The gradient that the next optimizer step applies; 0 after a step. */
  readonly gradient: number
  /** Sequence numbers that arrived and wait for an earlier one. */
  readonly held: ReadonlyArray<number>
}

/**
 * Saved weights.
 *
 * @since 0.1.0
 * @category models
 */
export interface Checkpoint {
  readonly path: string
  readonly kind: "training" | "sampler" | "external"
  readonly modelId: string
  readonly weights: Weights
}

/**
 * The state of a session.
 *
 * @since 0.1.0
 * @category models
 */
export interface SessionState {
  readonly id: string
  readonly heartbeats: number
  /** Time of the last heartbeat, or of the creation, in milliseconds since 1970. */
  readonly lastHeartbeat: number
  /** `ended` was set by a script; the finished states were reported by the client. */
  readonly state: "active" | "ended" | "success" | "errored" | "interrupted"
}

// HTTP exchange

/**
 * A request as the server receives it.
 *
 * @since 0.1.0
 * @category exchange
 */
export type Request = Exchange.Request

/**
 * A response of the server.
 *
 * @since 0.1.0
 * @category exchange
 */
export interface Answer extends Exchange.Answer {
  readonly body: Uint8Array | string
}

/**
 * Reports that the connection was dropped without a response.
 *
 * @since 0.1.0
 * @category exchange
 */
export { Dropped } from "../internal/scripted/Dropped.ts"

/**
 * Controls and inspects a scripted server.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** Answers a request, e.g. for use behind a socket. */
  readonly handle: (request: Request) => Effect.Effect<Answer, Dropped>
  /** Returns all requests, in order. */
  readonly requests: Effect.Effect<ReadonlyArray<Seen>>
  /** Returns the requests of one operation. */
  readonly requestsTo: (operation: Operation) => Effect.Effect<ReadonlyArray<Seen>>
  readonly fault: (fault: Fault) => Effect.Effect<FaultHandle>
  /** Answers requests with 429 for a period of time from now on. */
  readonly rateLimit: (window: {
    readonly for: Duration.DurationInput
    readonly on?: Trigger["on"]
    /** The `retry-after` header, in whole seconds. */
    readonly retryAfter?: Duration.DurationInput | undefined
  }) => Effect.Effect<FaultHandle>
  /** Changes options of the server. */
  readonly configure: (change: Omit<Options, "faults">) => Effect.Effect<void>
  /** Ends one session, or all: their requests get 410. */
  readonly endSession: (sessionId?: string) => Effect.Effect<void>
  readonly sessions: Effect.Effect<ReadonlyArray<SessionState>>
  readonly models: Effect.Effect<ReadonlyArray<Model>>
  readonly checkpoints: Effect.Effect<ReadonlyArray<Checkpoint>>
}

/**
 * The scripted server.
 *
 * @since 0.1.0
 * @category tags
 */
export class ScriptedServer extends Context.Tag("effect-tinker/testing/ScriptedServer")<ScriptedServer, Service>() {}

/**
 * Creates a server without a client. Its work stops when the scope closes.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options?: Options): Effect.Effect<Service, never, Scope.Scope> =>
  Effect.map(Core.make(options), ({ service }) => service)

/** Converts a dropped connection to the failure of an HTTP client. */
const failureOf = (cause: Dropped) =>
  cause.when === "before" ? new HttpFailure.NotSent({ cause }) : new HttpFailure.Disconnected({ cause })

const connected =
  (exchange: Core.Exchange): Exchange.Handle =>
  (request, fiber) => {
    const answer = exchange(request, fiber)
    const exit = exitOf(answer)
    return exit === undefined ? Effect.mapError(answer, failureOf) : Exit.mapError(exit, failureOf)
  }

/**
 * Provides a server and a client for it; each build creates a separate server.
 *
 * @example
 * ```ts
 * import { Console, Effect, Layer, Redacted } from "effect"
 * import { Loss, Optimizer, RateLimiter, ServiceClient, Tinker, TinkerConfig } from "effect-tinker"
 * import * as ScriptedServer from "effect-tinker/testing/ScriptedServer"
 *
 * const data = [{ modelInput: [1, 2], inputs: { targetTokens: [2, 3], weights: [1, 1] } }]
 *
 * const program = Effect.gen(function* () {
 *   const server = yield* ScriptedServer.ScriptedServer
 *   // Processes the first pass, but drops the connection before its response.
 *   yield* server.fault({ on: "forward_backward", drop: "after" })
 *
 *   const service = yield* ServiceClient.ServiceClient
 *   const training = yield* service.createLoraTrainingClient({ baseModel: "any/model", rank: 8 })
 *   yield* training.trainStep(data, Loss.crossEntropy, Optimizer.adam())
 *
 *   const models = yield* server.models
 *   yield* Console.log(models[0]?.applied.map(({ operation }) => operation))
 *   // → [ 'forward_backward', 'optim_step' ]
 * })
 *
 * const layer = Tinker.layer().pipe(
 *   Layer.provide([TinkerConfig.layer({ apiKey: Redacted.make("tml-test") }), RateLimiter.layer]),
 *   Layer.provideMerge(ScriptedServer.layer()),
 * )
 *
 * await Effect.runPromise(program.pipe(Effect.scoped, Effect.provide(layer)))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (options?: Options): Layer.Layer<HttpClient.HttpClient | ScriptedServer> =>
  Layer.scopedContext(
    Effect.map(Core.make(options), ({ exchange, service }) =>
      Context.make(HttpClient.HttpClient, Exchange.client(connected(exchange))).pipe(
        Context.add(ScriptedServer, service),
      ),
    ),
  )
