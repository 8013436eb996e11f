/**
 * A Tinker server in memory, to test programs with. It counts sequence numbers as servers do, keeps weights that
 * change with every step, holds polls while it works, and fails where and how a script says. All of its waiting goes
 * through the `Clock`, so that under `TestClock` hours pass in no time.
 *
 * `layer` is an `HttpClient` for the clients and a {@link ScriptedServer} for the test: to look at what arrived and
 * what it did, and to change the script while the program runs.
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
 * What the server answers, by the wire's names; the rest of the API gets 404.
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

// What the server is like

/**
 * What a program that samples gets. Log probabilities are made up where none are given; the reason to stop is
 * `length`.
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
 * A step of which metrics are asked for.
 *
 * @since 0.1.0
 * @category models
 */
export interface Step {
  readonly operation: "forward" | "forward_backward" | "optim_step"
  readonly modelId: string
  readonly seq: number
  /** How many optimizer steps the weights have behind them, this one included. */
  readonly steps: number
  /** How many datums the pass has. */
  readonly data: number
}

/**
 * What kind of server it is. Without any of it: the newest protocol, everything accepted, results at once.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * What happens to sequence numbers. `dedupe` (the default): a number that comes again with the same body is the same
   * request, with another body a conflict; later numbers wait for earlier ones. `nextOnly`: only the next number is
   * accepted, and it is used only when its request succeeds. `anything`: every number is taken as it comes.
   */
  readonly mode?: "dedupe" | "nextOnly" | "anything" | undefined
  /** Whether a request that a fault rejects with 4xx still uses its number. Default: no. */
  readonly rejectedUsesNumber?: boolean | undefined
  /** How passes may be sent. Default: `both`. */
  readonly wire?: "both" | "json" | "protobuf" | undefined
  /** The status for a pass on the other wire. Default: 415. */
  readonly wireStatus?: 400 | 415 | 422 | undefined
  /** How results of passes and samples are sent. Default: `protobuf`. */
  readonly results?: "protobuf" | "json" | undefined
  /** The answer to `client/config`, as on the wire. */
  readonly flags?: JsonObject | undefined
  /** The answer to `client/dynamic_config`, as on the wire; `missing` for a server that has no such endpoint. */
  readonly dynamicFlags?: JsonObject | "missing" | undefined
  /** Told when a session is created. */
  readonly messages?: { readonly info?: string; readonly warning?: string; readonly error?: string } | undefined
  readonly supportedModels?: ReadonlyArray<JsonObject> | undefined
  /** Other keys are refused. Default: every key is good, and so is none. */
  readonly apiKeys?: ReadonlyArray<string> | undefined
  /** How long a token from `auth/token` lives. Default: 1 hour. */
  readonly tokenLife?: Duration.DurationInput | undefined
  /** Refuse every field that this API does not have. Default: ignore them. */
  readonly strict?: boolean | undefined
  /** Fields of a body, by their names on the wire, that this server does not know and refuses. */
  readonly unknownFields?: ReadonlyArray<string> | undefined
  /** The status of an accepted request. Default: 200. */
  readonly acceptedStatus?: 200 | 201 | 202 | undefined
  /** What request ids look like. Default: `name`, e.g. `req-0001`. */
  readonly requestIds?: "decimal" | "uuid" | "name" | undefined
  /** Whether accepted samples get ids for their sequences. Default: yes. */
  readonly sampleSequenceIds?: boolean | undefined
  /** How long a poll is held while there is no result. Default: 30 seconds. */
  readonly hold?: Duration.DurationInput | undefined
  /** How a poll is told that there is no result yet. Default: `408`. */
  readonly pending?: "408" | "try_again" | undefined
  /** Results of more bytes than this are announced by their size first. Default: none are. */
  readonly metadataAbove?: number | undefined
  /** How long the work on a request takes. Default: no time. */
  readonly work?: Duration.DurationInput | ((request: Seen) => Duration.DurationInput) | undefined
  /** Metrics of a step, besides `loss:sum` of a pass. */
  readonly metrics?: ((step: Step) => Readonly<Record<string, number>>) | undefined
  /** One sequence of a sample. Default: made up from weights, prompt, seed and `index`. */
  readonly sample?: ((request: SampleRequest, index: number) => Sampled) | undefined
  /** Leave out the first token of the prompt from its log probabilities, as some servers do. */
  readonly promptLogprobsShort?: boolean | undefined
  /** `tinker://model/sampler_weights/name`, or `tinker://model/name` as some servers say. Default: `canonical`. */
  readonly samplerPath?: "canonical" | "two-part" | undefined
  /** What is to go wrong from the beginning. */
  readonly faults?: ReadonlyArray<Fault> | undefined
}

