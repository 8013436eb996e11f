/** Tests that a flipped bit in a file of weights is noticed wherever the file is read. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { createClient } from "@libsql/client"
import { Effect, Logger } from "effect"
import { CheckpointFiles } from "@effect-tinker/server"
import * as Raw from "./support/Raw.ts"

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "tinker-damage-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
)

const quiet = Effect.provide(Logger.remove(Logger.defaultLogger))

/** Flips the lowest bit of the last byte of every file in a folder of the data directory. */
const damage = (dataDirectory: string, folder: "weights" | "snapshots") => {
  const parent = join(dataDirectory, "files", folder)
  const names = readdirSync(parent)
  for (const name of names) {
    const bytes = readFileSync(join(parent, name))
    bytes[bytes.length - 1]! ^= 1
    writeFileSync(join(parent, name), bytes)
  }
  return names.length
}

/** Removes the checksums from the database: what an older version wrote. */
const forgetChecksums = (dataDirectory: string) =>
  Effect.promise(async () => {
    const client = createClient({ url: `file:${join(dataDirectory, "tinker.db")}` })
    await client.execute(
      `UPDATE things SET data =
         json_remove(data, '$.checksum', '$.snapshotChecksum', '$.weights.checksum', '$.weights.of')`,
    )
    client.close()
  })

const sampleOf = (id: string, seq: number) => ({
  sampling_session_id: id,
  seq_id: seq,
  num_samples: 1,
  prompt: { chunks: [{ type: "encoded_text", tokens: [1, 2] }] },
  sampling_params: { max_tokens: 2 },
})

/** Saves a training state, named and unnamed sampler weights and external weights. */
const saveAll = ({ model, post, result, session }: Raw.Raw) =>
  Effect.gen(function* () {
    const sessionId = yield* session
    const id = yield* model(sessionId)
    const save = (path: string, seq: number, rest: object) =>
      Effect.flatMap(post(path, { model_id: id, seq_id: seq, ...rest }), result)
    const state = yield* save("save_weights", 1, { path: "state" })
    const named = yield* save("save_weights_for_sampler", 2, { path: "named" })
    const unnamed = yield* save("save_weights_for_sampler", 3, { sampling_session_seq_id: 7 })
    const external = yield* save("save_weights_external", 4, { path: "out" })
    return {
      id,
      sessionId,
      state: String(state.body.path),
      named: String(named.body.path),
      unnamed: String(unnamed.body.sampling_session_id),
      external: String(external.body.path),
    }
  })

type Saved = Effect.Effect.Success<ReturnType<typeof saveAll>>

interface Use {
  readonly name: string
  /** The checkpoint or sampler that the failure has to name. */
  readonly of: keyof Saved
  readonly run: (raw: Raw.Raw, saved: Saved) => Effect.Effect<Raw.Reply>
}

const uses: ReadonlyArray<Use> = [
  {
    name: "loaded into a model",
    of: "state",
    run: ({ post, result }, { id, state }) =>
      Effect.flatMap(post("load_weights", { model_id: id, seq_id: 5, path: state, optimizer: true }), result),
  },
  {
    name: "loaded as a new model",
    of: "state",
    run: ({ post, result }, { sessionId, state }) =>
      Effect.flatMap(
        post("load_weights", { session_id: sessionId, model_seq_id: 1, path: state, optimizer: false }),
        result,
      ),
  },
  {
    name: "sampled by path",
    of: "named",
    run: ({ post, result }, { named, sessionId }) =>
      Effect.gen(function* () {
        const of = { session_id: sessionId, sampling_session_seq_id: 8, model_path: named }
        const { body } = yield* post("create_sampling_session", of)
        return yield* result(yield* post("asample", sampleOf(body.sampling_session_id, 1)))
      }),
  },
  {
    name: "sampled by sampler",
    of: "unnamed",
    run: ({ post, result }, { unnamed }) => Effect.flatMap(post("asample", sampleOf(unnamed, 1)), result),
  },
  {
    name: "used in a completion",
    of: "named",
    run: ({ ask }, { named }) =>
      ask("POST", "/oai/api/v1/completions", { model: named, prompt: [1, 2], max_tokens: 2 }),
  },
  {
    name: "downloaded as an archive",
    of: "named",
    run: ({ ask }, { id, named }) =>
      Effect.flatMap(
        ask("GET", `training_runs/${id}/checkpoints/sampler_weights/${named.split("/").at(-1)}/archive`),
        ({ headers }) => ask("GET", new URL(headers["location"] ?? "").pathname),
      ),
  },
  {
    name: "exported",
    of: "external",
    run: ({ ask }, { id }) => ask("GET", `training_runs/${id}/checkpoints/external_weights/out/external_weights_urls`),
  },
  {
    name: "copied",
    of: "state",
    run: ({ post }, { state }) => post("copy_weights", { source_path: state, destination_project_id: "p" }),
  },
]

