/** The life of one logical request: its token, its attempts, and the retries between them. */
import * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import type * as Endpoint from "../../protocol/Endpoint.ts"
import type { RetryPolicy } from "../../RetryPolicy.ts"
import { ClientClosed, type TinkerError } from "../../TinkerError.ts"
import { asksForRetry, isBillingStop, isRefusedCredential, isRetryable, meaningOf } from "../core/Response.ts"
import { current, type Trace, traceparentOf } from "../runtime/Trace.ts"
import { noop, type Stop, tryExit } from "../util/Callback.ts"
import { clockOf } from "../util/MonotonicClock.ts"
import { reveal, secretsIn } from "../util/Redact.ts"
import { runToExit } from "../util/RunBeside.ts"
import { Attempt, type Http, type Route, type Sent } from "./Attempt.ts"
import { BodyUse } from "./BodyUse.ts"
import { idempotencyKey } from "./IdempotencyKey.ts"

type AnyFiber = Fiber.RuntimeFiber<unknown, unknown>
type Token = Redacted.Redacted<string>
type OnExit<A> = (exit: Exit.Exit<A, TinkerError>) => void

/** Where the token of a request comes from. */
export interface Auth {
  /** Passes a token to `onExit`, at once if it is known. */
  readonly obtain: (fiber: AnyFiber, onExit: OnExit<Token>) => Stop
  /** Returns another token than the refused one, if there is a way to get one. */
  readonly renew: (refused: Token) => Effect.Effect<Option.Option<Token>, TinkerError>
  /** Whether all attempts use the first token, e.g. because obtaining it runs a command. */
  readonly isFixed: boolean
}

/** The options of one request. */
export interface Options {
  readonly timeout?: Duration.DurationInput | null | undefined
  readonly retryPolicy?: RetryPolicy | undefined
  readonly headers?: Readonly<Record<string, string | Redacted.Redacted<string>>> | undefined
  readonly own?: Readonly<Record<string, string>> | undefined
  readonly onBodySent?: (() => void) | undefined
  readonly idempotencyKey?: string | undefined
  readonly mayRetry?: ((error: TinkerError) => Effect.Effect<boolean>) | undefined
}

/** The parts that all requests of a client share. */
export interface Client {
  readonly http: Http
  readonly baseUrl: string
  /** Whether requests carry the W3C `traceparent` of their span. */
  readonly traceparent: boolean
  /** The secrets among the configured headers, and the key. */
  readonly secrets: ReadonlyArray<Redacted.Redacted<string>>
  /** The policy for requests that bring none of their own. */
  readonly retryPolicy: Effect.Effect<RetryPolicy>
  readonly logWarning: (message: string) => Effect.Effect<void>
  isClosed: boolean
}

/** The parts that all requests of an endpoint share. */
export interface Prepared<out A> extends Route<A> {
  readonly endpoint: Endpoint.Endpoint<never, unknown>
  /** The URL of requests whose path has no parameters. */
  readonly url: string
  /** In milliseconds. */
  readonly timeout: number
}

/**
 * Learns from the error that ends a request. Returns another rendering that avoids the error, if there is one; the
 * request then starts over with it.
 */
export type Relearn = (sent: Endpoint.Rendered, error: TinkerError) => Endpoint.Rendered | undefined

/**
 * - `Renew`: get another token and send again; once in the life of a request.
 * - `Retry`: ask the policy and the caller, wait, and send again.
 * - `Fail`: end with the error.
 */
export type NextStep = "Renew" | "Retry" | "Fail"

/** Decides what follows a failed attempt. */
export const nextStep = (
  endpoint: Pick<Endpoint.Endpoint<never, unknown>, "operation" | "retry" | "sequenced">,
  error: TinkerError,
  state: { readonly isRenewed: boolean; readonly hasOwnPolicy: boolean },
): NextStep => {
  if (isRefusedCredential(error) && !state.isRenewed) return "Renew"
  // Callers with a loop of their own get each error at once, unless they ask for retries.
  if (endpoint.retry === "none" && !state.hasOwnPolicy) return "Fail"
  // Obtaining a token has its own budget; repeating it here would multiply the two.
  if (!("operation" in error) || error.operation !== endpoint.operation) return "Fail"
  if (isBillingStop(error)) return endpoint.retry === "standard" ? "Retry" : "Fail"
  // The sequencer resolves conflicts over a sequence number, unless the server asks for a retry.
  if (endpoint.sequenced && meaningOf(error) === "Conflict" && !asksForRetry(error)) return "Fail"
  return isRetryable(error) ? "Retry" : "Fail"
}

