/** Handles one request and the body of its response: an undici handler on one side, a reader on the other. */
import * as Effect from "effect/Effect"
import type { Dispatcher } from "undici"

/** How a request without a response ended. */
export interface Settled {
  readonly error: Error
  /** Whether the request was written to a connection. */
  readonly started: boolean
}

type Options = { -readonly [K in keyof Dispatcher.DispatchOptions]: Dispatcher.DispatchOptions[K] }

const aborted = new Error("the request was aborted by the caller")

const ignore = () => {}

export class Exchange implements Dispatcher.DispatchHandler {
  status = 0
  headers: Record<string, string | Array<string> | undefined> = {}
  /** Whether the exchange is over: everything was received, or nothing more will be. */
  isOver = false
  error: Error | undefined = undefined
  /** Called once, when the exchange is over. */
  onOver: () => void = ignore
  /** Called at every change while a reader waits. */
  reader: (() => void) | undefined = undefined
  /** Whether more than `highWaterMark` bytes are buffered without pausing the connection. */
  unbounded = false

  private chunks: Array<Buffer> = []
  private size = 0
  private controller: Dispatcher.DispatchController | undefined = undefined
  private answer: ((settled: Settled | undefined) => void) | undefined = undefined
  private aborting = false

  private readonly options: Options
  private readonly highWaterMark: number

  constructor(options: Dispatcher.DispatchOptions, highWaterMark: number) {
    this.options = options
    this.highWaterMark = highWaterMark
  }

  /**
   * Sends the request. Completes with nothing when the response headers arrive, or with the failure if they never do.
   */
  start(pool: Dispatcher): Effect.Effect<Settled | undefined> {
    return Effect.async<Settled | undefined>((resume) =>
      this.begin(pool, (settled) => resume(settled === undefined ? answered : Effect.succeed(settled))),
    )
  }

  /** Sends the request without a fiber; `answer` is called once. */
  begin(pool: Dispatcher, answer: (settled: Settled | undefined) => void): void {
    this.answer = answer
    try {
      pool.dispatch(this.options, this)
    } catch (error) {
      this.finish(error instanceof Error ? error : new Error(String(error)))
    }
  }

  /** Frees the connection if the exchange is not over. A request that is still waiting for a connection is not sent. */
  abort(): void {
    if (this.isOver || this.aborting) return
    this.aborting = true
    this.chunks = []
    this.size = 0
    if (this.controller === undefined) {
      // The request stays in undici's queue until its turn, so everything large is released now.
      this.options.body = null
      this.options.headers = null
    } else {
      this.controller.abort(aborted)
    }
    this.finish(aborted)
  }

  /** Returns the chunks received so far and resumes the connection. */
  take(): Array<Buffer> {
    const chunks = this.chunks
    if (chunks.length > 0) {
      this.chunks = []
      this.size = 0
    }
    this.flow()
    return chunks
  }

  /** Number of bytes that have not been taken. */
  get received(): number {
    return this.size
  }

  get isEmpty(): boolean {
    return this.chunks.length === 0
  }

  flow(): void {
    if (!this.isOver && this.controller?.paused === true) this.controller.resume()
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    // Undici catches this and drops the request; `controller.abort` would also close the connection.
    if (this.aborting) throw aborted
    this.controller = controller
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | Array<string> | undefined>,
  ): void {
    if (status < 200) return
    this.status = status
    this.headers = headers
    this.settle(undefined)
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.aborting) return
    this.chunks.push(chunk)
    this.size += chunk.length
    if (!this.unbounded && this.size >= this.highWaterMark) controller.pause()
    this.reader?.()
  }

  onResponseEnd(): void {
    this.finish(undefined)
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.finish(error)
  }

  private finish(error: Error | undefined): void {
    if (this.isOver) return
    this.isOver = true
    this.error = error
    if (error !== undefined) this.settle({ error, started: this.controller !== undefined })
    this.onOver()
    this.onOver = ignore
    this.reader?.()
  }

  private settle(settled: Settled | undefined): void {
    const answer = this.answer
    if (answer === undefined) return
    this.answer = undefined
    answer(settled)
  }
}

const answered: Effect.Effect<undefined> = Effect.succeed(undefined)
