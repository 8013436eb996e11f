/**
 * Brings a command line into the order that the parser expects. Options may stand anywhere after their command, those of
 * the program anywhere at all, in every notation of the official command: `--name value`, `--name=value`, `-n value`,
 * `-nvalue`. Unknown names are refused with the nearest known one.
 */
import type * as HelpDoc from "@effect/cli/HelpDoc"
import type * as Usage from "@effect/cli/Usage"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import { UsageError } from "./Failure.ts"

/** A command or a group of commands. */
export interface Node {
  readonly name: string
  readonly description: string
  readonly usage: Usage.Usage
  readonly help: HelpDoc.HelpDoc
  readonly children: ReadonlyArray<Node>
}

/** An option. */
export interface Flag {
  /** The name that the parser gets. */
  readonly name: string
  readonly names: ReadonlyArray<string>
  /** The type of its value, or the possible values separated by `|`; none if it takes no value. */
  readonly values: Option.Option<string>
}

/** An argument without a name. */
export interface Positional {
  readonly name: string
  readonly values: Option.Option<string>
  readonly isRequired: boolean
  readonly isRepeated: boolean
}

/** The options that every command has. */
export const builtIn: ReadonlyArray<Flag> = [
  { name: "--help", names: ["--help", "-h"], values: Option.none() },
  { name: "--version", names: ["--version"], values: Option.none() },
  { name: "--wizard", names: ["--wizard"], values: Option.none() },
]

interface Found {
  readonly named: Usage.Named
  readonly isOptional: boolean
  readonly isRepeated: boolean
}

const walk = (usage: Usage.Usage, isOptional = false, isRepeated = false): ReadonlyArray<Found> => {
  switch (usage._tag) {
    case "Named":
      return [{ named: usage, isOptional, isRepeated }]
    case "Optional":
      return walk(usage.usage, true, isRepeated)
    case "Repeated":
      return walk(usage.usage, true, true)
    case "Concat":
    case "Alternation":
      return [...walk(usage.left, isOptional, isRepeated), ...walk(usage.right, isOptional, isRepeated)]
    case "Empty":
    case "Mixed":
      return []
  }
}

/** The options of a command. */
export const flagsOf = (node: Node): ReadonlyArray<Flag> =>
  walk(node.usage).flatMap(({ named: { acceptedValues, names } }) => {
    const name = names.find((name) => name.startsWith("--"))
    return name === undefined ? [] : [{ name, names, values: acceptedValues }]
  })

/** The arguments of a command without a name. */
export const positionalsOf = (node: Node): ReadonlyArray<Positional> =>
  walk(node.usage).flatMap(({ isOptional, isRepeated, named: { acceptedValues, names } }) => {
    const name = /^<(.+)>$/.exec(names[0] ?? "")?.[1]
    return name === undefined
      ? []
      : [{ name: name.toUpperCase(), values: acceptedValues, isRequired: !isOptional, isRepeated }]
  })

/** The number of letters to change, add, remove, or swap with the next one. */
const distance = (a: string, b: string): number => {
  let before: Array<number> = []
  let row = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const changed = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      const swapped = isSwap ? (before[j - 2] ?? 0) + 1 : changed
      next.push(Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, changed, swapped))
    }
    before = row
    row = next
  }
  return row[b.length] ?? 0
}

/** Asks whether the nearest known name was meant, if one is near. */
export const suggestion = (name: string, known: ReadonlyArray<string>): string => {
  const near = known
    .map((candidate) => ({ candidate, far: distance(name, candidate) }))
    .filter(({ candidate, far }) => far <= Math.min(2, Math.floor(candidate.replace(/^-+/, "").length / 2)))
    .toSorted((a, b) => a.far - b.far)[0]
  return near === undefined ? "" : ` Did you mean '${near.candidate}'?`
}

/** The usage line of a command. */
export const usageOf = (path: ReadonlyArray<Node>): { readonly line: string; readonly command: string } => {
  const command = path.map(({ name }) => name).join(" ")
  const node = path.at(-1)
  if (node === undefined || node.children.length > 0) return { command, line: `${command} [OPTIONS] COMMAND [ARGS]...` }
  const rest = positionalsOf(node).map(({ isRepeated, isRequired, name }) =>
    isRepeated ? `[${name}]...` : isRequired ? name : `[${name}]`,
  )
  return { command, line: [command, "[OPTIONS]", ...rest].join(" ") }
}

/** Finds what is wrong with a value. */
const problemWith = (label: string, value: string, values: Option.Option<string>): string | undefined => {
  const type = Option.getOrElse(values, () => "")
  if (type === "integer" && !/^[+-]?\d+$/.test(value))
    return `Invalid value for ${label}: '${value}' is not a valid integer.`
  const choices = type.split("|").map((choice) => choice.trim())
  return choices.length > 1 && !choices.includes(value)
    ? `Invalid value for ${label}: '${value}' is not one of ${choices.map((choice) => `'${choice}'`).join(", ")}.`
    : undefined
}

