/**
 * How a TypeScript value becomes a JSON body and back: names change between camelCase and snake_case, and each field
 * says by itself what stands on the wire when it is not given. Nothing strips nulls globally.
 *
 * Requests: a plain schema is required, `omitted` leaves the key away, `withDefault` always sends something,
 * `constant` is sent and never asked for, `Schema.NullOr` where null means something. Responses: `maybe` and `orElse`.
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

/** The fields of a struct whose wire names are in snake_case. */
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

/** `promptLogprobsLastN` → `prompt_logprobs_last_n`. */
export const snakeCase = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

/** A JSON object with snake_case keys, seen from the program with camelCase keys. */
export const struct = <const Fields extends Schema.Struct.Fields>(fields: Fields): Schema.Struct<Renamed<Fields>> => {
  const renamed: Record<string, AnySignature> = {}
  for (const [name, field] of Object.entries(fields)) {
    const signature = Schema.isPropertySignature(field) ? field : Schema.propertySignature(Schema.make(field.ast))
    renamed[name] = Schema.fromKey(signature as AnySignature, snakeCase(name))
  }
  // The loop does to the values what `Renamed` does to the types; TypeScript can't follow it through `entries`.
  return Schema.Struct(renamed) as unknown as Schema.Struct<Renamed<Fields>>
}

const given = <A>(value: Option.Option<A | undefined>): Option.Option<A> =>
  Option.filter(value, (value) => value !== undefined)

/** Request field: may be left out; then the key is absent on the wire. A null from another client counts as absent. */
export const omitted = <A, I>(schema: Schema.Schema<A, I>) =>
  Schema.optionalToOptional(Schema.NullOr(schema), Schema.UndefinedOr(Schema.typeSchema(schema)), {
    decode: (value) => Option.filter(value, (value) => value !== null),
    encode: given,
  })

/** Request field: may be left out; the default is sent then. */
export const withDefault = <A, I>(schema: Schema.Schema<A, I>, value: NoInfer<A>) =>
  Schema.optionalToOptional(schema, Schema.UndefinedOr(Schema.typeSchema(schema)), {
    decode: Option.orElseSome(() => value),
    encode: (input) => Option.orElseSome(given(input), () => value),
  })

/** Always sent, never asked for. When reading it may be missing or null, but not something else. */
export const constant = <const L extends string | number>(literal: L) =>
  Schema.optionalToOptional(Schema.NullOr(Schema.Literal(literal)), Schema.Undefined, {
    decode: () => Option.none(),
    encode: () => Option.some(literal),
  })

/** Known to the program only, e.g. to count with: never sent, and not read. */
export const local = <A, I>(schema: Schema.Schema<A, I>) =>
  Schema.optionalToOptional(Schema.Unknown, Schema.UndefinedOr(Schema.typeSchema(schema)), {
    decode: () => Option.none(),
    encode: () => Option.none(),
  })

/** Of some optional fields of a request, one must be given and the others not. */
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

/** Response field: absent and null are `none`. */
export const maybe = <A, I>(schema: Schema.Schema<A, I>) =>
  Schema.optionalWith(schema, { as: "Option", nullable: true })

/** Response field: absent and null are the default. */
export const orElse = <A, I>(schema: Schema.Schema<A, I>, value: NoInfer<A>) =>
  Schema.optionalWith(schema, { default: () => value, nullable: true })

/** A word of which we know some values today. Others are kept as they are: a new one must not break a client. */
export const open = <const Known extends string>(
  ..._known: ReadonlyArray<Known>
): Schema.SchemaClass<Known | (string & {}), string> => Schema.make<Known | (string & {}), string>(Schema.String.ast)

/** What JSON can say. */
export type Json = null | boolean | number | string | ReadonlyArray<Json> | JsonObject

/** An object of it; a key with an undefined value is as good as absent. */
export interface JsonObject {
  readonly [key: string]: Json | undefined
}

interface Found {
  readonly path: ReadonlyArray<PropertyKey>
  readonly value: unknown
}

/** Where a value first holds what JSON can't say, e.g. NaN, a bigint or a Date. */
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

// Checked and passed on, not copied: a copy loses a key that is called `__proto__`.
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
            new ParseResult.Type(ast, found.value, `Expected what JSON can say, got ${describe(found.value)}`),
          ),
        )
  }
  const schema: Schema.Schema<A> = Schema.declare([], { decode: check, encode: check })
  return schema.annotations({ identifier, arbitrary: () => arbitrary })
}

/** Anything that JSON can say without loss: no NaN, no bigint, no Date. */
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

/** The last member of a union by `type`: what a newer server may send, with all it said. */
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
 * A point in time. Read leniently: no zone means UTC, a space may stand for the `T`, digits below the millisecond
 * are cut. A cursor is not a time: it must go back to the server as it came.
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
  Schema.Number.pipe(
    Schema.filter((value) => Math.abs(value) !== Infinity || "Expected a number that JSON can say, or NaN"),
  ),
)

/** Named numbers. JSON has no NaN, so a server says null; here it is NaN again. An infinity can't be said at all. */
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
