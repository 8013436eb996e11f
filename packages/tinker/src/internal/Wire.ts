/**
 * How a TypeScript value becomes a JSON body and back: names change between camelCase and snake_case, and each field
 * says by itself what stands on the wire when it is not given. Nothing strips nulls globally.
 *
 * Requests: a plain schema is required, `omitted` leaves the key away, `withDefault` always sends something,
 * `constant` is sent and never asked for, `Schema.NullOr` where null means something. Responses: `maybe` and `orElse`.
 *
 * @since 0.1.0
 */
import * as DateTime from "effect/DateTime"
import * as Option from "effect/Option"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"

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

/** Anything that JSON can say without loss: no NaN, no bigint, no Date. */
export const Json: Schema.Schema<Json> = Schema.suspend(() =>
  Schema.Union(Schema.Null, Schema.Boolean, Schema.Finite, Schema.String, Schema.Array(Json), JsonObject),
).annotations({ identifier: "Json" })

/** Free-form data of the user or the server. */
export const JsonObject: Schema.Schema<JsonObject> = Schema.Record({
  key: Schema.String,
  value: Schema.UndefinedOr(Json),
}).annotations({ identifier: "JsonObject" })

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
export const Timestamp: Schema.Schema<DateTime.Utc, string> = Schema.transformOrFail(
  Schema.String,
  Schema.DateTimeUtcFromSelf,
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
).annotations({ identifier: "Timestamp" })

/** Named numbers. JSON has no NaN, so a server says null; here it is NaN again. */
export const Metrics = Schema.Record({
  key: Schema.String,
  value: Schema.transform(Schema.NullOr(Schema.Number), Schema.Number, {
    strict: true,
    decode: (value) => value ?? Number.NaN,
    encode: (value) => (Number.isFinite(value) ? value : null),
  }),
})
