import { FetchHttpClient, FileSystem, type HttpClient, Path } from "@effect/platform"
import { NodeContext } from "@effect/platform-node"
import { UndiciHttpClient } from "@effect-tinker/node"
import { TokenizerHub } from "@effect-tinker/tokenizer"
import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, type Layer, Logger, Option, Redacted, TestClock, TestContext } from "effect"
import * as HubServer from "./support/HubServer.ts"

const token = Redacted.make("hf_secret")
const definition = JSON.stringify({ model: { type: "BPE" }, filler: "ü".repeat(300_000) })

const clients: Record<string, Layer.Layer<HttpClient.HttpClient>> = {
  undici: UndiciHttpClient.layer(),
  fetch: FetchHttpClient.layer,
}

/** A hub with one repository whose tokenizer is a large file, and an empty cache. */
const world = Effect.gen(function* () {
  const server = yield* HubServer.make
  server.files.set("org/model/tokenizer.json", { contents: definition, large: true })
  server.files.set("org/model/tokenizer_config.json", { contents: '{"eos_token": "x"}' })
  const files = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const cacheDirectory = path.join(yield* files.makeTempDirectoryScoped(), "cache")
  const hub = (options: Partial<TokenizerHub.Options> = {}) =>
    TokenizerHub.make({ cacheDirectory, baseUrl: server.url, token, ...options })
  const entries = Effect.map(files.readDirectory(cacheDirectory), (names) => names.toSorted())
  return { server, hub, cacheDirectory, files, path, entries }
})

/** Flips an effect and drops an unexpected success value, which is too long to print. */
const failing = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.flip(Effect.asVoid(effect))

const paths = (seen: ReadonlyArray<HubServer.Seen>) => seen.map(({ path, server }) => `${server} ${path.split("?")[0]}`)

const live = (name: string, run: Effect.Effect<unknown, unknown, Needs>) =>
  it.live(name, () => run.pipe(Effect.scoped, Effect.provide([clients["undici"]!, NodeContext.layer])))

type Needs = Effect.Effect.Context<typeof world> | HttpClient.HttpClient

/** Advances the test clock so that pauses between attempts pass at once; sockets are real. */
const hurried = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const fiber = yield* Effect.fork(effect)
    yield* Effect.forkScoped(Effect.forever(Effect.zipRight(TestClock.adjust("1 second"), Effect.promise(turn))))
    return yield* Fiber.join(fiber)
  }).pipe(Effect.scoped, Effect.provide(TestContext.TestContext))
const turn = () => new Promise<void>((resolve) => setImmediate(resolve))

