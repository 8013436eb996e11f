/** Runs the drivers in turns, so that other load on the machine affects all of them equally. */
import { spawn } from "node:child_process"
import { loadavg } from "node:os"
import type { MockServer } from "./MockServer.ts"
import type { Driver, Workload } from "./Workloads.ts"

export interface Run {
  readonly workload: string
  readonly driver: Driver
  readonly repetition: number
  readonly metrics: Readonly<Record<string, number>>
  readonly loadavg: number
  /** CPU seconds of the mock server during the run. */
  readonly serverCpu: number
  readonly error?: string
}

/** Runs a process until it exits or times out, and returns its output. */
export const outputOf = (command: ReadonlyArray<string>, env: NodeJS.ProcessEnv, timeout: number) =>
  new Promise<{ readonly stdout: string; readonly stderr: string; readonly ended: string }>((resolve, reject) => {
    const [file = "", ...args] = command
    const child = spawn(file, args, { env, stdio: ["ignore", "pipe", "pipe"], timeout, killSignal: "SIGKILL" })
    const stop = () => child.kill()
    process.once("exit", stop)
    let stdout = ""
    let stderr = ""
    child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text))
    child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text))
    child.on("error", reject)
    child.on("close", (code, signal) => {
      process.off("exit", stop)
      resolve({ stdout, stderr, ended: signal === null ? `exit code ${code}` : `killed by ${signal}` })
    })
  })

export interface Options {
  readonly server: MockServer
  readonly drivers: Readonly<Partial<Record<Driver, ReadonlyArray<string>>>>
  readonly workloads: ReadonlyArray<Workload>
  readonly repetitions: number
  readonly progress: (run: Run, done: number, all: number) => void
}

const runOnce = async (
  { drivers, server }: Options,
  workload: Workload,
  driver: Driver,
  repetition: number,
): Promise<Run> => {
  await server.reset(workload.server)
  const env = {
    ...process.env,
    ...(server.certificate === undefined
      ? {}
      : { SSL_CERT_FILE: server.certificate, NODE_EXTRA_CA_CERTS: server.certificate }),
    TINKER_BASE_URL: server.url,
    TINKER_API_KEY: "tml-bench",
    HF_HUB_OFFLINE: "1",
    BENCH_NAME: workload.id,
    BENCH_CTL_URL: server.control,
    ...Object.fromEntries(Object.entries(workload.parameters).map(([name, value]) => [`BENCH_${name}`, String(value)])),
    BENCH_START_NS: String(BigInt(Math.round((performance.timeOrigin + performance.now()) * 1000)) * 1000n),
  }
  const at = { workload: workload.id, driver, repetition, loadavg: loadavg()[0] ?? 0 }
  const command = (drivers[driver] ?? []).map((part) =>
    workload.bundled === true ? part.replace(/ours\.mjs$/, "ours.bundled.mjs") : part,
  )
  const { ended, stderr, stdout } = await outputOf([...command, workload.kernel], env, 180_000)
  const { cpu_s: serverCpu } = await server.stats()
  const line = stdout.split("\n").findLast((line) => line.startsWith("{"))
  if (line === undefined) {
    return { ...at, metrics: {}, serverCpu, error: `${ended}: ${(stderr || stdout).trim().slice(-800)}` }
  }
  return { ...at, metrics: JSON.parse(line).metrics, serverCpu }
}

export const run = async (options: Options): Promise<ReadonlyArray<Run>> => {
  const { drivers, progress, repetitions, workloads } = options
  const names = Object.keys(drivers) as ReadonlyArray<Driver>
  const all = workloads.reduce((sum, { runs = 1 }) => sum + runs * names.length * repetitions, 0)
  const done: Array<Run> = []
  for (let repetition = 0; repetition < repetitions; repetition++) {
    const first = repetition % names.length
    const order = [...names.slice(first), ...names.slice(0, first)]
    for (const workload of workloads) {
      for (let turn = 0; turn < (workload.runs ?? 1); turn++) {
        for (const driver of order) {
          const run = await runOnce(options, workload, driver, repetition)
          done.push(run)
          progress(run, done.length, all)
        }
      }
    }
  }
  return done
}
