/** Declares tools as TypeScript types, as Kimi K2.5 does. */
import * as Either from "effect/Either"
import * as Predicate from "effect/Predicate"
import type { ToolSpec } from "../../Message.ts"
import * as PythonJson from "./PythonJson.ts"

type Json = Readonly<Record<string, unknown>>
type Result<A> = Either.Either<A, string>

const indented = "  "

/** The definitions of one tool, and whether its parameters refer to themselves. */
interface Registry {
  readonly definitions: Map<string, Json>
  hasSelf: boolean
}

interface Type {
  /** The comment lines above a value of this type, each with its newline. */
  readonly comment: (indent: string) => string
  readonly text: (indent: string) => string
}

const record = (value: unknown): Json => (Predicate.isRecord(value) ? value : {})

const commented = (description: string, indent = ""): string =>
  description
    .split("\n")
    .map((line) => (line === "" ? "" : `${indent}// ${line}`))
    .join("\n")

const commentOf =
  (schema: Json, limits: ReadonlyArray<string> = []): Type["comment"] =>
  (indent) => {
    const description = schema["description"]
    const constraints = limits
      .filter((key) => key in schema)
      .toSorted()
      .map((key) => `${key}: ${PythonJson.str(schema[key])}`)
    return [
      ...(typeof description === "string" && description !== "" ? [commented(description, indent)] : []),
      ...(constraints.length > 0 ? [`${indent}// ${constraints.join(", ")}`] : []),
    ]
      .map((line) => `${line}\n`)
      .join("")
  }

const simple = (text: string): Type => ({ comment: () => "", text: () => text })

const limitsOf = (type: string): ReadonlyArray<string> =>
  type === "string"
    ? ["maxLength", "minLength", "pattern"]
    : type === "number" || type === "integer"
      ? ["maximum", "minimum"]
      : []

const unions: Readonly<Record<string, string>> = {
  string: "string",
  number: "number",
  integer: "number",
  boolean: "boolean",
  null: "null",
  object: "{}",
  array: "Array<any>",
}

const isInteger = (value: unknown) =>
  (typeof value === "number" && Number.isInteger(value)) || typeof value === "boolean"

const fits = (type: unknown, value: unknown): boolean => {
  switch (type) {
    case "string":
      return typeof value === "string"
    case "number":
      return typeof value === "number" || typeof value === "boolean"
    case "integer":
      return isInteger(value)
    case "boolean":
      return typeof value === "boolean"
    default:
      return true
  }
}

const enumOf = (schema: Json): Result<Type> => {
  const values: ReadonlyArray<unknown> = Array.isArray(schema["enum"]) ? schema["enum"] : []
  const { type } = schema
  const several: ReadonlyArray<unknown> = Array.isArray(type) ? type : [type]
  if (several.length > 2 || (several.length === 2 && !several.includes("null"))) {
    return Either.left(`an enum of the types ${PythonJson.repr(type)} is not supported`)
  }
  const only = several.length === 2 && several[0] === "null" ? several[1] : several[0]
  const bad = values.find((value) => value !== null && !fits(only, value))
  return bad === undefined
    ? Either.right({
        comment: commentOf(schema),
        text: () =>
          values.map((value) => (typeof value === "string" ? `"${value}"` : PythonJson.repr(value))).join(" | "),
      })
    : Either.left(`the value ${PythonJson.repr(bad)} of an enum is not of its type`)
}

const arrayOf = (schema: Json, registry: Registry): Result<Type> => {
  const { items } = schema
  const isGiven = items === true || (Predicate.isRecord(items) && Object.keys(items).length > 0)
  return Either.map(isGiven ? typeOf(items, registry) : Either.right(simple("any")), (item) => ({
    comment: commentOf(schema, ["minItems", "maxItems"]),
    text: (indent) => {
      const inner = indent + indented
      const comment = item.comment(inner)
      return comment === ""
        ? `Array<${item.text(indent)}>`
        : `Array<\n${comment}${inner}${item.text(inner)}\n${indent}>`
    },
  }))
}

const refOf = (schema: Json, registry: Registry): Result<Type> => {
  const ref = PythonJson.str(schema["$ref"])
  const comment = commentOf(schema)
  if (ref === "#") {
    registry.hasSelf = true
    return Either.right({ comment, text: () => "parameters" })
  }
  const name = ref.split("/").at(-1) ?? ""
  return ref.startsWith("#/$defs/") && registry.definitions.has(name)
    ? Either.right({ comment, text: () => name })
    : Either.left(`the reference ${ref} can't be resolved`)
}