const noHeaders: Readonly<Record<string, string>> = {}
const always = () => Effect.succeed(true)

/**
 * Reads top to bottom: obtain a token, attempt, and after a failure renew the token, wait for the next attempt, or end.
 * Every step reports to the next one by callback; only waiting needs a fiber.
 */
export class Request<A> implements Sent {
  readonly fiber: AnyFiber
  readonly rendered: Endpoint.Rendered
  readonly url: string
  readonly headers: Sent["headers"]
  readonly idempotencyKey: string
  readonly timeout: number
  readonly clock: Sent["clock"]
  readonly trace: Trace | undefined
  readonly bodyUse: BodyUse | undefined
  startedAt = 0

  private readonly client: Client
  private readonly prepared: Prepared<A>
  private readonly options: Options
  private readonly auth: Auth
  private readonly relearn: Relearn
  private readonly onExit: OnExit<A>

  private attempts = 0
  private isRenewed = false
  private isOver = false
  private token: Token | undefined = undefined
  private schedule: Schedule.ScheduleDriver<unknown, TinkerError> | undefined = undefined
  /** Counts the steps, because a step may end before it returns the way to stop it. */
  private step = 0
  private stopStep: Stop = noop

  constructor(
    fiber: AnyFiber,
    client: Client,
    prepared: Prepared<A>,
    rendered: Endpoint.Rendered,
    options: Options,
    auth: Auth,
    relearn: Relearn,
    onExit: OnExit<A>,
  ) {
    const { endpoint } = prepared
    this.fiber = fiber
    this.client = client
    this.prepared = prepared
    this.rendered = rendered
    this.options = options
    this.auth = auth
    this.relearn = relearn
    this.onExit = onExit
    this.url = urlOf(client, prepared, rendered)
    this.timeout = timeoutOf(prepared, options)
    this.idempotencyKey = options.idempotencyKey ?? idempotencyKey()
    this.headers = headersOf(fiber, client, options)
    this.clock = clockOf(fiber)
    // A request without a span of its own leaves the surrounding span alone.
    this.trace = endpoint.span === undefined ? undefined : current(fiber)
    this.bodyUse = options.onBodySent === undefined ? undefined : new BodyUse(options.onBodySent)
  }

  get endpoint(): Endpoint.Endpoint<never, unknown> {
    return this.prepared.endpoint
  }

  secrets(): ReadonlyArray<Redacted.Redacted<string>> {
    // A server may repeat the secrets of an input in its response.
    return [...this.client.secrets, ...secretsIn(this.options.headers ?? {}), ...this.rendered.secrets]
  }

  start(): Stop {
    if (this.trace !== undefined) describe(this.trace, this.rendered)
    if (this.client.isClosed) this.end(this.closed())
    else this.obtainToken()
    return this.isOver ? noop : () => this.stop()
  }

  private stop(): Effect.Effect<unknown> {
    this.isOver = true
    return this.stopStep()
  }

  private obtainToken(): void {
    if (this.auth.isFixed && this.token !== undefined) return this.attempt(this.token)
    const step = ++this.step
    this.stopBy(step, this.auth.obtain(this.fiber, this.onToken))
  }

  private readonly onToken: OnExit<Token> = (exit) => {
    if (this.isOver) return
    if (Exit.isFailure(exit)) return this.end(Exit.failCause(exit.cause))
    this.attempt(exit.value)
  }

  private attempt(token: Token): void {
    if (this.client.isClosed) return this.end(this.closed())
    const { client, prepared } = this
    // Waiting for the first token is not part of the request.
    if (this.attempts === 0) this.startedAt = this.clock.unsafeCurrentTimeMillis()
    this.token = token
    const step = ++this.step
    this.stopBy(step, new Attempt(client.http, prepared, this, token, this.attempts++, this.onAttempt).start())
  }

  private readonly onAttempt: OnExit<A> = (exit) => {
    if (this.isOver) return
    if (exit._tag === "Success") return this.end(exit)
    if (exit.cause._tag !== "Fail") return this.end(exit)
    this.failed(exit.cause.error)
  }

