/**
 * The entry point of a model thread. Runs requests in the order of arrival; samples yield between tokens and
 * interleave.
 */
import { parentPort, workerData } from "node:worker_threads"
import { type Backend, hostError, type OnToken, type SampleRequest } from "../ModelHost.ts"
import type { Ask, Reply, Start } from "./WorkerProtocol.ts"

const { data, module } = workerData as Start
const loaded = (await import(module)) as { readonly backend: (data: unknown) => Promise<Backend> | Backend }
const backend = await loaded.backend(data)

const running = new Map<number, AbortController>()

const post = (reply: Reply): void => parentPort?.postMessage(reply)

const run = async (ask: Extract<Ask, { readonly method: string }>): Promise<unknown> => {
  const { args, id, method, stream } = ask
  if (method === "models") return backend.models
  if (method !== "sample")
    return (backend[method as keyof Backend] as (...args: ReadonlyArray<unknown>) => unknown)(...args)
  const controller = new AbortController()
  running.set(id, controller)
  const onToken: OnToken | undefined = stream ? (sequence, token) => post({ id, sequence, token }) : undefined
  try {
    const [sampler, request] = args as [string, SampleRequest]
    return await backend.sample(sampler, request, onToken, controller.signal)
  } finally {
    running.delete(id)
  }
}

parentPort?.on("message", (ask: Ask) => {
  if ("cancel" in ask) return running.get(ask.id)?.abort()
  run(ask).then(
    (value) => post({ id: ask.id, value }),
    (cause: unknown) => {
      const { message, reason } = hostError(cause)
      post({ id: ask.id, error: { reason, message } })
    },
  )
})