const typeOf = (given: unknown, registry: Registry): Result<Type> => {
  if (typeof given === "boolean") return Either.right(simple(given ? "any" : "null"))
  const schema = record(given)
  if ("$ref" in schema) return refOf(schema, registry)
  if ("anyOf" in schema) {
    const types: ReadonlyArray<unknown> = Array.isArray(schema["anyOf"]) ? schema["anyOf"] : []
    return Either.map(Either.all(types.map((one) => typeOf(one, registry))), (all) => ({
      comment: commentOf(schema),
      text: (indent) => all.map((one) => one.text(indent)).join(" | "),
    }))
  }
  if ("enum" in schema) return enumOf(schema)
  const { type } = schema
  if (Array.isArray(type)) {
    const names = type.map((one) => unions[String(one)])
    return names.includes(undefined)
      ? Either.left(`unknown type in ${PythonJson.repr(type)}`)
      : Either.right({ comment: commentOf(schema), text: () => names.join(" | ") })
  }
  if (type === "object") return objectOf(schema, registry)
  if (type === "array") return arrayOf(schema, registry)
  if (typeof type === "string") {
    return Either.right({
      comment: commentOf(schema, limitsOf(type)),
      text: () => (type === "integer" ? "number" : type),
    })
  }
  return Object.keys(schema).length === 0
    ? Either.right(simple("any"))
    : Either.left(`a schema without a type: ${PythonJson.print(schema)}`)
}

interface Field {
  readonly name: string
  readonly type: Type
  readonly isOptional: boolean
  readonly fallback: unknown
}

const fieldText = ({ fallback, isOptional, name, type }: Field, indent: string): string => {
  const value =
    typeof fallback === "number" || typeof fallback === "boolean"
      ? PythonJson.repr(fallback)
      : PythonJson.print(fallback, PythonJson.readable)
  const comment = fallback === undefined || fallback === null ? "" : `${indent}// Default: ${value}\n`
  return `${type.comment(indent)}${comment}${indent}${name}${isOptional ? "?" : ""}: ${type.text(indent)}`
}

const byName = (one: Field, other: Field) => (one.name < other.name ? -1 : one.name > other.name ? 1 : 0)

const fieldsOf = (schema: Json, registry: Registry): Result<ReadonlyArray<Field>> => {
  const required: ReadonlyArray<unknown> = Array.isArray(schema["required"]) ? schema["required"] : []
  return Either.all(
    Object.entries(record(schema["properties"])).map(([name, property]) =>
      Either.map(typeOf(property, registry), (type) => ({
        name,
        type,
        isOptional: !required.includes(name),
        fallback: record(property)["default"],
      })),
    ),
  )
}

interface ObjectType extends Type {
  readonly fields: ReadonlyArray<Field>
}

const objectOf = (schema: Json, registry: Registry): Result<ObjectType> =>
  Either.gen(function* () {
    for (const [name, one] of Object.entries(record(schema["$defs"]))) registry.definitions.set(name, record(one))
    const { additionalProperties: more } = schema
    const other =
      more === undefined || more === null
        ? undefined
        : typeof more === "boolean"
          ? simple(more ? "any" : "never")
          : yield* typeOf(more, registry)
    const fields = yield* fieldsOf(schema, registry)
    return {
      fields,
      comment: commentOf(schema),
      text: (indent) => {
        const inner = indent + indented
        const lines = [
          ...fields.filter(({ isOptional }) => !isOptional).toSorted(byName),
          ...fields.filter(({ isOptional }) => isOptional).toSorted(byName),
        ].map((field) => fieldText(field, inner))
        if (other !== undefined) lines.push(`${inner}[k: string]: ${other.text(inner)}`)
        return lines.length === 0 ? "{}" : `{\n${lines.join(",\n")}\n${indent}}`
      },
    }
  })

const functionOf = ({ description, name, parameters }: ToolSpec): Result<string> =>
  Either.gen(function* () {
    const registry: Registry = { definitions: new Map(), hasSelf: false }
    const root = yield* objectOf(parameters, registry)
    const interfaces: Array<string> = []
    const { hasSelf } = registry
    if (hasSelf) {
      const lines = root.fields.map((field) => fieldText(field, indented)).join(",\n")
      interfaces.push(`interface parameters {${lines === "" ? "" : `\n${lines}\n`}}`)
    }
    // Definitions inside of definitions are not declared.
    const known = [...registry.definitions]
    for (const [key, schema] of known) {
      const type = yield* typeOf(schema, registry)
      const about = schema["description"]
      const comment = typeof about === "string" && about !== "" ? `${commented(about)}\n` : ""
      interfaces.push(`${comment}interface ${key} ${type.text("")}`)
    }
    return [
      interfaces.join("\n"),
      description === "" ? "" : commented(description),
      `type ${name} = (_: ${hasSelf ? "parameters" : root.text("")}) => any;`,
    ]
      .filter((text) => text !== "")
      .join("\n")
  })

/** Declares tools in a namespace; fails with the reason for schemas that the format can't express. */
export const declare = (tools: ReadonlyArray<ToolSpec>): Result<string> =>
  Either.map(
    Either.all(tools.map(functionOf)),
    (all) => `# Tools\n\n## functions\nnamespace functions {\n${all.join("\n")}\n}\n`,
  )