const message = ({ body }: Raw.Reply): string => JSON.stringify(body)

describe("damaged weights", () => {
  for (const { name, of, run } of uses)
    it.live(`are refused when they are ${name}, also after a restart`, () =>
      Effect.gen(function* () {
        const dataDirectory = yield* directory
        const started = Raw.make({ dataDirectory })
        const check = (raw: Raw.Raw, saved: Saved) =>
          Effect.map(run(raw, saved), (reply) => {
            expect(message(reply)).toContain("is damaged: its SHA-256 is not that of the bytes that were written")
            expect(message(reply)).toContain(`The weights of ${saved[of]} cannot be used`)
            if (reply.status !== 200)
              expect(reply).toMatchObject({ status: 500, headers: { "x-should-retry": "false" } })
            expect(reply.body.category ?? "server").toBe("server")
          })
        const saved = yield* Effect.scoped(
          Effect.gen(function* () {
            const raw = yield* started
            const saved = yield* saveAll(raw)
            expect(damage(dataDirectory, "weights")).toBe(4)
            yield* check(raw, saved)
            return saved
          }),
        )
        yield* Effect.scoped(Effect.flatMap(started, (raw) => check(raw, saved)))
      }).pipe(Effect.scoped, quiet),
    )

  it.live("of a snapshot lose the model at the next start, and every request says so", () =>
    Effect.gen(function* () {
      const dataDirectory = yield* directory
      const started = Raw.make({ dataDirectory, snapshotEvery: 1 })
      const id = yield* Effect.scoped(
        Effect.gen(function* () {
          const { model, post, result, session } = yield* started
          const id = yield* model(yield* session)
          yield* result(yield* post("forward_backward", Raw.pass(id, 1)))
          yield* result(yield* post("optim_step", Raw.step(id, 2)))
          // The next result comes after the snapshot.
          yield* result(yield* post("forward_backward", Raw.pass(id, 3)))
          return id
        }),
      )
      expect(damage(dataDirectory, "snapshots")).toBe(1)
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { post } = yield* started
          const reply = yield* post("forward_backward", Raw.pass(id, 4))
          expect(reply.status).toBe(404)
          expect(message(reply)).toMatch(/was lost: it could not be restored .* is damaged: its SHA-256 is not/)
        }),
      )
    }).pipe(Effect.scoped, quiet),
  )

  it.live("a data directory without checksums, of an older version, can be used as before", () =>
    Effect.gen(function* () {
      const dataDirectory = yield* directory
      const started = Raw.make({ dataDirectory, snapshotEvery: 1 })
      const saved = yield* Effect.scoped(Effect.flatMap(started, saveAll))
      yield* forgetChecksums(dataDirectory)
      yield* Effect.scoped(
        Effect.gen(function* () {
          const raw = yield* started
          for (const { run } of uses) {
            const reply = yield* run(raw, saved)
            expect(reply.status).toBe(200)
            expect(message(reply)).not.toContain("error")
          }
        }),
      )
    }).pipe(Effect.scoped, quiet),
  )

  it.effect("a file is read with the checksum with which it was written, and with none", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const files = yield* CheckpointFiles.directory(path)
      const checksum = yield* files.write(["a"], new TextEncoder().encode("abc"))
      expect(checksum).toBe("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
      expect(new TextDecoder().decode(yield* files.read(["a"], checksum))).toBe("abc")
      writeFileSync(join(path, "a"), "abd")
      expect(yield* Effect.flip(files.read(["a"], checksum))).toMatchObject({ _tag: "DamagedFile", key: "a" })
      expect(new TextDecoder().decode(yield* files.read(["a"], undefined))).toBe("abd")
    }).pipe(Effect.scoped),
  )
})
