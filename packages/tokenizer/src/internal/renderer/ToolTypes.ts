/** Declares tools as TypeScript types, as Harmony does. */
import * as Predicate from "effect/Predicate"
import type { ToolSpec } from "../../Message.ts"
import * as PythonJson from "./PythonJson.ts"

type Json = Readonly<Record<string, unknown>>

const record = (value: unknown): Json => (Predicate.isRecord(value) ? value : {})
const list = (value: unknown): ReadonlyArray<unknown> => (Array.isArray(value) ? value : [])
const entriesOf = (schema: Json) => Object.entries(record(schema["properties"]))

const union = (schemas: unknown): string =>
  list(schemas)
    .map((one) => typeOf(record(one)))
    .join(" | ")

const baseOf = (schema: Json): string => {
  switch (schema["type"]) {
    case "string":
      return "string"
    case "number":
    case "integer":
      return "number"
    case "boolean":
      return "boolean"
    case "array":
      return `${typeOf(record(schema["items"]))}[]`
    case "object":
      return inline(schema)
    default:
      return "any"
  }
}

const typeOf = (schema: Json): string => {
  if ("oneOf" in schema) return union(schema["oneOf"])
  if ("anyOf" in schema) return union(schema["anyOf"])
  if (Array.isArray(schema["type"])) return union(schema["type"].map((type) => ({ type })))
  if (schema["type"] === "string" && "enum" in schema)
    return list(schema["enum"])
      .map((one) => PythonJson.print(one))
      .join(" | ")
  return baseOf(schema) + (schema["nullable"] === true ? " | null" : "")
}

const mark = (schema: Json, key: string) => (list(schema["required"]).includes(key) ? "" : "?")

const inline = (schema: Json): string =>
  `{ ${entriesOf(schema)
    .map(([key, value]) => `${key}${mark(schema, key)}: ${typeOf(record(value))}`)
    .join(", ")} }`

const isSaid = (value: unknown) => value !== undefined && value !== null && value !== ""

const commentsOf = (schema: Json): ReadonlyArray<string> => [
  ...(isSaid(schema["title"]) ? [String(schema["title"]), ""] : []),
  ...(isSaid(schema["description"]) ? [String(schema["description"])] : []),
  ...(list(schema["examples"]).length > 0 ? ["Examples:"] : []),
  ...list(schema["examples"]).map((example) => `- ${PythonJson.print(example)}`),
]

const parametersOf = (schema: Json): string => {
  if (schema["type"] !== "object" || entriesOf(schema).length === 0) return "()"
  return [
    isSaid(schema["description"]) ? `(_: // ${String(schema["description"])}` : "(_:",
    "{",
    ...entriesOf(schema).flatMap(([key, value]) => {
      const property = record(value)
      const fallback = "default" in property ? ` // default: ${PythonJson.print(property["default"])}` : ""
      return [
        ...commentsOf(property).map((comment) => `// ${comment}`),
        `${key}${mark(schema, key)}: ${typeOf(property)},${fallback}`,
      ]
    }),
    "})",
  ].join("\n")
}

export const declarationOf = ({ description, name, parameters }: ToolSpec): string =>
  `${description === "" ? "" : `// ${description}\n`}type ${name} = ${parametersOf(record(parameters))} => any;`
