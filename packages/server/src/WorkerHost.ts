/**
 * Runs a backend on a separate thread, so that the server keeps answering while it computes.
 *
 * The thread loads a module that exports `backend(data)`. Errors that the backend throws are returned as `HostError`.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import { createRequire } from "node:module"
import { pathToFileURL } from "node:url"
import { Worker } from "node:worker_threads"
import type { Reply, Start } from "./internal/WorkerProtocol.ts"
import * as ModelHost from "./ModelHost.ts"

/**
 * Options of a worker host.
 *
 * @since 0.1.0
 * @category models
 */
export interface WorkerOptions {
  /** The module to load; it must `export const backend = (data) => Backend`. */
  readonly module: URL
  /** The argument of `backend`; must be structured-cloneable. */
  readonly data?: unknown
}

const main = (extension: "ts" | "js"): URL => new URL(`./internal/WorkerMain.${extension}`, import.meta.url)

/** Starts the thread. When run from source (tests, scripts), the thread registers a TypeScript loader first. */
const start = (options: WorkerOptions): Worker => {
  const workerData: Start = { module: options.module.href, data: options.data }
  if (!import.meta.url.endsWith(".ts")) return new Worker(main("js"), { workerData })
  const loader = pathToFileURL(
    createRequire(import.meta.url)
      .resolve("tsx/esm/api")
      .replace(/cjs$/, "mjs"),
  ).href
  return new Worker(
    `import(${JSON.stringify(loader)}).then(({ register }) => (register(), import(${JSON.stringify(main("ts").href)})))`,
    { eval: true, workerData, execArgv: [] },
  )
}

interface Pending {
  readonly resume: (effect: Effect.Effect<unknown, ModelHost.HostError>) => void
  readonly onToken: ModelHost.OnToken | undefined
}

const died = (cause: unknown): ModelHost.HostError =>
  new ModelHost.HostError({
    reason: "internal",
    message: `the model thread exited: ${cause instanceof Error ? cause.message : String(cause)}`,
  })

/**
 * Starts a thread with a backend; terminates it when the scope closes.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options: WorkerOptions): Effect.Effect<ModelHost.Service, ModelHost.HostError, Scope.Scope> =>
  Effect.gen(function* () {
    const worker = yield* Effect.acquireRelease(
      Effect.sync(() => start(options)),
      (worker) => Effect.promise(() => worker.terminate()),
    )
    const pending = new Map<number, Pending>()
    let last = 0
    let dead: ModelHost.HostError | undefined
    const end = (cause: unknown) => {
      dead = died(cause)
      for (const { resume } of pending.values()) resume(dead)
      pending.clear()
    }
    worker.on("error", end)
    worker.on("exit", (code) => end(`exit code ${code}`))
    worker.on("message", (reply: Reply) => {
      const waiting = pending.get(reply.id)
      if (waiting === undefined) return
      if ("token" in reply) return waiting.onToken?.(reply.sequence, reply.token)
      pending.delete(reply.id)
      waiting.resume("error" in reply ? new ModelHost.HostError(reply.error) : Effect.succeed(reply.value))
    })

    const call = (method: string, args: ReadonlyArray<unknown>, onToken?: ModelHost.OnToken) =>
      Effect.async<unknown, ModelHost.HostError>((resume) => {
        if (dead !== undefined) return resume(dead)
        const id = ++last
        pending.set(id, { resume, onToken })
        worker.postMessage({ id, method, args, stream: onToken !== undefined })
        return Effect.sync(() => {
          pending.delete(id)
          worker.postMessage({ id, cancel: true })
        })
      })

    const models = (yield* call("models", [])) as ReadonlyArray<ModelHost.BaseModel>
    return ModelHost.make(
      models,
      call,
      (id, request, onToken) =>
        call("sample", [id, request], onToken) as Effect.Effect<ModelHost.SampleOutput, ModelHost.HostError>,
    )
  })

/**
 * Provides a `ModelHost` that runs on a separate thread.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (options: WorkerOptions): Layer.Layer<ModelHost.ModelHost, ModelHost.HostError> =>
  Layer.scoped(ModelHost.ModelHost, make(options))
