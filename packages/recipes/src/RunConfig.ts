/**
 * Reads the configuration of a recipe from a JSON or YAML file and from flags of the command line. Flags replace settings
 * of the file, which replace defaults. A setting that does not exist is refused with the name that was probably meant.
 *
 * @since 0.1.0
 */
import type { PlatformError } from "@effect/platform/Error"
import * as FileSystem from "@effect/platform/FileSystem"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import type * as Schema from "effect/Schema"
import { InvalidInput } from "effect-tinker/TinkerError"
import * as Settings from "./internal/Settings.ts"

/**
 * A setting of a recipe.
 *
 * @since 0.1.0
 * @category models
 */
export type Setting = Settings.Setting

/**
 * Returns the settings of a configuration, those of its parts with a dot in their names.
 *
 * @since 0.1.0
 * @category getters
 */
export const settings = (schema: Schema.Schema.AnyNoContext): ReadonlyArray<Setting> => Settings.of(schema.ast)

/**
 * Describes the flags of a configuration, one in each line: its name, type, default and meaning.
 *
 * @since 0.1.0
 * @category getters
 */
export const help = (schema: Schema.Schema.AnyNoContext): string => {
  const rows = [
    { flag: "--config <file>", text: "Reads settings from a .json, .yaml or .yml file." },
    ...settings(schema).map(({ default: fallback, description, isRequired, name, type }) => ({
      flag: `${flagOf(name)}${type === "boolean" ? "" : ` <${type}>`}`,
      text: [
        ...Option.toArray(description),
        ...Option.toArray(Option.map(fallback, (value) => `Default: ${value}.`)),
        ...(isRequired ? ["Required."] : []),
      ].join(" "),
    })),
    { flag: "--help", text: "Shows this text." },
  ]
  const width = Math.min(44, Math.max(...rows.map(({ flag }) => flag.length)))
  return rows
    .map(({ flag, text }) =>
      flag.length > width ? `  ${flag}\n  ${" ".repeat(width)}  ${text}` : `  ${flag.padEnd(width)}  ${text}`,
    )
    .map((line) => line.trimEnd())
    .join("\n")
}

/** `everySteps` is written `every-steps` on the command line. */
const flagOf = (name: string): string => `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`

/**
 * The meaning of the arguments of a command line.
 *
 * @since 0.1.0
 * @category models
 */
export interface Flags {
  /** The settings, as a part of a configuration. */
  readonly values: Settings.Values
  /** The file that `--config` names. */
  readonly file: Option.Option<string>
  /** Whether `--help` was given. */
  readonly isHelp: boolean
  /** The arguments that are no flags, and everything after `--`. */
  readonly rest: ReadonlyArray<string>
}

/**
 * Reads flags: `--learning-rate 1e-4`, `--batch-size=8`, `--normalize-advantages`, `--no-normalize-advantages`, and
 * `--checkpoints.every-steps 20` for a part of the configuration.
 *
 * @example
 * ```ts
 * import { RunConfig, Supervised } from "@effect-tinker/recipes"
 * import { Either } from "effect"
 *
 * const read = (...argv: ReadonlyArray<string>) =>
 *   Either.match(RunConfig.parseFlags(Supervised.Config, argv), {
 *     onLeft: ({ message }) => message,
 *     onRight: ({ values }) => JSON.stringify(values),
 *   })
 *
 * console.log(read("--learning-rate", "1e-4", "--checkpoints.every-steps=5"))
 * // → {"learningRate":0.0001,"checkpoints":{"everySteps":5}}
 * console.log(read("--lerning-rate", "1e-4"))
 * // → --lerning-rate: there is no such setting; did you mean --learning-rate?
 * ```
 *
 * @since 0.1.0
 * @category reading
 */
