/**
 * Measures what one hostile or large request costs a server: CPU time, peak memory above idle, and the slowest health
 * check while it is handled. Each request gets a server process of its own. Linux only.
 *
 *   npx -y pnpm@10.34.9 exec tsx scripts/bench/hostile.ts [bin.ts of another revision]
 */
import { spawn } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { connect } from "node:net"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { Worker } from "node:worker_threads"
import { Console, Effect, Either } from "effect"
import { Loss } from "effect-tinker"
import * as ForwardBackward from "effect-tinker/protocol/ForwardBackward"

const bin = resolve(
  process.argv[2] ?? fileURLToPath(new URL("../../packages/cli/src/internal/bin.ts", import.meta.url)),
)
const baseModel = "effect-tinker/valley-1.5m"
const mebi = 2 ** 20

const serve = Effect.gen(function* () {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "bench-hostile-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
  )
  const options = ["--port", "0", "--api-key", "tml-a", "--data-dir", directory]
  const child = yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(process.execPath, ["--import", "tsx", bin, "serve", ...options], {
        stdio: ["ignore", "pipe", "ignore"],
      }),
    ),
    (child) => Effect.sync(() => child.kill("SIGKILL")),
  )
  const url = yield* Effect.async<string>((resume) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      const at = /^listening on (http:\S+)$/.exec(line)?.[1]
      if (at !== undefined) resume(Effect.succeed(at))
    })
  })
  return { url, pid: child.pid ?? 0 }
})

/** Returns the CPU seconds and the peak memory of a process, or undefined if it has ended. */
const usage = (pid: number): { readonly cpu: number; readonly peak: number } | undefined => {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, "latin1")
      .replace(/^.*\) /, "")
      .split(" ")
    const peak = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "latin1"))?.[1]
    return { cpu: (Number(fields[11]) + Number(fields[12])) / 100, peak: Number(peak) / 1024 }
  } catch {
    return undefined
  }
}

interface Target {
  readonly url: string
  readonly modelId: string
}

const post = (url: string, path: string, body: string | Uint8Array, type = "application/json", key = "tml-a") =>
  Effect.tryPromise(async () => {
    const answer = await fetch(`${url}/api/v1/${path}`, {
      method: "POST",
      headers: { "x-api-key": key, "content-type": type },
      body: body as BodyInit,
    })
    return { status: answer.status, text: await answer.text() }
  })

const json = (url: string, path: string, body: object) =>
  Effect.map(post(url, path, JSON.stringify(body)), ({ text }): Record<string, string> => JSON.parse(text))

const target = (url: string): Effect.Effect<Target, unknown> =>
  Effect.gen(function* () {
    const { session_id = "" } = yield* json(url, "create_session", { sdk_version: "bench" })
    const { request_id } = yield* json(url, "create_model", { session_id, model_seq_id: 0, base_model: baseModel })
    yield* json(url, "retrieve_future", { request_id, allow_metadata_only: false })
    return { url, modelId: `${session_id}:train:0` }
  })

/** A pass of ordinary data. With a last token outside the vocabulary, everything is decoded and nothing computed. */
const ordinary = (modelId: string, data: number, lastToken = 1_000_000) => {
  const tokens = Array.from({ length: 256 }, (_, i) => 100 + (i % 200))
  const datum = (last: number) => ({
    modelInput: [...tokens, last],
    inputs: { targetTokens: [...tokens, 1], weights: [...tokens, 1].map(() => 0.5) },
  })
  const all = Array.from({ length: data }, (_, i) => datum(i === data - 1 ? lastToken : 1))
  const batch = Either.getOrThrow(Loss.prepare(Loss.crossEntropy, all))
  return { modelId, seqId: 1, batch, forwardOnly: false }
}

const protobuf = (modelId: string, data: number, lastToken?: number) =>
  Either.getOrThrow(ForwardBackward.toProtobuf(ordinary(modelId, data, lastToken)))

const emptyData = (modelId: string, bytes: number) =>
  Buffer.concat([protobuf(modelId, 1), Buffer.alloc(bytes, Buffer.from([0x1a, 0x00]))])

const emptyJson = (modelId: string, bytes: number) =>
  `{"model_id":"${modelId}","seq_id":1,"forward_backward_input":{"loss_fn":"cross_entropy","data":[${"{},".repeat(bytes / 3)}{}]}}`

/** Declares large bodies without a key and sends them, on many connections. */
const floods = (url: string, connections: number, bytes: number) =>
  Effect.forEach(
    Array.from({ length: connections }),
    () =>
      Effect.async<void>((resume) => {
        const socket = connect(Number(new URL(url).port), "127.0.0.1", () => {
          socket.write(
            `POST /api/v1/forward_backward HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ${bytes}\r\n\r\n`,
          )
          const part = Buffer.alloc(mebi)
          const more = () => {
            while (socket.writable && socket.bytesWritten < bytes) if (!socket.write(part)) return
          }
          socket.on("drain", more)
          more()
        })
        socket.on("error", () => {})
        socket.resume().on("close", () => resume(Effect.void))
      }).pipe(Effect.timeoutOption("8 seconds")),
    { concurrency: "unbounded", discard: true },
  ).pipe(Effect.as({ status: 0, text: "" }))

