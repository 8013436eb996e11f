/**
 * Converts between TypeScript values and JSON bodies. Names change between camelCase and snake_case, and each field
 * defines its own wire form when it is missing. Nulls are not stripped globally.
 *
 * Request fields: a plain schema is required, `omitted` leaves the key out, `withDefault` always sends a value,
 * `constant` is sent but is not part of the input, and `Schema.NullOr` is for fields where null has a meaning. Response
 * fields: `maybe` and `orElse`.
 *
 * @since 0.1.0
 */
import type { LazyArbitrary } from "effect/Arbitrary"
import * as DateTime from "effect/DateTime"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import type * as SchemaAST from "effect/SchemaAST"
import { describe } from "./Invalid.ts"
import { lazy } from "../util/Lazy.ts"

type Snake<S extends string> = S extends `${infer Head}${infer Tail}`
  ? `${Head extends Lowercase<Head> ? Head : `_${Lowercase<Head>}`}${Snake<Tail>}`
  : S

/** The fields of a struct with snake_case wire names. */
export type Renamed<Fields extends Schema.Struct.Fields> = {
  readonly [K in keyof Fields]: Fields[K] extends Schema.PropertySignature<
    infer TypeToken,
    infer A,
    infer _Key,
    infer EncodedToken,
    infer I,
    infer HasDefault,
    infer R
  >
    ? Schema.PropertySignature<TypeToken, A, Snake<K & string>, EncodedToken, I, HasDefault, R>
    : Fields[K] extends Schema.Schema<infer A, infer I, infer R>
      ? Schema.PropertySignature<":", A, Snake<K & string>, ":", I, false, R>
      : never
}

type AnySignature = Schema.PropertySignature<
  Schema.PropertySignature.Token,
  unknown,
  PropertyKey,
  Schema.PropertySignature.Token,
  unknown,
  boolean
>

/** Converts a name to snake_case: `promptLogprobsLastN` → `prompt_logprobs_last_n`. */
export const snakeCase = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

/** A JSON object with snake_case keys on the wire and camelCase keys in the program. */
export const struct = <const Fields extends Schema.Struct.Fields>(fields: Fields): Schema.Struct<Renamed<Fields>> => {
  const renamed: Record<string, AnySignature> = {}
  for (const [name, field] of Object.entries(fields)) {
    const signature = Schema.isPropertySignature(field) ? field : Schema.propertySignature(Schema.make(field.ast))
    renamed[name] = Schema.fromKey(signature as AnySignature, snakeCase(name))
  }
  // The loop does for values what `Renamed` does for types, which TypeScript cannot infer through `entries`.
  return Schema.Struct(renamed) as unknown as Schema.Struct<Renamed<Fields>>
}

const given = <A>(value: Option.Option<A | undefined>): Option.Option<A> =>
  Option.filter(value, (value) => value !== undefined)

/** An optional request field whose key is omitted if it is missing. A null from another client counts as missing. */
export const omitted = <A, I>(schema: Schema.Schema<A, I>) =>
  Schema.optionalToOptional(Schema.NullOr(schema), Schema.UndefinedOr(Schema.typeSchema(schema)), {
    decode: (value) => Option.filter(value, (value) => value !== null),
    encode: given,
  })

/** An optional request field that is sent with a default if it is missing. */
export const withDefault = <A, I>(schema: Schema.Schema<A, I>, value: NoInfer<A>) =>
  Schema.optionalToOptional(schema, Schema.UndefinedOr(Schema.typeSchema(schema)), {
    decode: Option.orElseSome(() => value),
    encode: (input) => Option.orElseSome(given(input), () => value),
  })

/**
 * A field that is always sent and is not part of the input. When decoding, it may be missing or null, but not
 * different.
 */
export const constant = <const L extends string | number>(literal: L) =>
  Schema.optionalToOptional(Schema.NullOr(Schema.Literal(literal)), Schema.Undefined, {
    decode: () => Option.none(),
    encode: () => Option.some(literal),
  })

/** A field that exists only in the program: never sent and never read. */
export const local = <A, I>(schema: Schema.Schema<A, I>) =>
  Schema.optionalToOptional(Schema.Unknown, Schema.UndefinedOr(Schema.typeSchema(schema)), {
    decode: () => Option.none(),
    encode: () => Option.none(),
  })

/** Requires exactly one of several optional fields. */
export const exactlyOne =
  <const Name extends string>(...names: ReadonlyArray<Name>) =>
  <A extends { readonly [K in Name]?: unknown }, I>(schema: Schema.Schema<A, I>): Schema.filter<Schema.Schema<A, I>> =>
    schema.pipe(
      Schema.filter((value) =>
        names.filter((name) => value[name] !== undefined).length === 1
          ? undefined
          : `Expected exactly one of ${names.join(" and ")}`,
      ),
    )

/** A response field that is none if it is absent or null. */
export const maybe = <A, I>(schema: Schema.Schema<A, I>) =>
  Schema.optionalWith(schema, { as: "Option", nullable: true })

/** A response field with a default if it is absent or null. */
export const orElse = <A, I>(schema: Schema.Schema<A, I>, value: NoInfer<A>) =>
  Schema.optionalWith(schema, { default: () => value, nullable: true })

/** A string with known values. Other values are kept, so that a new one does not break a client. */
export const open = <const Known extends string>(
  ..._known: ReadonlyArray<Known>
): Schema.SchemaClass<Known | (string & {}), string> => Schema.make<Known | (string & {}), string>(Schema.String.ast)