describe("TokenizerHub", () => {
  for (const [name, client] of Object.entries(clients)) {
    it.live(`TokenizerHub.files downloads once and sends the token to the hub only: ${name}`, () =>
      Effect.gen(function* () {
        const { entries, hub, server } = yield* world
        const { files } = yield* hub()
        const got = yield* files("org/model")
        expect(got).toEqual({
          name: "org/model",
          tokenizer: definition,
          config: '{"eos_token": "x"}',
          specialTokensMap: undefined,
          chatTemplate: undefined,
        })
        const commit = server.commit
        expect(paths(server.seen)[0]).toBe("hub /org/model/resolve/main/tokenizer.json")
        expect(paths(server.seen)[1]).toMatch(/^cdn \/[0-9a-f]{64}$/)
        // All other files come from the same commit as the first.
        expect(paths(server.seen).slice(2)).toEqual(
          ["tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"].map(
            (file) => `hub /org/model/resolve/${commit}/${file}`,
          ),
        )
        for (const { authorization, server: which } of server.seen) {
          expect(authorization).toBe(which === "hub" ? "Bearer hf_secret" : undefined)
        }
        // No unfinished files are left behind.
        expect(yield* entries).toEqual(["blobs", "notes"])

        server.seen.length = 0
        expect(yield* files("org/model")).toEqual(got)
        expect(paths(server.seen)).toEqual(["hub /org/model/resolve/main/tokenizer.json"])
      }).pipe(Effect.scoped, Effect.provide([client, NodeContext.layer])),
    )
  }

  live(
    "TokenizerHub.files does not request a cached commit, nor anything when offline",
    Effect.gen(function* () {
      const { hub, server } = yield* world
      const { files } = yield* hub()
      const offline = yield* hub({ offline: true })
      expect(yield* failing(offline.files("org/model"))).toMatchObject({
        reason: "Offline",
        tokenizer: "org/model",
      })
      const got = yield* files("org/model", { revision: server.commit })
      server.seen.length = 0
      expect(yield* files("org/model", { revision: server.commit })).toEqual(got)
      expect(yield* offline.files("org/model", { revision: server.commit })).toEqual(got)
      expect(server.seen).toEqual([])
      expect(yield* failing(offline.files("org/model"))).toMatchObject({ reason: "Offline" })
      yield* files("org/model")
      expect(yield* offline.files("org/model")).toEqual(got)
    }),
  )

  live(
    "TokenizerHub.files downloads changed files, all from one commit",
    Effect.gen(function* () {
      const { hub, server } = yield* world
      const { files } = yield* hub()
      yield* files("org/model")
      server.commit = "b".repeat(40)
      server.files.set("org/model/tokenizer.json", { contents: '{"model":{}}' })
      server.files.set("org/model/chat_template.jinja", { contents: "{{ messages }}" })
      expect(yield* files("org/model")).toMatchObject({ tokenizer: '{"model":{}}', chatTemplate: "{{ messages }}" })
      expect(server.seen.at(-1)?.path).toContain(server.commit)
    }),
  )

  live(
    "TokenizerHub reports the progress of a download",
    Effect.gen(function* () {
      const { hub } = yield* world
      const reported: Array<TokenizerHub.Progress> = []
      const { files } = yield* hub({ onProgress: (progress) => Effect.sync(() => reported.push(progress)) })
      yield* files("org/model")
      const ofTokenizer = reported.filter(({ file }) => file === "tokenizer.json")
      const total = Buffer.byteLength(definition)
      expect(ofTokenizer.length).toBeGreaterThan(1)
      expect(ofTokenizer.every(({ totalBytes }) => Option.contains(totalBytes, total))).toBe(true)
      expect(ofTokenizer.at(-1)?.receivedBytes).toBe(total)
    }),
  )

  live(
    "TokenizerHub.files uses cached files and warns if the hub is unavailable",
    Effect.gen(function* () {
      const { hub, server } = yield* world
      const { files } = yield* hub()
      const got = yield* files("org/model")
      server.intercept = (_, response) => (response.writeHead(503).end(), true)
      const warnings: Array<string> = []
      const listen = Logger.replace(
        Logger.defaultLogger,
        Logger.make(({ message }) => warnings.push(String(message))),
      )
      expect(yield* hurried(files("org/model")).pipe(Effect.provide(listen))).toEqual(got)
      expect(warnings.join()).toContain("status 503; using the cached file")
      const missing = yield* failing(hurried(files("org/other")))
      expect(missing).toMatchObject({ reason: "Unavailable", tokenizer: "org/other" })
    }),
  )
})

