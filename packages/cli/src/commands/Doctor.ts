/** Implements `tinkerfx doctor`. */
import * as NodeTinker from "@effect-tinker/node/NodeTinker"
import * as HttpClient from "@effect/platform/HttpClient"
import { version } from "effect-tinker/protocol/Version"
import * as RetryPolicy from "effect-tinker/RetryPolicy"
import * as ServiceClient from "effect-tinker/ServiceClient"
import * as TinkerConfig from "effect-tinker/TinkerConfig"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { randomBytes } from "node:crypto"
import { rm, stat, statfs, writeFile } from "node:fs/promises"
import { homedir } from "node:os"
import { join } from "node:path"
import { versions } from "node:process"
import * as Clients from "../internal/Clients.ts"
import type { Handler } from "../internal/Commands.ts"
import * as Diagnosis from "../internal/Diagnosis.ts"
import { Failure, report } from "../internal/Failure.ts"
import * as Output from "../internal/Output.ts"
import { Shell, variable } from "../internal/Shell.ts"
import * as Words from "../internal/Words.ts"

type Finding = Diagnosis.Finding

const says = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause))

/** Describes a failure and the remedy in the words of every command. */
const failed = (check: string, error: unknown): Finding => {
  const [detail = "", ...hint] = report(error).text.trim().split("\n")
  return { check, status: "failed", detail: detail.replace("Error: ", ""), hint: hint.join(" ") }
}

/** The server must answer at all; its time is compared with ours. No key is sent. */
const network = Effect.gen(function* () {
  const { baseUrl } = yield* TinkerConfig.TinkerConfig
  const client = yield* HttpClient.HttpClient
  const start = yield* Clock.currentTimeNanos
  const answer = yield* Effect.either(
    client.get(`${baseUrl}/api/v1/healthz`).pipe(Effect.timeout("10 seconds"), Effect.scoped),
  )
  if (Either.isLeft(answer)) {
    const hint = "Check the network, TINKER_BASE_URL and, behind a proxy, HTTPS_PROXY."
    const detail = `${baseUrl} does not answer: ${says(answer.left)}`
    return [{ check: "network", status: "failed", detail, hint }] satisfies ReadonlyArray<Finding>
  }
  const millis = Number((yield* Clock.currentTimeNanos) - start) / 1e6
  const { headers, status } = answer.right
  const detail = `${baseUrl} answers in ${Math.round(millis)} ms`
  const reached: Finding =
    status < 500
      ? { check: "network", status: "ok", detail }
      : {
          check: "network",
          status: "failed",
          detail: `${baseUrl} answers with status ${status}`,
          hint: "Try again later: the server has a problem.",
        }
  const date = headers["date"]
  const told = date === undefined ? undefined : Date.parse(date)
  return [reached, Diagnosis.clock(told, yield* Clock.currentTimeMillis)]
}).pipe(
  // Whether there is a key is another check.
  Effect.provide(NodeTinker.layerConfig({ apiKey: Redacted.make("tml-doctor"), retryPolicy: RetryPolicy.none })),
  Effect.catchAll((error) => Effect.succeed([failed("network", error)])),
)

/** The key must exist, and the server must accept it and offer models. */
const key = Effect.gen(function* () {
  const found: Finding = { check: "key", status: "ok", detail: "There is a key" }
  const { getServerCapabilities } = yield* ServiceClient.ServiceClient
  const answer = yield* Effect.either(getServerCapabilities)
  if (Either.isLeft(answer)) return [found, failed("server", answer.left)]
  const count = answer.right.supportedModels.length
  const server: Finding =
    count > 0
      ? {
          check: "server",
          status: "ok",
          detail: `The server accepts the key and offers ${Words.plural(count, "model")}`,
        }
      : {
          check: "server",
          status: "warning",
          detail: "The server accepts the key and offers no models",
          hint: "Ask the owner of your organization which models it may use.",
        }
  return [found, server]
}).pipe(
  Clients.provideOnce,
  Effect.catchAll((error) => Effect.succeed([failed("key", error)])),
)

/** Tokenizers are downloaded from the Hugging Face Hub. */
const hub = Effect.gen(function* () {
  const url = variable(yield* Shell, "HF_ENDPOINT") ?? "https://huggingface.co"
  const answer = yield* Effect.either(
    Effect.tryPromise((signal) => fetch(url, { method: "HEAD", signal })).pipe(Effect.timeout("10 seconds")),
  )
  return Either.isRight(answer)
    ? ({ check: "hub", status: "ok", detail: `${url} answers` } satisfies Finding)
    : ({
        check: "hub",
        status: "warning",
        detail: `${url} does not answer`,
        hint: "Tokenizers that are not stored yet can't be downloaded; name a directory with --tokenizer.",
      } satisfies Finding)
})

const disk = Effect.gen(function* () {
  const { directory } = yield* Shell
  const probe = join(directory, `.tinkerfx-${randomBytes(6).toString("hex")}`)
  const problem = yield* Effect.tryPromise({
    try: async () => {
      await writeFile(probe, "")
      await rm(probe)
    },
    catch: says,
  }).pipe(Effect.match({ onFailure: (text) => text, onSuccess: () => undefined }))
  const space = yield* Effect.option(Effect.tryPromise(() => statfs(directory)))
  const free = Option.match(space, { onNone: () => undefined, onSome: ({ bavail, bsize }) => bavail * bsize })
  return Diagnosis.disk("This directory", free, problem)
})

/** The file with stored keys, if there is one. */
const stored = Effect.gen(function* () {
  const path = join(variable(yield* Shell, "HOME") ?? homedir(), ".tinker", "credentials.json")
  const found = yield* Effect.option(Effect.tryPromise(() => stat(path)))
  return Option.match(found, { onNone: () => [], onSome: ({ mode }) => [Diagnosis.permissions(path, mode)] })
})

const marks = { ok: "✓", warning: "!", failed: "✗" } as const

export const doctor: Handler<object> = (_, { format }) =>
  Effect.gen(function* () {
    const [keys, reached, hubs, room, files] = yield* Effect.all([key, network, hub, disk, stored], { concurrency: 5 })
    const findings: ReadonlyArray<Finding> = [
      { check: "tinkerfx", status: "ok", detail: `tinkerfx ${version}` },
      Diagnosis.node(versions.node),
      ...keys,
      ...files,
      ...reached,
      hubs,
      room,
    ]
    const problems = findings.filter(({ status }) => status !== "ok")
    yield* Output.printRecords(format, {
      records: findings.map(({ check, detail, hint, status }) => ({ check, status, detail, hint: hint ?? null })),
      table: () => ({
        columns: ["Check", "", "Result"],
        rows: findings.map(({ check, detail, status }) => [check, marks[status], detail]),
      }),
    })
    const { out } = yield* Shell
    if (format === "table") {
      yield* out(problems.length === 0 ? "Everything works.\n" : "\nWhat to do:\n")
      for (const { check, hint } of problems) yield* out(`  ${check}: ${hint ?? ""}\n`)
    }
    const broken = problems.filter(({ status }) => status === "failed")
    if (broken.length > 0)
      return yield* new Failure({
        message: `${Words.plural(broken.length, "check")} failed: ${broken.map(({ check }) => check).join(", ")}`,
        hint: "Follow the hints above, and run 'tinkerfx doctor' again. Training with --local needs neither key nor server.",
      })
  })
