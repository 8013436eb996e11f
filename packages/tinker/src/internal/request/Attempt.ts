/** One attempt at a request: one HTTP exchange with its headers, redirects and deadline. */
import type * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import type { Cancel, Outgoing } from "../../http/HttpDirect.ts"
import type { Endpoint, Rendered } from "../../protocol/Endpoint.ts"
import type { TinkerError } from "../../TinkerError.ts"
import type { Meter } from "../runtime/Meters.ts"
import type { Timeouts } from "../runtime/Timeouts.ts"
import type { Trace } from "../runtime/Trace.ts"
import { noop, type Stop } from "../util/Callback.ts"
import { redactor } from "../util/Redact.ts"
import { runToExit } from "../util/RunBeside.ts"
import * as AttemptError from "./AttemptError.ts"
import type { BodyUse } from "./BodyUse.ts"
import { isSuccess, type Outcome, type Reply, type Send } from "./ClientAdapter.ts"
import * as Redirect from "./Redirect.ts"
import * as RequestHeaders from "./RequestHeaders.ts"

/** The parts that all attempts of a client share. */
export interface Http {
  readonly timeouts: Timeouts
  readonly maxResponseBytes: number
}

/** How the attempts of an endpoint are sent and read. */
export interface Route<out A> {
  readonly send: Send
  /** The headers that are the same in every request, names and values in turn. */
  readonly headers: ReadonlyArray<string>
  readonly meter: Meter | undefined
  /** Turns a success, or a redirect that is not followed, into the result. */
  readonly receive: (reply: Reply, attempt: Answered) => Exit.Exit<A, TinkerError>
}

/** An attempt as its response sees it. */
export interface Answered extends AttemptError.Facts {
  readonly sent: Sent
}

/** The parts that all attempts of one logical request share. */
export interface Sent extends RequestHeaders.Sent {
  readonly fiber: Fiber.RuntimeFiber<unknown, unknown>
  readonly endpoint: Endpoint<never, unknown>
  readonly rendered: Rendered
  readonly url: string
  readonly startedAt: number
  readonly clock: Clock.Clock
  /** The span of the request, if there is a tracer. */
  readonly trace: Trace | undefined
  readonly bodyUse: BodyUse | undefined
  /** Returns the secrets of the request except its token. */
  readonly secrets: () => ReadonlyArray<Redacted.Redacted<string>>
}

/** Stands for a body that can't be read. It is not empty: an empty 400 means something else. */
const unreadable = new TextEncoder().encode("(its words could not be read)")

const isRedirect = (status: number) => status >= 300 && status < 400

/** Ends once: with its response, at its deadline, or when it is stopped. */
export class Attempt<A> implements Answered {
  readonly retryCount: number
  readonly sent: Sent
  private readonly http: Http
  private readonly route: Route<A>
  private readonly token: Redacted.Redacted<string>
  private readonly onExit: (exit: Exit.Exit<A, TinkerError>) => void

  private redirects = 0
  private isOver = false
  private isStopped = false
  private outgoing: Outgoing | undefined = undefined
  private cancel: Cancel | undefined = undefined
  private released: Effect.Effect<unknown> = Effect.void
  private clearDeadline: () => void = noop

  constructor(
    http: Http,
    route: Route<A>,
    sent: Sent,
    token: Redacted.Redacted<string>,
    retryCount: number,
    onExit: (exit: Exit.Exit<A, TinkerError>) => void,
  ) {
    this.http = http
    this.route = route
    this.sent = sent
    this.token = token
    this.retryCount = retryCount
    this.onExit = onExit
  }

  get operation(): string {
    return this.sent.endpoint.operation
  }

  get startedAt(): number {
    return this.sent.startedAt
  }

  get clock(): Clock.Clock {
    return this.sent.clock
  }

  /** Removes the token and all other secrets of the request from a string. */
  get redact(): (text: string) => string {
    return (text) => redactor([this.token, ...this.sent.secrets()])(text)
  }

  start(): Stop {
    const { bodyUse, endpoint, rendered, timeout, url } = this.sent
    const { headers, meter } = this.route
    const { body, method } = rendered
    meter?.began(body?.bytes.length ?? 0, this.retryCount > 0)
    this.exchange({
      method,
      url,
      purpose: endpoint.purpose,
      headers: RequestHeaders.ofAttempt(headers, this.sent, this.token, this.retryCount),
      body: body?.bytes,
      onBodySent: bodyUse?.sent,
    })
    if (this.isOver) return noop
    // Started after the request: a response that comes at the deadline counts.
    this.clearDeadline = this.http.timeouts.after(timeout, () => this.expire())
    return () => this.stop()
  }

  private stop(): Effect.Effect<unknown> {
    this.isStopped = true
    this.over()
    return this.letGo()
  }