describe("TokenizerHub downloads", () => {
  const faults: Record<string, HubServer.HubServer["faults"][number]> = {
    "cut off within the announced length": (response, contents) => {
      response.setHeader("content-length", contents.length)
      response.write(contents.subarray(0, contents.length / 2), () => response.destroy())
    },
    "cut off between chunks": (response, contents) => {
      response.write(contents.subarray(0, contents.length / 2), () => response.destroy())
    },
  }
  for (const [name, fault] of Object.entries(faults)) {
    live(
      `an incomplete download is retried and never cached: ${name}`,
      Effect.gen(function* () {
        const { entries, hub, server } = yield* world
        const { files } = yield* hub()
        server.faults.push(fault, fault)
        expect((yield* hurried(files("org/model"))).tokenizer).toBe(definition)
        expect(server.seen.filter((seen) => seen.server === "cdn").length).toBe(3)

        server.files.set("org/model/tokenizer.json", { contents: `${definition} `, large: true })
        server.faults.push(fault, fault, fault, fault)
        // All four attempts fail, so the cached file is used.
        expect((yield* hurried(files("org/model"))).tokenizer).toBe(definition)
        expect(yield* entries).toEqual(["blobs", "notes"])
      }),
    )
  }

  live(
    "a download with another length or hash than announced is rejected",
    Effect.gen(function* () {
      const { entries, hub, server } = yield* world
      const { files } = yield* hub()
      // A complete response as far as HTTP can tell.
      server.faults.push((response, contents) => response.end(contents.subarray(0, 1000)))
      const short = yield* failing(files("org/model"))
      expect(short).toMatchObject({ reason: "Damaged" })
      expect(short.message).toContain(`1000 of ${Buffer.byteLength(definition)} bytes`)
      server.faults.push((response, contents) => response.end(Buffer.alloc(contents.length, "x")))
      const other = yield* failing(files("org/model"))
      expect(other.message).toContain("the hash differs from the announced one")
      expect(yield* entries).toEqual([])
      const offline = yield* hub({ offline: true })
      expect(yield* failing(offline.files("org/model"))).toMatchObject({ reason: "Offline" })
    }),
  )

  live(
    "a download that is too large is rejected, whether announced or not",
    Effect.gen(function* () {
      const { hub, server } = yield* world
      const { files } = yield* hub({ maxFileBytes: 10_000 })
      expect(yield* failing(files("org/model"))).toMatchObject({ reason: "Damaged" })
      expect(server.seen.length).toBe(2)
      server.files.set("org/model/tokenizer.json", { contents: definition })
      server.faults.push((response, contents) => response.end(contents))
      const error = yield* failing(files("org/model"))
      expect(error.message).toContain("larger than 10000 bytes")
    }),
  )

  live(
    "a stalled download times out",
    Effect.gen(function* () {
      const { hub, server } = yield* world
      const { files } = yield* hub({ timeout: "10 seconds" })
      const stall: HubServer.HubServer["faults"][number] = (response, contents) =>
        response.write(contents.subarray(0, 10))
      server.faults.push(stall, stall, stall, stall)
      expect(yield* failing(hurried(files("org/model")))).toMatchObject({ reason: "Unavailable" })
    }),
  )

  live(
    "a file damaged on disk is downloaded again",
    Effect.gen(function* () {
      const { cacheDirectory, files: disk, hub, path, server } = yield* world
      const { files } = yield* hub()
      const got = yield* files("org/model", { revision: server.commit })
      const blobs = path.join(cacheDirectory, "blobs")
      for (const name of yield* disk.readDirectory(blobs))
        yield* disk.writeFileString(path.join(blobs, name), "damaged")
      const offline = yield* hub({ offline: true })
      expect(yield* failing(offline.files("org/model", { revision: server.commit }))).toMatchObject({
        reason: "Offline",
      })
      expect(yield* files("org/model", { revision: server.commit })).toEqual(got)
    }),
  )

  live(
    "an interrupted download leaves no files behind",
    Effect.gen(function* () {
      const { entries, hub, server } = yield* world
      const begun = yield* Deferred.make<void>()
      const { files } = yield* hub({ onProgress: () => Deferred.succeed(begun, undefined) })
      server.faults.push((response, contents) => response.write(contents.subarray(0, 1000)))
      const fiber = yield* Effect.fork(files("org/model"))
      yield* Deferred.await(begun)
      expect((yield* entries).length).toBe(1)
      yield* Fiber.interrupt(fiber)
      expect(yield* entries).toEqual([])
    }),
  )
})

