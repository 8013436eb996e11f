/**
 * One request on its way and the body of its answer: undici's handler on one side, whoever reads on the other.
 */
import * as Effect from "effect/Effect"
import type { Dispatcher } from "undici"

/** How a request ended that has no answer. */
export interface Settled {
  readonly error: Error
  /** Was it written to a connection? */
  readonly started: boolean
}

type Options = { -readonly [K in keyof Dispatcher.DispatchOptions]: Dispatcher.DispatchOptions[K] }

const aborted = new Error("the request was given up by its caller")

const ignore = () => {}

export class Exchange implements Dispatcher.DispatchHandler {
  status = 0
  headers: Record<string, string | Array<string> | undefined> = {}
  /** Everything there is has been received, or will never be. */
  isOver = false
  error: Error | undefined = undefined
  /** Called once, when it is over. */
  onOver: () => void = ignore
  /** Called at every change while somebody waits for one. */
  reader: (() => void) | undefined = undefined
  /** Nobody is waiting for more than `highWaterMark` bytes, unless told. */
  unbounded = false

  private chunks: Array<Buffer> = []
  private size = 0
  private controller: Dispatcher.DispatchController | undefined = undefined
  private answer: ((settled: Settled | undefined) => void) | undefined = undefined
  private givenUp = false

  private readonly options: Options
  private readonly highWaterMark: number

  constructor(options: Dispatcher.DispatchOptions, highWaterMark: number) {
    this.options = options
    this.highWaterMark = highWaterMark
  }

  /** Ends when the head of the answer is there, with nothing; or without one, with what happened. */
  start(pool: Dispatcher): Effect.Effect<Settled | undefined> {
    return Effect.async<Settled | undefined>((resume) =>
      this.begin(pool, (settled) => resume(settled === undefined ? answered : Effect.succeed(settled))),
    )
  }

  /** The same for who needs no fiber; `answer` is called once. */
  begin(pool: Dispatcher, answer: (settled: Settled | undefined) => void): void {
    this.answer = answer
    try {
      pool.dispatch(this.options, this)
    } catch (error) {
      this.finish(error instanceof Error ? error : new Error(String(error)))
    }
  }

  /** The connection is freed if the exchange is not over. One that still waits for a connection will not be sent. */
  abort(): void {
    if (this.isOver || this.givenUp) return
    this.givenUp = true
    this.chunks = []
    this.size = 0
    if (this.controller === undefined) {
      // It stays in undici's queue until its turn, but nothing big stays with it.
      this.options.body = null
      this.options.headers = null
    } else {
      this.controller.abort(aborted)
    }
    this.finish(aborted)
  }

  /** What has come so far, and makes room for more. */
  take(): Array<Buffer> {
    const chunks = this.chunks
    if (chunks.length > 0) {
      this.chunks = []
      this.size = 0
    }
    this.flow()
    return chunks
  }

  /** Bytes that wait to be taken. */
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
    // Undici catches this and drops the request; `controller.abort` would cost the connection as well.
    if (this.givenUp) throw aborted
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
    if (this.givenUp) return
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
