/**
 * Represents checkpoint paths (`tinker://<training run>/<folder>/<name>`) as values. All parsing and formatting of
 * these paths happens here.
 *
 * @since 0.1.0
 */
import * as Data from "effect/Data"
import * as Either from "effect/Either"
import { describe, invalid } from "./internal/codec/Invalid.ts"
import type { InvalidInput } from "./TinkerError.ts"

/**
 * The purpose of a checkpoint: resuming training, sampling, or external use.
 *
 * @since 0.1.0
 * @category models
 */
export type Kind = "training" | "sampler" | "external"

/**
 * The components of a path. None of them contains a slash.
 *
 * @since 0.1.0
 * @category models
 */
export interface Parts {
  readonly trainingRunId: string
  readonly kind: Kind
  readonly name: string
  /**
   * The notation of the path. Some open servers omit the folder of sampler weights: `tinker://<training run>/<name>`
   * (`"short"`).
   *
   * @default "full"
   */
  readonly form?: "full" | "short" | undefined
}

const scheme = "tinker://"

const folders = { training: "weights", sampler: "sampler_weights", external: "external_weights" } as const

const kinds: ReadonlyMap<string, Kind> = new Map([
  ["weights", "training"],
  ["sampler_weights", "sampler"],
  ["external_weights", "external"],
])

/**
 * A validated checkpoint path, created by `make`, `parse` or `fromServer`. Its string form is the wire format.
 *
 * @since 0.1.0
 * @category models
 */
export class Path extends Data.TaggedClass("effect-tinker/Checkpoint/Path")<Required<Parts>> {
  /**
   * The folder and name as shown in the server's lists, e.g. `weights/0001`.
   *
   * @since 0.1.0
   */
  get checkpointId(): string {
    return `${folders[this.kind]}/${this.name}`
  }
  /** @since 0.1.0 */
  override toString(): string {
    return `${scheme}${this.trainingRunId}/${this.form === "short" ? this.name : this.checkpointId}`
  }
  /** @since 0.1.0 */
  toJSON(): string {
    return this.toString()
  }
}

/**
 * A checkpoint argument: a `Path`, or its full string form.
 *
 * @since 0.1.0
 * @category models
 */
export type Input = Path | string

const expected = `expected ${scheme}<training run>/<weights, sampler_weights or external_weights>/<name>`

/** Returns why a value cannot be a path segment. Empty segments and dots would address something else. */
const problemWithPart = (part: unknown): string | undefined => {
  if (typeof part !== "string") return `must be a string, got ${describe(part)}`
  if (part === "") return "is empty"
  if (part === "." || part === "..") return "must not be . or .."
  return part.includes("/") ? "contains a slash" : undefined
}

/**
 * Creates a path from its components; `at` names the argument in errors.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  { form = "full", kind, name, trainingRunId }: Parts,
  at = "path",
): Either.Either<Path, InvalidInput> => {
  for (const [which, part] of Object.entries({ "training run": trainingRunId, name })) {
    const problem = problemWithPart(part)
    if (problem !== undefined) return invalid(at, `${expected}, but the ${which} ${problem}`)
  }
  if (!Object.hasOwn(folders, kind)) return invalid(at, "expected the kind training, sampler or external")
  // A short path whose name is a folder would read as a full path without a name.
  if (form === "short" && (kind !== "sampler" || kinds.has(name))) {
    return invalid(
      at,
      `${expected}: only sampler weights have a short form, and a folder name is not allowed as a name`,
    )
  }
  return Either.right(new Path({ trainingRunId, kind, name, form }))
}

const partsOf = (text: unknown, at: string): Either.Either<ReadonlyArray<string>, InvalidInput> => {
  if (typeof text !== "string") return invalid(at, `${expected}, got ${describe(text)}`)
  return text.startsWith(scheme)
    ? Either.right(text.slice(scheme.length).split("/"))
    : invalid(at, `${expected}, but it does not start with ${scheme}`)
}

const full = (parts: ReadonlyArray<string>, at: string): Either.Either<Path, InvalidInput> => {
  const [trainingRunId = "", folder = "", name = ""] = parts
  if (parts.length !== 3) return invalid(at, `${expected}, but it has ${parts.length} parts`)
  const kind = kinds.get(folder)
  return kind === undefined
    ? invalid(at, `${expected}, but the folder is unknown`)
    : make({ trainingRunId, kind, name }, at)
}

/**
 * Parses a string written by a user: exactly three segments, case-sensitive, without trimming.
 *
 * @example
 * ```ts
 * import { Either } from "effect"
 * import { Checkpoint } from "effect-tinker"
 *
 * const path = Checkpoint.parse("tinker://my-run/weights/0001")
 * if (Either.isRight(path)) console.log(path.right.trainingRunId, path.right.kind, path.right.name)
 * // → my-run training 0001
 *
 * const bad = Checkpoint.parse("my-run/weights/0001", "checkpoint")
 * if (Either.isLeft(bad)) console.log(bad.left.path, bad.left._tag) // → checkpoint InvalidInput
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const parse = (text: string, at = "path"): Either.Either<Path, InvalidInput> =>
  Either.flatMap(partsOf(text, at), (parts) => full(parts, at))

/**
 * Parses a string returned by a server, which may also have two segments (sampler weights).
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromServer = (text: string, at = "path"): Either.Either<Path, InvalidInput> =>
  Either.flatMap(partsOf(text, at), (parts) => {
    const [trainingRunId = "", name = ""] = parts
    return parts.length === 2 ? make({ trainingRunId, kind: "sampler", name, form: "short" }, at) : full(parts, at)
  })

/**
 * Converts a checkpoint argument to a validated path.
 *
 * @since 0.1.0
 * @category constructors
 */
export const from = (input: Input, at = "path"): Either.Either<Path, InvalidInput> =>
  input instanceof Path ? make(input, at) : parse(input, at)

/**
 * Returns the wire form of a checkpoint to load. Accepts the two-segment form because servers return it.
 *
 * @since 0.1.0
 * @category accessors
 */
export const textOf = (input: Input, at = "path"): Either.Either<string, InvalidInput> =>
  Either.map(input instanceof Path ? make(input, at) : fromServer(input, at), String)

/**
 * Checks whether a string is a checkpoint path rather than, e.g., the name of a base model.
 *
 * @since 0.1.0
 * @category guards
 */
export const isPathLike = (text: string): boolean => text.startsWith(scheme)