/** A command line in order. */
export interface Normalized {
  readonly args: ReadonlyArray<string>
  readonly path: ReadonlyArray<Node>
  /** The action: parse the arguments and run the command, or show its help, on purpose or because it lacks a command. */
  readonly intent: "run" | "help" | "usage"
  /** Whether one of the given options of the program is set. */
  readonly has: (flag: string) => boolean
}

/** Brings a command line into order, or says what is wrong with it. */
export const normalize = (root: Node, argv: ReadonlyArray<string>): Either.Either<Normalized, UsageError> => {
  const path: Array<Node> = [root]
  const here = (): Node => path.at(-1) ?? root
  const fail = (message: string, of: ReadonlyArray<Node> = path) =>
    Either.left(new UsageError({ message, usage: Option.some(usageOf(of)) }))

  const rootOptions: Array<string> = []
  const ownOptions: Array<string> = []
  const positionals: Array<string> = []
  const given = new Set<string>()
  const rootFlags = flagsOf(root)
  let isLiteral = false

  for (let at = 0; at < argv.length; at++) {
    const token = argv[at] ?? ""
    if (!isLiteral && token === "--") {
      isLiteral = true
      continue
    }
    if (isLiteral || !token.startsWith("-") || token === "-") {
      const { children } = here()
      if (children.length === 0) {
        positionals.push(token)
        continue
      }
      const child = children.find(({ name }) => name === token)
      if (child === undefined)
        return fail(
          `No such command '${token}'.${suggestion(
            token,
            children.map(({ name }) => name),
          )}`,
        )
      path.push(child)
      continue
    }
    const own = flagsOf(here())
    const known = [...own, ...rootFlags, ...builtIn]
    // One long option, or several short ones of which the last may carry its value.
    let rest: string | undefined = token
    while (rest !== undefined) {
      const isLong: boolean = rest.startsWith("--")
      const equals: number = isLong ? rest.indexOf("=") : -1
      const name: string = isLong ? (equals < 0 ? rest : rest.slice(0, equals)) : rest.slice(0, 2)
      const attached: string | undefined = isLong
        ? equals < 0
          ? undefined
          : rest.slice(equals + 1)
        : rest.length > 2
          ? rest.slice(2).replace(/^=/, "")
          : undefined
      const flag = known.find(({ names }) => names.includes(name))
      if (flag === undefined)
        return fail(
          `No such option '${name}'.${suggestion(
            name,
            known.flatMap(({ names }) => names),
          )}`,
        )
      given.add(flag.name)
      const bucket = path.length > 1 && own.includes(flag) ? ownOptions : rootOptions
      rest = undefined
      if (Option.isSome(flag.values)) {
        const value = attached ?? argv[++at]
        if (value === undefined)
          return Either.left(new UsageError({ message: `Option '${name}' requires an argument.` }))
        const label = flag.names
          .toSorted((a, b) => b.length - a.length)
          .map((name) => `'${name}'`)
          .join(" / ")
        const problem = problemWith(label, value, flag.values)
        if (problem !== undefined) return fail(problem, bucket === rootOptions ? [root] : path)
        bucket.push(flag.name, value)
      } else if (attached === undefined) bucket.push(flag.name)
      else if (isLong) return fail(`Option '${name}' does not take a value.`)
      else {
        bucket.push(flag.name)
        rest = `-${attached}`
      }
    }
  }

  const names = path.slice(1).map(({ name }) => name)
  const has = (flag: string) => given.has(flag)
  if (has("--help")) return Either.right({ args: [], path, intent: "help", has })
  if (has("--version")) return Either.right({ args: ["--version"], path, intent: "run", has })
  if (has("--wizard")) return Either.right({ args: [...names, "--wizard"], path, intent: "run", has })
  if (here().children.length > 0) return Either.right({ args: [], path, intent: "usage", has })
  const wanted = positionalsOf(here())
  const missing = wanted.find(({ isRequired }, index) => isRequired && index >= positionals.length)
  if (missing !== undefined) return fail(`Missing argument '${missing.name}'.`)
  const extra = wanted.some(({ isRepeated }) => isRepeated) ? [] : positionals.slice(wanted.length)
  if (extra.length > 0) return fail(`Got unexpected extra argument${extra.length > 1 ? "s" : ""} (${extra.join(" ")})`)
  for (const [index, { name, values }] of wanted.entries()) {
    const value = positionals[index]
    const problem = value === undefined ? undefined : problemWith(`'${name}'`, value, values)
    if (problem !== undefined) return fail(problem)
  }
  return Either.right({
    args: [...rootOptions, ...names, ...ownOptions, ...(positionals.length > 0 ? ["--", ...positionals] : [])],
    path,
    intent: "run",
    has,
  })
}