type Attack = (target: Target) => Effect.Effect<{ readonly status: number; readonly text: string }, unknown>

const pass =
  (body: (modelId: string) => string | Uint8Array, type?: string): Attack =>
  ({ modelId, url }) =>
    post(url, "forward_backward", body(modelId), type)

const x = "application/x-protobuf"
const attacks: Readonly<Record<string, Attack>> = {
  "protobuf, empty data, 2 MiB": pass((id) => emptyData(id, 2 * mebi), x),
  "protobuf, empty data, 24 MiB": pass((id) => emptyData(id, 24 * mebi), x),
  "JSON, empty data, 1 MiB": pass((id) => emptyJson(id, mebi)),
  "JSON, 1 MiB of keys": ({ url }) =>
    post(url, "create_session", `{${Array.from({ length: 80_000 }, (_, i) => `"k${i}":{}`).join()}}`),
  "protobuf, 1024 data, 4 MiB": pass((id) => protobuf(id, 1024), x),
  "protobuf, 7168 data, 28 MiB": pass((id) => protobuf(id, 7168), x),
  "protobuf, 1024 data, 4 MiB, accepted": pass((id) => protobuf(id, 1024, 1), x),
  "protobuf, 7168 data, 28 MiB, accepted": pass((id) => protobuf(id, 7168, 1), x),
  "JSON, 1024 data": pass((id) => JSON.stringify(Either.getOrThrow(ForwardBackward.toJson(ordinary(id, 1024))))),
  "12 uploads of 120 MiB without a key": ({ url }) => floods(url, 12, 120 * mebi),
}

/** Checks the health every few milliseconds, on a thread of its own; the message is the slowest check so far. */
const prober = `
const { parentPort, workerData } = require("node:worker_threads")
let slowest = 0
let since = performance.now()
parentPort.on("message", () => parentPort.postMessage(Math.max(slowest, performance.now() - since)))
const check = async () => {
  since = performance.now()
  await fetch(workerData).then((answer) => answer.text(), () => "")
  slowest = Math.max(slowest, performance.now() - since)
}
// The first check opens the connection.
check().then(async () => {
  slowest = 0
  parentPort.postMessage("ready")
  for (;;) {
    await check()
    await new Promise((done) => setTimeout(done, 3))
  }
})
`

const message = <A>(worker: Worker): Effect.Effect<A> =>
  Effect.async<A>((resume) => void worker.once("message", (value: A) => resume(Effect.succeed(value))))

const probe = (url: string) =>
  Effect.gen(function* () {
    const worker = yield* Effect.acquireRelease(
      Effect.sync(() => new Worker(prober, { eval: true, execArgv: [], workerData: `${url}/api/v1/healthz` })),
      (worker) => Effect.promise(() => worker.terminate()),
    )
    yield* message(worker)
    const slowest = Effect.suspend(() => {
      worker.postMessage("slowest")
      return message<number>(worker)
    })
    return { slowest }
  })

const measure = (name: string, attack: Attack) =>
  Effect.gen(function* () {
    const { pid, url } = yield* serve
    const at = yield* target(url)
    // The body is made here, before the measurement.
    const send = attack(at)
    const health = yield* probe(url)
    const before = usage(pid)
    const start = performance.now()
    const reply = yield* send.pipe(
      Effect.timeout("120 seconds"),
      Effect.orElseSucceed(() => ({ status: 0, text: "" })),
    )
    const seconds = (performance.now() - start) / 1000
    const slowest = yield* health.slowest
    const after = usage(pid)
    const isAlive = after !== undefined && !Number.isNaN(after.peak)
    yield* Console.log(
      [
        name.padEnd(38),
        (isAlive ? String(reply.status || "-") : "died").padStart(5),
        `${seconds.toFixed(2)} s`.padStart(10),
        `${((after?.cpu ?? Number.NaN) - (before?.cpu ?? 0)).toFixed(2)} s`.padStart(10),
        `${((after?.peak ?? Number.NaN) - (before?.peak ?? 0)).toFixed(0)} MiB`.padStart(10),
        `${slowest.toFixed(0)} ms`.padStart(10),
        `${(reply.text.length / 1024).toFixed(1)} KiB`.padStart(12),
      ].join(" "),
    )
  }).pipe(Effect.scoped)

const titles = ["request".padEnd(38), "reply", "time".padStart(10), "CPU".padStart(10), "memory".padStart(10)]
const program = Effect.zipRight(
  Console.log([...titles, "health".padStart(10), "response".padStart(12)].join(" ")),
  Effect.forEach(Object.entries(attacks), ([name, attack]) => measure(name, attack), { discard: true }),
)

Effect.runPromise(program).then(
  () => process.exit(0),
  (cause: unknown) => {
    console.error(cause)
    process.exit(1)
  },
)
