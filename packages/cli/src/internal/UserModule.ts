/** Loads the module with tasks and rewards that `--environment` names. Its shape is described in `../Environment.ts`. */
import * as RecipeEnvironment from "@effect-tinker/recipes/Environment"
import * as Rows from "@effect-tinker/recipes/Rows"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import * as Message from "@effect-tinker/tokenizer/Message"
import type { Renderer } from "@effect-tinker/tokenizer/Renderer"
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { createHash } from "node:crypto"
import { createRequire } from "node:module"
import { versions } from "node:process"
import { pathToFileURL } from "node:url"
import type { Environment, Reply, Task } from "../Environment.ts"
import { Failure } from "./Failure.ts"
import * as Files from "./Files.ts"

/** The user's function failed. */
export class UserError extends Schema.TaggedError<UserError>("@effect-tinker/cli/UserError")("UserError", {
  message: Schema.String,
  cause: Schema.Defect,
}) {}

const says = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause))

const hasCode = (cause: unknown, code: string) => cause instanceof Error && "code" in cause && cause.code === code

/** Imports a module. TypeScript is read by Node itself where it can, and by tsx where the project has it. */
const load = async (path: string): Promise<unknown> => {
  const url = pathToFileURL(path).href
  try {
    return await import(url)
  } catch (cause) {
    if (!hasCode(cause, "ERR_UNKNOWN_FILE_EXTENSION") || !/\.[mc]?tsx?$/.test(path)) throw cause
    const tsx: { readonly tsImport: (url: string, from: string) => Promise<unknown> } = await import(
      pathToFileURL(createRequire(path).resolve("tsx/esm/api")).href
    )
    return await tsx.tsImport(url, url)
  }
}

/** Explains why a module was not loaded. */
export const notLoaded = (path: string) => (cause: unknown) => {
  if (hasCode(cause, "MODULE_NOT_FOUND") && /\.[mc]?tsx?$/.test(path))
    return new Failure({
      message: `Cannot load ${path}: Node.js ${versions.node} does not run TypeScript`,
      hint: "Install tsx beside it (npm install --save-dev tsx), use Node.js 22.18 or newer, or name a .js or .mjs file.",
      cause,
    })
  return new Failure({
    message: `Cannot load ${path}: ${says(cause)}`,
    hint: "Run the module itself to find the error, e.g. with node or tsx.",
    cause,
  })
}

const wrongShape = (path: string, problem: string) =>
  new Failure({
    message: `${path} is not an environment: ${problem}`,
    hint: "Export tasks, and reward(answer, task) or reply(answer, task, conversation); see Environment of @effect-tinker/cli.",
  })

const isEnvironment = (value: unknown): value is Environment =>
  Predicate.isRecord(value) && (typeof value["reward"] === "function" || typeof value["reply"] === "function")

const taskShape = Schema.Struct(
  { messages: Schema.Array(Message.FromJson), tags: Schema.optional(Schema.Array(Schema.String)) },
  Schema.Record({ key: Schema.String, value: Schema.Unknown }),
)

interface ReadTask {
  readonly messages: ReadonlyArray<Message.Message>
  /** As the user has written it. */
  readonly given: Task
}

const taskOf = (path: string) => (given: unknown, index: number) =>
  Schema.decodeUnknown(taskShape)(given).pipe(
    Effect.mapBoth({
      onFailure: ({ message }) => wrongShape(path, `task ${index}: ${message}`),
      onSuccess: ({ messages }): ReadTask => ({ messages, given: given as Task }),
    }),
  )

/** The checked exports of the module. */
export interface Loaded {
  readonly tasks: ReadonlyArray<ReadTask>
  readonly environment: Environment
  /** Identifies the module and the tasks. */
  readonly fingerprint: string
}

const rowsOf = (file: string) =>
  Stream.runCollect(Rows.file(file, Schema.Record({ key: Schema.String, value: Schema.Unknown })).rows).pipe(
    Effect.map((rows) => [...rows].map(({ value }): unknown => value)),
    Effect.scoped,
    Effect.provide(NodeFileSystem.layer),
  )

/** Loads a module, and the tasks from a file if it has none. */
export const open = (path: string, data: string | undefined) =>
  Effect.gen(function* () {
    const source = yield* Files.read(path)
    const module = yield* Effect.tryPromise({ try: () => load(path), catch: notLoaded(path) })
    const main = Predicate.isRecord(module) && isEnvironment(module["default"]) ? module["default"] : module
    if (!isEnvironment(main)) return yield* wrongShape(path, "it exports neither reward nor reply")
    const { tasks: listed } = main
    if (listed === undefined && data === undefined)
      return yield* wrongShape(path, "it exports no tasks, and no --data names a file with them")
    const given: unknown = yield* data !== undefined
      ? rowsOf(data)
      : typeof listed === "function"
        ? Effect.tryPromise({ try: async () => listed(), catch: notLoaded(path) })
        : Effect.succeed(listed)
    if (!Array.isArray(given) || given.length === 0) return yield* wrongShape(path, "there are no tasks")
    const tasks = yield* Effect.forEach(given, taskOf(path))
    const fingerprint = createHash("sha256").update(source).update(JSON.stringify(given)).digest("hex")
    return { tasks, environment: main, fingerprint } satisfies Loaded
  })

const plain = (messages: ReadonlyArray<Message.Message>) =>
  messages.map((message) => ({ role: message.role, content: Message.textOf(message) }))

/** Calls a function of the user. */
const called = <A>(call: () => A | Promise<A>) =>
  Effect.tryPromise({ try: async () => call(), catch: (cause) => new UserError({ message: says(cause), cause }) })

/** Rates an answer. */
export const rate = (
  { reply, reward }: Environment,
  answer: string,
  { given }: ReadTask,
  conversation: ReadonlyArray<Message.Message>,
): Effect.Effect<Reply, UserError> =>
  called(async () =>
    reply === undefined
      ? { reward: (await reward?.(answer, given)) ?? Number.NaN }
      : reply(answer, given, plain(conversation)),
  )

/** Makes the tasks of reinforcement learning. */
export const tasksOf = ({ environment, tasks }: Loaded, renderer: Renderer) =>
  tasks.map((task) =>
    RecipeEnvironment.conversation({
      renderer,
      messages: task.messages,
      tags: task.given.tags,
      reply: (message, history) =>
        Effect.gen(function* () {
          const answer = Message.textOf(message).trim()
          const { next, ...outcome } = yield* rate(environment, answer, task, [...history, message])
          if (next === undefined) return outcome
          const decoded = yield* Schema.decodeUnknown(Schema.Array(Message.FromJson))(next).pipe(
            Effect.mapError((cause) => new UserError({ message: `next: ${cause.message}`, cause })),
          )
          return { ...outcome, next: decoded }
        }),
    }),
  )