// What goes wrong

/**
 * What happens to a request instead of, or besides, being answered.
 *
 * @since 0.1.0
 * @category faults
 */
export type Action =
  /** Not processed; this is the answer. A body that is neither text nor bytes is sent as JSON. */
  | { readonly status: number; readonly body?: unknown; readonly headers?: Readonly<Record<string, string>> }
  /**
   * No answer. `before`: refused, no byte was sent; `underway`: sent and lost, never processed; `after`: processed, but
   * the answer was lost.
   */
  | { readonly drop: "before" | "underway" | "after" }
  /** Sent, never processed, never answered. */
  | { readonly hang: true }
  /** Not processed; a 200 with a body that is not what it should be. */
  | { readonly garbage: string | Uint8Array }
  /** Accepted, but it fails: told in the result, or as the status of the poll. Nothing is applied. */
  | {
      readonly failFuture:
        | { readonly error: string; readonly category?: string }
        | { readonly status: number; readonly detail: string }
    }
  /** Accepted and applied, but the result is lost: polls get 410. */
  | { readonly expireFuture: true }
  /** Accepted, but the work on it waits this long, and polls are told why. */
  | {
      readonly stateFor: {
        readonly queueState: string
        readonly reason?: string
        readonly duration: Duration.DurationInput
      }
    }
  /** The session of the request is over: this request and every later one of it gets 410. */
  | { readonly endSession: true }
  /** Processed as ever, which only makes sense with a `delay`. */
  | { readonly delay: Duration.DurationInput }

/**
 * Which requests a fault is for. They are counted from when it is told to the server. A request meets the faults in
 * the order in which they were told; the first one that is for it happens, and the later ones do not see it.
 *
 * @since 0.1.0
 * @category faults
 */
export interface Trigger {
  /** Default: every request. */
  readonly on?: Operation | ((request: Seen) => boolean) | undefined
  /** The first request of its kind that it happens to. Default: 1. */
  readonly nth?: number | undefined
  /** To how many requests in a row it happens. Default: 1, or all of them if there is a `for`. */
  readonly times?: number | undefined
  /** Only from so long after it was told … */
  readonly after?: Duration.DurationInput | undefined
  /** … and only for this long. */
  readonly for?: Duration.DurationInput | undefined
  /** The answer, or what stands for it, comes only after this long. */
  readonly delay?: Duration.DurationInput | undefined
}

/**
 * @since 0.1.0
 * @category faults
 */
export type Fault = Trigger & Action

/**
 * @since 0.1.0
 * @category faults
 */
export interface FaultHandle {
  /** To how many requests it happened. */
  readonly fired: Effect.Effect<number>
  readonly remove: Effect.Effect<void>
}

// What can be seen

/**
 * A request as a client sent it, even if it never arrived.
 *
 * @since 0.1.0
 * @category models
 */
