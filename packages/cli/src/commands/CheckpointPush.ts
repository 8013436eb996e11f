/** Implements `tinkerfx checkpoint push-hf`. */
import type * as Management from "effect-tinker/protocol/schemas/Management"
import * as RestClient from "effect-tinker/RestClient"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import { existsSync, openAsBlob } from "node:fs"
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { homedir, tmpdir } from "node:os"
import { join, relative, sep } from "node:path"
import * as Clients from "../internal/Clients.ts"
import type { Handler } from "../internal/Commands.ts"
import { Failure } from "../internal/Failure.ts"
import * as ModelCard from "../internal/ModelCard.ts"
import * as Output from "../internal/Output.ts"
import { Shell, variable } from "../internal/Shell.ts"
import * as Weights from "../internal/Weights.ts"
import * as Words from "../internal/Words.ts"

/** The token of the Hugging Face command, which it stores in a file unless a variable holds it. */
const tokenOf = Effect.gen(function* () {
  const shell = yield* Shell
  const given = (name: string) => variable(shell, name)
  const token = given("HF_TOKEN") ?? given("HUGGING_FACE_HUB_TOKEN")
  if (token !== undefined) return Option.some(token.trim())
  const home = given("HF_HOME") ?? join(given("HOME") ?? homedir(), ".cache", "huggingface")
  const stored = yield* Effect.option(
    Effect.tryPromise(() => readFile(given("HF_TOKEN_PATH") ?? join(home, "token"), "utf8")),
  )
  return Option.filter(
    Option.map(stored, (text) => text.trim()),
    (text) => text !== "",
  )
})

const notLoggedIn = (cause?: unknown) =>
  new Failure({ message: "Not logged in", hint: "Run: hf auth login, or set HF_TOKEN", cause })

/** Calls the hub. Its error messages name the request and the reason, and contain no token. */
const hub = <A>(call: () => Promise<A>): Effect.Effect<A, Failure> =>
  Effect.tryPromise({
    try: call,
    catch: (cause) =>
      new Failure({
        message: `Hugging Face Hub: ${cause instanceof Error ? cause.message : String(cause)}`,
        hint: "Check the name of the repository, and that the token may write to it.",
        cause,
      }),
  })

/** Recognizes an answer of the hub by its status. */
const isStatus = (cause: unknown, status: number): boolean =>
  Predicate.hasProperty(cause, "statusCode") && cause.statusCode === status

const temporary = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(join(tmpdir(), "tinkerfx-push-"))),
  (directory) => Effect.promise(() => rm(directory, { recursive: true, force: true })),
)

