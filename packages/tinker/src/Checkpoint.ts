/**
 * The name of a checkpoint, `tinker://<training run>/<folder>/<name>`, as a value: picked apart, built and printed
 * here and nowhere else.
 *
 * @since 0.1.0
 */
import * as Data from "effect/Data"
import * as Either from "effect/Either"
import { describe, invalid } from "./internal/codec/Invalid.ts"
import type { InvalidInput } from "./TinkerError.ts"

/**
 * What a checkpoint is for: to train on from, to sample from, or to be used elsewhere.
 *
 * @since 0.1.0
 * @category models
 */
export type Kind = "training" | "sampler" | "external"

/**
 * The parts of a path. None of them holds a slash.
 *
 * @since 0.1.0
 * @category models
 */
export interface Parts {
  readonly trainingRunId: string
  readonly kind: Kind
  readonly name: string
  /** Some open servers name sampler weights without their folder: `tinker://<training run>/<name>`. */
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
 * Prints itself as it is on the wire. Made by `make`, `parse` or `fromServer`, which check it.
 *
 * @since 0.1.0
 * @category models
 */
export class Path extends Data.TaggedClass("effect-tinker/Checkpoint/Path")<Required<Parts>> {
  /**
   * Folder and name, as the server's lists tell it, e.g. `weights/0001`.
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
 * What a call takes that is about a checkpoint: a path, or its text in the full form.
 *
 * @since 0.1.0
 * @category models
 */
export type Input = Path | string

const expected = `expected ${scheme}<training run>/<weights, sampler_weights or external_weights>/<name>`

/** Why this can't be a part; empty, it would ask for something else, and with dots for something elsewhere. */
const problemWithPart = (part: unknown): string | undefined => {
  if (typeof part !== "string") return `must be a text, got ${describe(part)}`
  if (part === "") return "is empty"
  if (part === "." || part === "..") return "leads elsewhere"
  return part.includes("/") ? "holds a slash" : undefined
}

/**
 * From its parts; `at` names the path in the error.
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
  // Otherwise it would read as a full path that lost its name.
  if (form === "short" && (kind !== "sampler" || kinds.has(name))) {
    return invalid(at, `${expected}: only sampler weights have a short form, and no folder is a name`)
  }
  return Either.right(new Path({ trainingRunId, kind, name, form }))
}

const partsOf = (text: unknown, at: string): Either.Either<ReadonlyArray<string>, InvalidInput> => {
  if (typeof text !== "string") return invalid(at, `${expected}, got ${describe(text)}`)
  return text.startsWith(scheme)
    ? Either.right(text.slice(scheme.length).split("/"))
    : invalid(at, `${expected}, but it does not begin with ${scheme}`)
}

const full = (parts: ReadonlyArray<string>, at: string): Either.Either<Path, InvalidInput> => {
  const [trainingRunId = "", folder = "", name = ""] = parts
  if (parts.length !== 3) return invalid(at, `${expected}, but it has ${parts.length} parts`)
  const kind = kinds.get(folder)
  return kind === undefined
    ? invalid(at, `${expected}, but the middle part is none of these`)
    : make({ trainingRunId, kind, name }, at)
}

/**
 * From a text that somebody wrote: exactly three parts, case counts, nothing is trimmed.
 *
 * @since 0.1.0
 * @category constructors
 */
export const parse = (text: string, at = "path"): Either.Either<Path, InvalidInput> =>
  Either.flatMap(partsOf(text, at), (parts) => full(parts, at))

/**
 * From a text that a server gave: also two parts, which are sampler weights.
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
 * What a call was given, as a path that was checked.
 *
 * @since 0.1.0
 * @category constructors
 */
export const from = (input: Input, at = "path"): Either.Either<Path, InvalidInput> =>
  input instanceof Path ? make(input, at) : parse(input, at)

/**
 * The text of a checkpoint that a client is to load: what a server gave comes back here, so two parts are fine, too.
 *
 * @since 0.1.0
 * @category accessors
 */
export const textOf = (input: Input, at = "path"): Either.Either<string, InvalidInput> =>
  Either.map(input instanceof Path ? make(input, at) : fromServer(input, at), String)

/**
 * Does this text name a checkpoint of a server, and not e.g. a model of a hub?
 *
 * @since 0.1.0
 * @category guards
 */
export const isPathLike = (text: string): boolean => text.startsWith(scheme)