  private failed(error: TinkerError): void {
    const state = { isRenewed: this.isRenewed, hasOwnPolicy: this.options.retryPolicy !== undefined }
    switch (nextStep(this.endpoint, error, state)) {
      case "Renew":
        return this.renewToken(error)
      case "Retry":
        return this.run(this.pause(error), () => this.obtainToken())
      case "Fail":
        return this.end(Exit.fail(error))
    }
  }

  private renewToken(refusal: TinkerError): void {
    this.isRenewed = true
    const renewal = this.token === undefined ? Effect.succeedNone : this.auth.renew(this.token)
    this.run(renewal, (token) => (Option.isSome(token) ? this.attempt(token.value) : this.failed(refusal)))
  }

  /** Waits as the policy requires before the next attempt. Fails with the error if there is none. */
  private pause(error: TinkerError): Effect.Effect<unknown, TinkerError> {
    const { mayRetry = always } = this.options
    const driver =
      this.schedule === undefined
        ? Effect.flatMap(
            this.options.retryPolicy === undefined ? this.client.retryPolicy : Effect.succeed(this.options.retryPolicy),
            // `mayRetry` of the caller runs after the policy.
            (policy) => Schedule.driver(Schedule.whileInputEffect(policy, mayRetry)),
          )
        : Effect.succeed(this.schedule)
    return Effect.zipRight(
      this.client.logWarning(`Tinker: ${error.message}`),
      Effect.flatMap(driver, (driver) => {
        this.schedule = driver
        // Yields, so that retries without a delay don't grow the stack.
        return Effect.zipRight(
          Effect.yieldNow(),
          Effect.mapError(driver.next(error), () => error),
        )
      }),
    )
  }

  /** Runs a step that takes time in a fiber of its own, and ends the request if the step fails. */
  private run<B>(work: Effect.Effect<B, TinkerError>, onSuccess: (value: B) => void): void {
    const step = ++this.step
    const stop = runToExit(this.fiber, work, (exit) => {
      if (this.isOver) return
      if (Exit.isSuccess(exit)) onSuccess(exit.value)
      else this.end(Exit.failCause(exit.cause))
    })
    this.stopBy(step, stop)
  }

  private stopBy(step: number, stop: Stop): void {
    if (this.step === step) this.stopStep = stop
  }

  private closed(): Exit.Exit<never, TinkerError> {
    return Exit.fail(new ClientClosed({ operation: this.endpoint.operation }))
  }

  private end(exit: Exit.Exit<A, TinkerError>): void {
    const error = Exit.isSuccess(exit) ? Option.none() : Cause.failureOption(exit.cause)
    const rendered = Option.isSome(error) ? this.relearn(this.rendered, error.value) : undefined
    if (rendered !== undefined) return this.startOver(rendered)
    this.isOver = true
    this.step++
    this.stopStep = noop
    this.bodyUse?.ended()
    this.onExit(exit)
  }

  private startOver(rendered: Endpoint.Rendered): void {
    const { auth, client, fiber, onExit, options, prepared, relearn } = this
    const step = ++this.step
    this.stopBy(step, new Request(fiber, client, prepared, rendered, options, auth, relearn, onExit).start())
  }
}

/** Describes the request in its span. A tracer that throws does not stop the request. */
const describe = (trace: Trace, { body, method }: Endpoint.Rendered): void => {
  tryExit(() => {
    trace.attribute("http.request.method", method)
    trace.attribute("http.request.body.size", body?.bytes.length ?? 0)
  })
}

const urlOf = ({ baseUrl }: Client, { endpoint, url }: Prepared<unknown>, { path, query }: Endpoint.Rendered): string =>
  path === endpoint.path && query === "" ? url : `${baseUrl}/${endpoint.root}/${path}${query === "" ? "" : `?${query}`}`

const timeoutOf = (prepared: Prepared<unknown>, { timeout }: Options): number => {
  if (timeout === undefined) return prepared.timeout
  return timeout === null ? Number.POSITIVE_INFINITY : Duration.toMillis(timeout)
}

const headersOf = (fiber: AnyFiber, client: Client, { headers, own = noHeaders }: Options): Sent["headers"] => {
  const given = headers === undefined ? own : { ...own, ...reveal(headers) }
  const traceparent = client.traceparent ? traceparentOf(fiber) : undefined
  return traceparent === undefined ? given : { traceparent, ...given }
}