const filesIn = async (directory: string): Promise<ReadonlyArray<string>> =>
  (await readdir(directory, { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile())
    .map((entry) => relative(directory, join(entry.parentPath, entry.name)).split(sep).join("/"))
    .toSorted()

/** Adds the base model to the adapter's configuration if it lacks one. */
const completeConfig = async (path: string, baseModel: string): Promise<void> => {
  const config: unknown = JSON.parse(await readFile(path, "utf8"))
  if (typeof config !== "object" || config === null || Array.isArray(config)) return
  if ("base_model_name_or_path" in config && typeof config.base_model_name_or_path === "string") return
  const complete = Object.entries({ ...config, base_model_name_or_path: baseModel })
  const sorted = Object.fromEntries(complete.toSorted(([a], [b]) => (a < b ? -1 : 1)))
  await writeFile(path, `${JSON.stringify(sorted, null, 2)}\n`)
}

interface Input {
  readonly path: string
  readonly repo: string | undefined
  readonly public: boolean
  readonly revision: string | undefined
  readonly commitMessage: string | undefined
  readonly createPr: boolean
  readonly allowPattern: ReadonlyArray<string>
  readonly ignorePattern: ReadonlyArray<string>
  readonly noModelCard: boolean
}

/** The repository, and the branch if it follows from the checkpoint. */
const destination = (input: Input, info: Option.Option<Management.WeightsInfo>, runId: string, id: string) => {
  if (input.repo !== undefined) return { repo: input.repo, revision: input.revision }
  const base = Option.match(info, { onNone: () => "adapter", onSome: ({ baseModel }) => baseModel.split("/").at(-1) })
  return {
    repo: ModelCard.repositoryName(`tinker-${base}-${runId}`),
    revision: input.revision ?? ModelCard.repositoryName(id),
  }
}

export const pushHf: Handler<Input> = (input, { format }) =>
  Effect.gen(function* () {
    const shell = yield* Shell
    const checkpoint = yield* Weights.parse(input.path)
    const accessToken = Option.getOrUndefined(yield* tokenOf)
    if (accessToken === undefined) return yield* notLoggedIn()
    const Hub = yield* Effect.promise(() => import("@huggingface/hub"))
    const endpoint = variable(shell, "HF_ENDPOINT")?.replace(/\/+$/, "")
    const access = { accessToken, ...(endpoint === undefined ? {} : { hubUrl: endpoint }) }
    const user = yield* Effect.tryPromise({ try: () => Hub.whoAmI(access), catch: notLoggedIn })

    const rest = yield* RestClient.RestClient
    const info = yield* Effect.option(rest.getWeightsInfo(checkpoint))
    const { repo, revision } = destination(
      input,
      info,
      checkpoint.trainingRunId,
      checkpoint.checkpointId.replaceAll("/", "-"),
    )
    const name = repo.includes("/") ? repo : `${user.name}/${repo}`
    const repository = { type: "model", name } as const
    const branch = revision === undefined || revision === "main" ? {} : { revision }
    // Before the download, which may take long.
    const readme = yield* hub(() =>
      Hub.downloadFile({ ...access, ...branch, repo: repository, path: "README.md" })
        .then((file) => file?.text())
        .catch((cause: unknown) => (isStatus(cause, 404) ? undefined : Promise.reject(cause))),
    )
    const found = /tinker:\/\/[^\s`]+/.exec(readme ?? "")?.[0]
    if (found !== undefined && found !== input.path)
      return yield* new Failure({
        message: "Repo ID appears to contain a different Tinker checkpoint.",
        hint: `Found ${found}, expected ${input.path}.`,
      })

    const directory = yield* temporary
    yield* Weights.download(checkpoint, { directory, format: "json" })
    const at = (name: string) => join(directory, name)
    const isAdapter =
      existsSync(at("adapter_config.json")) &&
      (existsSync(at("adapter_model.safetensors")) || existsSync(at("adapter_model.bin")))
    if (!isAdapter)
      return yield* new Failure({
        message: "Checkpoint does not contain a PEFT adapter.",
        hint: "Expected adapter_config.json and adapter_model.safetensors (or adapter_model.bin). Encrypted (.age) external weights cannot be uploaded.",
      })
    const baseModel = Option.match(info, { onNone: () => "unknown", onSome: ({ baseModel }) => baseModel })
    yield* Effect.ignore(Effect.tryPromise(() => completeConfig(at("adapter_config.json"), baseModel)))
    if (!input.noModelCard && !existsSync(at("README.md")))
      yield* Effect.promise(() =>
        writeFile(
          at("README.md"),
          ModelCard.render({ repo: name, path: input.path, info: Option.getOrUndefined(info) }),
        ),
      )
    yield* hub(() =>
      Hub.createRepo({ ...access, repo: repository, private: !input.public }).catch((cause: unknown) =>
        // It exists.
        isStatus(cause, 409) ? undefined : Promise.reject(cause),
      ),
    )
    if (branch.revision !== undefined)
      yield* hub(() => Hub.createBranch({ ...access, repo: repository, branch: branch.revision, overwrite: true }))

    const ignored =
      input.allowPattern.length > 0 ? input.ignorePattern : [...input.ignorePattern, "checkpoint_complete"]
    const names = (yield* Effect.promise(() => filesIn(directory))).filter((file) =>
      ModelCard.isChosen(file, input.allowPattern, ignored),
    )
    if (names.length === 0)
      return yield* new Failure({
        message: "No file matches the patterns.",
        hint: "Check --allow-pattern and --ignore-pattern.",
      })
    yield* hub(async () => {
      const operations = await Promise.all(
        names.map(async (file) => ({
          operation: "addOrUpdate" as const,
          path: file,
          content: await openAsBlob(at(file)),
        })),
      )
      await Hub.commit({
        ...access,
        repo: repository,
        title: input.commitMessage ?? "Upload folder using tinkerfx",
        ...(branch.revision === undefined ? {} : { branch: branch.revision }),
        isPullRequest: input.createPr,
        operations,
      })
    }).pipe(Effect.onInterrupt(() => shell.err(`The commit to ${name} may be missing; run the command again.\n`)))
    yield* Output.print(format, {
      json: () => ({
        checkpoint_path: input.path,
        repo_id: name,
        ...(input.revision === undefined ? {} : { revision: input.revision }),
        public: input.public,
      }),
      table: () => ({
        title: `Checkpoint Hub Upload: ${input.path}`,
        columns: Output.properties,
        rows: [
          ["Checkpoint Path", input.path],
          ["Repo ID", name],
          ...(input.revision === undefined ? [] : [["Revision", input.revision]]),
          ["Public", Words.yes(input.public)],
        ],
      }),
    })
  }).pipe(Effect.scoped, Clients.provide)