describe("TokenizerHub errors", () => {
  const rejection = (
    status: number,
    headers: Record<string, string> = {},
    options: Partial<TokenizerHub.Options> = {},
  ) =>
    Effect.gen(function* () {
      const { hub, server } = yield* world
      server.intercept = (_, response) => (response.writeHead(status, headers).end("hf_secret"), true)
      const { files } = yield* hub(options)
      const error = yield* failing(hurried(files("org/model")))
      expect(JSON.stringify(error) + error.message + String(error.cause)).not.toContain("hf_secret")
      return { error, attempts: server.seen.length }
    })

  live(
    "errors of the hub have a reason and are retried only if that may help",
    Effect.gen(function* () {
      const gated = yield* rejection(401)
      expect(gated.error).toMatchObject({ reason: "Unauthorized" })
      expect(gated.attempts).toBe(1)
      expect((yield* rejection(403, {}, { token: undefined })).error.message).toContain("a token is required")
      const unknown = yield* rejection(404, { "x-error-code": "RepoNotFound" })
      expect(unknown.error).toMatchObject({ reason: "NotFound" })
      expect((yield* rejection(404, { "x-error-code": "RevisionNotFound" })).error.message).toContain(
        "no such revision",
      )
      const busy = yield* rejection(429)
      expect(busy.error).toMatchObject({ reason: "Unavailable" })
      expect(busy.attempts).toBe(4)
    }),
  )

  live(
    "a repository without a tokenizer.json fails with NotFound, or NeedsCode if it has a program",
    Effect.gen(function* () {
      const { hub, server } = yield* world
      const { files } = yield* hub()
      expect(yield* failing(files("org/empty"))).toMatchObject({ reason: "NotFound", tokenizer: "org/empty" })
      server.files.set("org/code/tokenizer_config.json", {
        contents: '{"auto_map": {"AutoTokenizer": ["tokenization_x.X", null]}}',
      })
      expect(yield* failing(files("org/code"))).toMatchObject({ reason: "NeedsCode", tokenizer: "org/code" })
    }),
  )

  live(
    "invalid repository names and revisions are rejected without a request",
    Effect.gen(function* () {
      const { hub, server } = yield* world
      const { files } = yield* hub()
      for (const name of ["", "..", "../x", "a/b/c", "a/..", "a b", "a?b", "http://x/y", "a/./b"]) {
        expect(yield* failing(files(name)), name).toMatchObject({ _tag: "InvalidInput", path: "repository" })
      }
      for (const revision of ["", " ", ".."]) {
        expect(yield* failing(files("org/model", { revision }))).toMatchObject({ path: "revision" })
      }
      expect(server.seen).toEqual([])
      yield* files("org/model", { revision: "refs/pr/1" })
      expect(server.seen[0]?.path).toBe("/org/model/resolve/refs%2Fpr%2F1/tokenizer.json")
      expect(yield* failing(hub({ baseUrl: "ftp://x" }))).toMatchObject({ path: "baseUrl" })
    }),
  )
})

describe("TokenizerHub redirects", () => {
  live(
    "the token follows redirects within the hub but not across other origins and back",
    Effect.gen(function* () {
      const { hub, server } = yield* world
      const other = yield* HubServer.make
      const { files } = yield* hub()
      server.files.set("org/model/tokenizer.json", { contents: "{}" })
      server.intercept = ({ url = "" }, response) => {
        const location = url.startsWith("/old/")
          ? url.replace("/old/", "/org/")
          : url.startsWith("/away/")
            ? `${other.url}${url}`
            : undefined
        if (location !== undefined) response.writeHead(307, { location }).end()
        return location !== undefined
      }
      other.intercept = ({ url = "" }, response) => {
        response.writeHead(307, { location: `${server.url}${url.replace("/away/", "/org/")}` }).end()
        return true
      }
      yield* files("old/model")
      expect(server.seen.slice(0, 2).map(({ authorization }) => authorization)).toEqual([
        "Bearer hf_secret",
        "Bearer hf_secret",
      ])
      server.seen.length = 0
      yield* files("away/model")
      expect(other.seen[0]?.authorization).toBeUndefined()
      expect(server.seen.slice(0, 2).map(({ authorization }) => authorization)).toEqual(["Bearer hf_secret", undefined])
    }),
  )

  live(
    "a redirect loop ends with an error",
    Effect.gen(function* () {
      const { hub, server } = yield* world
      const { files } = yield* hub()
      server.intercept = ({ url = "" }, response) => (response.writeHead(302, { location: url }).end(), true)
      const error = yield* failing(hurried(files("org/model")))
      expect(error.message).toContain("more than 10 redirects")
    }),
  )
})