  /** Sends a request, or the request that a redirect asks for. */
  private exchange(request: Outgoing): void {
    const { bodyUse, fiber } = this.sent
    const hop = this.redirects
    this.outgoing = request
    bodyUse?.began()
    let cancel
    try {
      cancel = this.route.send(request, this.answered, fiber)
    } catch (cause) {
      return this.end(Exit.die(cause))
    }
    // A response may have come already, and may have asked for the next request.
    if (!this.isOver && this.redirects === hop) this.cancel = cancel
  }

  private readonly answered = (outcome: Outcome): void => {
    if (this.isOver) return
    let next: Exit.Exit<A, TinkerError> | Outgoing
    try {
      next = this.settle(outcome)
    } catch (cause) {
      // A tracer that throws, or a response that can't be walked, ends the request and not the HTTP client.
      next = Exit.die(cause)
    }
    if (Exit.isExit(next)) return this.end(next)
    this.redirects++
    this.exchange(next)
  }

  /** Returns the result of a response, or the next request that it asks for. */
  private settle(outcome: Outcome): Exit.Exit<A, TinkerError> | Outgoing {
    if (outcome._tag === "Died") return Exit.failCause(outcome.cause)
    if (outcome._tag === "Answered") return this.read(outcome.answer)
    const { failure, response } = outcome
    // The status alone decides what a refusal is, so a refusal with an unreadable body is still one.
    return response === undefined || isSuccess(response.status)
      ? Exit.fail(AttemptError.failed(this, failure, response?.status))
      : this.read({ status: response.status, headers: response.headers, body: unreadable })
  }

  private read(answer: Reply): Exit.Exit<A, TinkerError> | Outgoing {
    const { body, headers, status } = answer
    if (isSuccess(status)) {
      return body.byteLength > this.http.maxResponseBytes
        ? this.unexpected(answer, "TooLarge", `${body.byteLength} bytes, more than maxResponseBytes allows`)
        : this.route.receive(answer, this)
    }
    // Browsers hide a redirect behind status 0.
    if (status === 0) return this.unexpected(answer, "Redirect", "the browser does not reveal the target")
    if (isRedirect(status)) {
      if (this.sent.endpoint.redirect === "manual") return this.route.receive(answer, this)
      const location = headers["location"]
      if (location !== undefined && this.outgoing !== undefined) {
        const next =
          this.redirects === Redirect.maxRedirects
            ? `more than ${Redirect.maxRedirects} redirects`
            : Redirect.follow(this.outgoing, status, location)
        return typeof next === "string" ? this.unexpected(answer, "Redirect", next) : next
      }
    }
    return Exit.fail(AttemptError.refused(this, answer))
  }

  private unexpected(
    reply: Reply,
    reason: Parameters<typeof AttemptError.unexpected>[2],
    detail: string,
  ): Exit.Exit<never, TinkerError> {
    return Exit.fail(AttemptError.unexpected(this, reply, reason, detail))
  }

  private expire(): void {
    if (!this.over()) return
    runToExit(this.sent.fiber, this.letGo(), () => {
      if (!this.isStopped) this.report(Exit.fail(AttemptError.timedOut(this, this.sent.timeout)))
    })
  }

  /** Cancels the exchange, the first time, and returns an effect that waits until the client has released it. */
  private letGo(): Effect.Effect<unknown> {
    const { cancel } = this
    this.cancel = undefined
    if (cancel !== undefined) this.released = cancel() ?? Effect.void
    return this.released
  }

  private end(exit: Exit.Exit<A, TinkerError>): void {
    if (!this.over()) return
    this.cancel = undefined
    this.report(exit)
  }

  private over(): boolean {
    if (this.isOver) return false
    this.isOver = true
    this.route.meter?.ended()
    this.clearDeadline()
    return true
  }

  private report(exit: Exit.Exit<A, TinkerError>): void {
    this.onExit(exit._tag === "Success" ? exit : this.observed(exit))
  }

  /** Shows a failure to the observers. If one of them throws, the request ends with that defect. */
  private observed(exit: Exit.Exit<A, TinkerError>): Exit.Exit<A, TinkerError> {
    if (exit._tag === "Success" || exit.cause._tag !== "Fail") return exit
    const { error } = exit.cause
    const { trace } = this.sent
    try {
      this.route.meter?.failed(error._tag === "RateLimited")
      const status = "status" in error ? Option.getOrUndefined(error.status) : undefined
      if (status !== undefined) trace?.attribute("http.response.status_code", status)
      trace?.event("tinker.attempt_failed", { attempt: this.retryCount + 1, error: error._tag, message: error.message })
      return exit
    } catch (cause) {
      return Exit.die(cause)
    }
  }
}