export const parseFlags = (
  schema: Schema.Schema.AnyNoContext,
  argv: ReadonlyArray<string>,
): Either.Either<Flags, InvalidInput> => {
  const known = new Map(settings(schema).map((setting) => [flagOf(setting.name), setting]))
  const rest: Array<string> = []
  let values: Settings.Values = {}
  let file = Option.none<string>()
  let isHelp = false
  for (let at = 0; at < argv.length; at++) {
    const argument = argv[at] ?? ""
    if (argument === "--") {
      rest.push(...argv.slice(at + 1))
      break
    }
    if (!argument.startsWith("--")) {
      rest.push(argument)
      continue
    }
    const equals = argument.indexOf("=")
    const flag = equals < 0 ? argument : argument.slice(0, equals)
    const inline = equals < 0 ? undefined : argument.slice(equals + 1)
    if (flag === "--help") {
      isHelp = true
      continue
    }
    const name = normalized(flag)
    const setting = known.get(name)
    const negated = setting === undefined && name.startsWith("--no-") ? known.get(`--${name.slice(5)}`) : undefined
    const next = argv[at + 1]
    if (negated?.type === "boolean" && inline === undefined) {
      values = Settings.assign(values, negated.name, false)
      continue
    }
    if (setting === undefined && flag !== "--config") {
      return invalid(
        flag,
        `there is no such setting${Settings.suggestion(flag, [...known.keys(), "--config", "--help"])}`,
      )
    }
    const isSwitch = setting?.type === "boolean" && inline === undefined && next !== "true" && next !== "false"
    const text = isSwitch ? "true" : inline
    const value = text ?? next
    if (value === undefined || (text === undefined && value.startsWith("--"))) return invalid(flag, "needs a value")
    if (text === undefined) at++
    if (setting === undefined) {
      file = Option.some(value)
      continue
    }
    const parsed = Settings.parse(setting, value)
    if (Either.isLeft(parsed)) return invalid(flag, parsed.left)
    values = Settings.assign(values, setting.name, parsed.right)
  }
  return Either.right({ values, file, isHelp, rest })
}

const invalid = (path: string, problem: string) => Either.left(new InvalidInput({ path, problem }))

/** Accepts `--learningRate` and `--learning_rate` as well. */
const normalized = (flag: string): string => `--${flagOf(flag.slice(2)).slice(2).replaceAll("_", "-")}`

/**
 * Reads the text of a configuration file. The ending of its name decides the format: `.json`, `.yaml` or `.yml`.
 *
 * @since 0.1.0
 * @category reading
 */
export const parseFile = (name: string, text: string): Effect.Effect<Settings.Values, InvalidInput> =>
  Effect.gen(function* () {
    const ending = /\.(json|ya?ml)$/i.exec(name)?.[1]?.toLowerCase()
    if (ending === undefined) return yield* invalid(name, "expected a name that ends in .json, .yaml or .yml")
    const value: unknown = yield* Effect.tryPromise({
      // A program without YAML files does not load the parser.
      try: async () => (ending === "json" ? JSON.parse(text) : (await import("yaml")).parse(text)),
      catch: (cause) =>
        new InvalidInput({ path: name, problem: cause instanceof Error ? cause.message : String(cause), cause }),
    })
    return Predicate.isRecord(value) ? value : yield* invalid(name, "expected an object of settings")
  })

/**
 * The request in the arguments of a program: its help, or a configuration.
 *
 * @since 0.1.0
 * @category models
 */
export type Loaded<I> =
  | { readonly _tag: "Help"; readonly text: string }
  | {
      readonly _tag: "Config"
      /** As a recipe takes it: without the defaults. */
      readonly config: I
      /** The arguments that are no flags. */
      readonly rest: ReadonlyArray<string>
    }

/**
 * Reads a configuration from arguments and from the file that `--config` names. Everything is checked, so that nothing
 * was sent when a setting is wrong.
 *
 * @since 0.1.0
 * @category reading
 */
export const load = <A, I>(
  schema: Schema.Schema<A, I>,
  argv: ReadonlyArray<string>,
): Effect.Effect<Loaded<I>, InvalidInput | PlatformError, FileSystem.FileSystem> =>
  Effect.gen(function* () {
    const flags = yield* parseFlags(schema, argv)
    if (flags.isHelp) return { _tag: "Help", text: help(schema) } as const
    const { file, rest, values } = flags
    const base = yield* Option.match(file, {
      onNone: () => Effect.succeed<Settings.Values>({}),
      onSome: (path) =>
        Effect.flatMap(FileSystem.FileSystem, (files) =>
          Effect.flatMap(files.readFileString(path), (text) => parseFile(path, text)),
        ),
    })
    const merged = Settings.merge(base, values)
    yield* Settings.decode(
      schema,
      merged,
      Option.getOrElse(file, () => "flags"),
    )
    // Just decoded.
    return { _tag: "Config", config: merged as I, rest } as const
  })
