/** The settings of a configuration, read from its schema: their names, types, defaults and meaning. */
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import * as AST from "effect/SchemaAST"
import { InvalidInput } from "effect-tinker/TinkerError"
import * as Problems from "./Problems.ts"

export interface Setting {
  /** E.g. `checkpoints.everySteps`. */
  readonly name: string
  /** E.g. `number`, `boolean`, or the allowed values as `a|b`. */
  readonly type: string
  readonly default: Option.Option<string>
  readonly description: Option.Option<string>
  readonly isRequired: boolean
}

export type Values = { readonly [key: string]: unknown }

/** Returns the settings of a struct, and those of the structs in it. */
export const of = (ast: AST.AST, prefix = "", isPartRequired = true): ReadonlyArray<Setting> => {
  const struct = structOf(ast)
  if (struct === undefined) return []
  return struct.from.propertySignatures.flatMap((property) => {
    const key = String(property.name)
    const type = withoutUndefined(property.type)
    const isRequired = isPartRequired && !property.isOptional
    const nested = of(type, `${prefix}${key}.`, isRequired)
    if (nested.length > 0) return nested
    const decoded = struct.to.propertySignatures.find(({ name }) => name === property.name) ?? property
    const fallback = Option.orElse(AST.getDefaultAnnotation(decoded), () => struct.defaultOf(property.name))
    return [
      {
        name: `${prefix}${key}`,
        type: typeOf(type),
        default: Option.map(fallback, (value) => (typeof value === "string" ? value : JSON.stringify(value))),
        description: AST.getDescriptionAnnotation(decoded),
        isRequired,
      },
    ]
  })
}

interface Struct {
  readonly from: AST.TypeLiteral
  readonly to: AST.TypeLiteral
  readonly defaultOf: (name: PropertyKey) => Option.Option<unknown>
}

const structOf = (ast: AST.AST): Struct | undefined => {
  if (AST.isTypeLiteral(ast)) return { from: ast, to: ast, defaultOf: () => Option.none() }
  if (!AST.isTransformation(ast) || !AST.isTypeLiteral(ast.from) || !AST.isTypeLiteral(ast.to)) return undefined
  const { from, to, transformation } = ast
  const fields = AST.isTypeLiteralTransformation(transformation) ? transformation.propertySignatureTransformations : []
  return {
    from,
    to,
    // The default of an optional setting is what its absence is decoded to.
    defaultOf: (name) =>
      Option.flatMap(Option.fromNullable(fields.find((field) => field.from === name)), ({ decode }) =>
        decode(Option.none()),
      ),
  }
}

const withoutUndefined = (ast: AST.AST): AST.AST =>
  AST.isUnion(ast) ? AST.Union.make(ast.types.filter((type) => !AST.isUndefinedKeyword(type))) : ast

const typeOf = (ast: AST.AST): string => {
  const encoded = AST.encodedAST(ast)
  if (AST.isUnion(encoded)) return encoded.types.map(typeOf).join("|")
  if (AST.isRefinement(encoded)) return typeOf(encoded.from)
  if (AST.isLiteral(encoded)) return String(encoded.literal)
  return AST.isNumberKeyword(encoded)
    ? "number"
    : AST.isBooleanKeyword(encoded)
      ? "boolean"
      : AST.isStringKeyword(encoded)
        ? "string"
        : "json"
}

/** Reads the text of a flag. Returns what is wrong with it. */
export const parse = ({ type }: Pick<Setting, "type">, text: string): Either.Either<unknown, string> => {
  const allowed = type.split("|")
  if (allowed.includes(text)) return Either.right(text === "null" ? null : text)
  if (allowed.includes("number")) {
    const value = Number(text)
    return text.trim() === "" || Number.isNaN(value)
      ? Either.left(`expected a ${type}, got ${text}`)
      : Either.right(value)
  }
  if (type === "boolean")
    return text === "true" || text === "false"
      ? Either.right(text === "true")
      : Either.left(`expected true or false, got ${text}`)
  if (type === "string") return Either.right(text)
  if (type !== "json") return Either.left(`expected ${allowed.join(" or ")}, got ${text}`)
  return Either.try({ try: () => JSON.parse(text) as unknown, catch: () => `expected JSON, got ${text}` })
}

/** Sets a setting by its name. */
export const assign = (values: Values, name: string, value: unknown): Values => {
  const dot = name.indexOf(".")
  if (dot < 0) return { ...values, [name]: value }
  const [key, below] = [name.slice(0, dot), name.slice(dot + 1)]
  const part = values[key]
  return { ...values, [key]: assign(Predicate.isRecord(part) ? part : {}, below, value) }
}

/** Returns the settings of both; those of `over` win. */
export const merge = (values: Values, over: Values): Values =>
  Object.entries(over).reduce<Values>((all, [key, value]) => {
    const before = all[key]
    return { ...all, [key]: Predicate.isRecord(before) && Predicate.isRecord(value) ? merge(before, value) : value }
  }, values)

/** Decodes settings. One that does not exist is an error that names the nearest one. */
export const decode = <A, I>(
  schema: Schema.Schema<A, I>,
  values: unknown,
  path: string,
): Either.Either<A, InvalidInput> => {
  const unknown = firstUnknown(schema.ast, values)
  if (unknown !== undefined)
    return Either.left(
      new InvalidInput({
        path: `${path}: ${unknown.name}`,
        problem: `there is no such setting${suggestion(unknown.name, unknown.known)}`,
      }),
    )
  return Either.mapLeft(
    Schema.decodeUnknownEither(schema, { onExcessProperty: "error", errors: "all" })(values),
    (error) => new InvalidInput({ path, problem: Problems.text(error) }),
  )
}

const firstUnknown = (
  ast: AST.AST,
  values: unknown,
  prefix = "",
): { readonly name: string; readonly known: ReadonlyArray<string> } | undefined => {
  const struct = structOf(ast)
  if (struct === undefined || !Predicate.isRecord(values)) return undefined
  const known = new Map(struct.from.propertySignatures.map(({ name, type }) => [String(name), withoutUndefined(type)]))
  for (const [key, value] of Object.entries(values)) {
    const type = known.get(key)
    if (type === undefined)
      return { name: `${prefix}${key}`, known: [...known.keys()].map((name) => `${prefix}${name}`) }
    const below = firstUnknown(type, value, `${prefix}${key}.`)
    if (below !== undefined) return below
  }
  return undefined
}

/** Returns a question for the name that was probably meant, or nothing if none is near. */
export const suggestion = (name: string, known: ReadonlyArray<string>): string => {
  const plain = (text: string) => text.toLowerCase().replaceAll(/[-_]/g, "")
  const [best] = known
    .map((candidate) => ({ candidate, distance: distance(plain(name), plain(candidate)) }))
    .toSorted((a, b) => a.distance - b.distance)
  return best !== undefined && best.distance <= Math.max(2, name.length / 3) ? `; did you mean ${best.candidate}?` : ""
}

/** The number of letters to insert, delete or replace. */
const distance = (a: string, b: string): number => {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1))
    }
    row = next
  }
  return row[b.length] ?? 0
}