export interface Seen {
  /** In milliseconds since 1970. */
  readonly at: number
  /** None if there is no such endpoint. */
  readonly operation: Operation | undefined
  readonly method: string
  /** Without the query. */
  readonly path: string
  readonly headers: Readonly<Record<string, string | undefined>>
  /** The body, if it is JSON. */
  readonly json: unknown
  readonly bytes: Uint8Array
  /** The sequence number, if it has one. */
  readonly seq: number | undefined
  /** The status of the answer, or when its connection was dropped; undefined while there is neither. */
  readonly answered: number | Dropped["when"] | undefined
}

/**
 * A request that was carried out on a model.
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
 * Weights that stand for real ones: one number that every optimizer step changes, by the gradient that passes
 * accumulated. The same data in the same steps give the same number, on either wire and however it was cut.
 *
 * @since 0.1.0
 * @category models
 */
export interface Weights {
  readonly value: number
  readonly steps: number
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Model {
  readonly id: string
  readonly sessionId: string
  readonly baseModel: string
  /** What was carried out, in that order. */
  readonly applied: ReadonlyArray<Applied>
  /** Of all that was carried out, bodies and order included. */
  readonly hash: string
  readonly weights: Weights
  /** What the next optimizer step will apply; 0 after one. */
  readonly gradient: number
  /** The numbers that arrived and wait for an earlier one. */
  readonly held: ReadonlyArray<number>
}

/**
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
 * @since 0.1.0
 * @category models
 */
export interface SessionState {
  readonly id: string
  readonly heartbeats: number
  /** When a heartbeat last came, in milliseconds since 1970; at first when it was created. */
  readonly lastHeartbeat: number
  /** `ended` is what a script did to it, the other what its client said at the end. */
  readonly state: "active" | "ended" | "success" | "errored" | "interrupted"
}

// The server without HTTP

/**
 * @since 0.1.0
 * @category exchange
 */
export type Request = Exchange.Request

/**
 * @since 0.1.0
 * @category exchange
 */
export interface Answer extends Exchange.Answer {
  readonly body: Uint8Array | string
}

/**
 * There is no answer: the connection ends.
 *
 * @since 0.1.0
 * @category exchange
 */
export { Dropped } from "../internal/scripted/Dropped.ts"

/**
 * @since 0.1.0
 * @category models
 */
export interface Service {
  /** The server itself, for whoever puts it behind a socket. */
  readonly handle: (request: Request) => Effect.Effect<Answer, Dropped>
  /** Every request, in order. */
  readonly requests: Effect.Effect<ReadonlyArray<Seen>>
  /** Those of one operation. */
  readonly requestsTo: (operation: Operation) => Effect.Effect<ReadonlyArray<Seen>>
  readonly fault: (fault: Fault) => Effect.Effect<FaultHandle>
  /** From now on, and for this long, requests get 429. */
  readonly rateLimit: (window: {
    readonly for: Duration.DurationInput
    readonly on?: Trigger["on"]
    /** Told to the clients, in whole seconds. */
    readonly retryAfter?: Duration.DurationInput | undefined
  }) => Effect.Effect<FaultHandle>
  /** Changes what kind of server it is. */
  readonly configure: (change: Omit<Options, "faults">) => Effect.Effect<void>
  /** Ends a session, or all of them: everything of it gets 410. */
  readonly endSession: (sessionId?: string) => Effect.Effect<void>
  readonly sessions: Effect.Effect<ReadonlyArray<SessionState>>
  readonly models: Effect.Effect<ReadonlyArray<Model>>
  readonly checkpoints: Effect.Effect<ReadonlyArray<Checkpoint>>
}

/**
 * @since 0.1.0
 * @category tags
 */
export class ScriptedServer extends Context.Tag("effect-tinker/testing/ScriptedServer")<ScriptedServer, Service>() {}

/**
 * The server alone. Work that it has begun ends with the scope.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options?: Options): Effect.Effect<Service, never, Scope.Scope> =>
  Effect.map(Core.make(options), ({ service }) => service)

/** What a client makes of a connection that ends. */
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
 * A server of its own, wherever this is built.
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