/** A JSON value. */
export type Json = null | boolean | number | string | ReadonlyArray<Json> | JsonObject

/** A JSON object; a key with an undefined value counts as absent. */
export interface JsonObject {
  readonly [key: string]: Json | undefined
}

interface Found {
  readonly path: ReadonlyArray<PropertyKey>
  readonly value: unknown
}

/** Finds the first value that JSON cannot represent, e.g. NaN, a bigint or a Date. */
const unsayable = (value: unknown, path: ReadonlyArray<PropertyKey>): Found | undefined => {
  if (value === null || typeof value === "string" || typeof value === "boolean") return undefined
  if (typeof value === "number" && Number.isFinite(value)) return undefined
  if (!isPlain(value)) return { path, value }
  for (const [key, member] of Object.entries(value)) {
    if (member === undefined && !Array.isArray(value)) continue
    const found = unsayable(member, [...path, Array.isArray(value) ? Number(key) : key])
    if (found !== undefined) return found
  }
  return undefined
}

const isPlain = (value: unknown): value is object => {
  if (typeof value !== "object" || value === null) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return Array.isArray(value) || prototype === Object.prototype || prototype === null
}

// The value is checked and returned without copying, because a copy would lose a key named `__proto__`.
const json = <A extends Json>(
  identifier: string,
  is: (value: unknown) => boolean,
  arbitrary: LazyArbitrary<A>,
): Schema.Schema<A> => {
  const check = () => (value: unknown, _: unknown, ast: SchemaAST.Declaration) => {
    if (!is(value)) return ParseResult.fail(new ParseResult.Type(ast, value))
    const found = unsayable(value, [])
    return found === undefined
      ? ParseResult.succeed(value as A)
      : ParseResult.fail(
          found.path.reduceRight<ParseResult.ParseIssue>(
            (issue, key) => new ParseResult.Pointer(key, value, issue),
            new ParseResult.Type(ast, found.value, `Expected a JSON value, got ${describe(found.value)}`),
          ),
        )
  }
  const schema: Schema.Schema<A> = Schema.declare([], { decode: check, encode: check })
  return schema.annotations({ identifier, arbitrary: () => arbitrary })
}

/** A value that JSON represents without loss: no NaN, no bigint, no Date. */
export const Json: Schema.Schema<Json> = lazy(() =>
  json(
    "Json",
    () => true,
    (fc) => fc.jsonValue().map((value) => value as Json),
  ),
)

/** Free-form data of the user or the server. */
export const JsonObject: Schema.Schema<JsonObject> = lazy(() =>
  json(
    "JsonObject",
    (value) => isPlain(value) && !Array.isArray(value),
    (fc) => fc.dictionary(fc.string(), fc.jsonValue()).map((value) => value as JsonObject),
  ),
)

/** The last member of a union by `type`: a kind that a newer server may send, with its complete content. */
export const unknownType = (...known: ReadonlyArray<string>) => {
  const news = JsonObject.pipe(
    Schema.filter((value) => typeof value["type"] === "string" && !known.includes(value["type"]), {
      identifier: "NewKind",
      arbitrary: () => (fc) => fc.record({ type: fc.string().filter((type) => !known.includes(type)) }),
    }),
  )
  return Schema.transform(news, Schema.Struct({ type: Schema.Literal("unknown"), value: Schema.typeSchema(news) }), {
    strict: true,
    decode: (value) => ({ type: "unknown" as const, value }),
    encode: ({ value }) => value,
  })
}

/**
 * A point in time. Decoding is lenient: without a zone it is UTC, a space may replace the `T`, and digits below the
 * millisecond are dropped. Do not use it for cursors, which must be sent back unchanged.
 */
export const Timestamp: Schema.Schema<DateTime.Utc, string> = lazy(() =>
  Schema.transformOrFail(
    Schema.String.pipe(Schema.pattern(/^\d{4}-\d{2}-\d{2}/, { message: () => "Expected an ISO 8601 time" })),
    Schema.DateTimeUtcFromSelf.annotations({
      arbitrary: () => (fc) =>
        fc
          .date({ min: new Date("0000-01-01"), max: new Date("9999-12-31"), noInvalidDate: true })
          .map(DateTime.unsafeFromDate),
    }),
    {
      strict: true,
      decode: (text, _options, ast) => {
        const iso = text.replace(/^(\S+) /, "$1T").replace(/(\.\d{3})\d+/, "$1")
        const zoned = /T\d{2}:\d{2}(:\d{2}(\.\d+)?)?$/.test(iso) ? `${iso}Z` : iso
        return ParseResult.fromOption(
          DateTime.make(zoned).pipe(Option.map(DateTime.toUtc)),
          () => new ParseResult.Type(ast, text, "Expected an ISO 8601 time"),
        )
      },
      encode: (time) => ParseResult.succeed(DateTime.formatIso(time).replace(".000Z", "Z")),
    },
  ).annotations({ identifier: "Timestamp" }),
)

const Metric = lazy(() =>
  Schema.Number.pipe(Schema.filter((value) => Math.abs(value) !== Infinity || "Expected a finite number or NaN")),
)

/** Named numbers. NaN is null on the wire, because JSON has no NaN. Infinities cannot be represented. */
export const Metrics = lazy(() =>
  Schema.Record({
    key: Schema.String,
    value: Schema.transform(Schema.NullOr(Schema.Number), Metric, {
      strict: true,
      decode: (value) => value ?? Number.NaN,
      encode: (value) => (Number.isNaN(value) ? null : value),
    }),
  }),
)
