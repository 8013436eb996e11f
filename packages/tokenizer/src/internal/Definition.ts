/** Reads the parts of a tokenizer's files that the encoding library does not handle. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { ChatTemplates } from "../Tokenizer.ts"
import { TokenizerError } from "../TokenizerError.ts"
import type { TokenizerFiles } from "../TokenizerFiles.ts"

const AddedToken = Schema.Struct({
  id: Schema.Int,
  content: Schema.String,
  single_word: Schema.optionalWith(Schema.Boolean, { default: () => false }),
  lstrip: Schema.optionalWith(Schema.Boolean, { default: () => false }),
  rstrip: Schema.optionalWith(Schema.Boolean, { default: () => false }),
  normalized: Schema.optionalWith(Schema.Boolean, { default: () => false }),
  special: Schema.optionalWith(Schema.Boolean, { default: () => false }),
})

export type AddedToken = typeof AddedToken.Type

/** Leaves out the vocabulary: it has a hundred thousand entries, and the library checks it. */
const TokenizerJson = Schema.Struct({
  added_tokens: Schema.optionalWith(Schema.Array(AddedToken), { nullable: true, default: () => [] }),
  decoder: Schema.optional(Schema.Unknown),
  truncation: Schema.optional(Schema.Unknown),
  padding: Schema.optional(Schema.Unknown),
  model: Schema.Struct({ type: Schema.optional(Schema.String) }),
})

const TokenName = Schema.Union(Schema.String, Schema.Struct({ content: Schema.String }))
const maybeName = Schema.optional(Schema.NullOr(TokenName))

export const roles = ["bos", "eos", "unk", "sep", "pad", "cls", "mask"] as const

export type Role = (typeof roles)[number]

const RoleNames = Schema.Struct({
  bos_token: maybeName,
  eos_token: maybeName,
  unk_token: maybeName,
  sep_token: maybeName,
  pad_token: maybeName,
  cls_token: maybeName,
  mask_token: maybeName,
})

const ChatTemplate = Schema.Union(
  Schema.String,
  Schema.Array(Schema.Struct({ name: Schema.String, template: Schema.String })),
)

const ConfigJson = Schema.Struct({
  ...RoleNames.fields,
  chat_template: Schema.optional(Schema.NullOr(ChatTemplate)),
  /** Keyed by id. */
  added_tokens_decoder: Schema.optional(Schema.Record({ key: Schema.String, value: AddedToken.omit("id") })),
})

export interface Definition {
  readonly name: string
  /** `tokenizer.json` without truncation and padding, so that texts are never cut implicitly. */
  readonly json: Readonly<Record<string, unknown>>
  readonly text: string
  readonly model: string
  readonly decoder: unknown
  readonly addedTokens: ReadonlyArray<AddedToken>
  readonly chat: ChatTemplates
}

const invalid = (name: string, file: string) => (cause: { readonly message: string }) =>
  new TokenizerError({ reason: "Invalid", tokenizer: name, problem: `invalid ${file}: ${cause.message}`, cause })

const parse = <A, I>(
  name: string,
  file: string,
  text: string,
  schema: Schema.Schema<A, I>,
): Effect.Effect<readonly [A, unknown], TokenizerError> =>
  Effect.gen(function* () {
    const value = yield* Effect.try({
      try: (): unknown => JSON.parse(text),
      // Leaves out the message of the parser because it quotes the file.
      catch: () => invalid(name, file)({ message: "not valid JSON" }),
    })
    return [yield* Effect.mapError(Schema.decodeUnknown(schema)(value), invalid(name, file)), value] as const
  })

const nameOf = (token: typeof TokenName.Type) => (typeof token === "string" ? token : token.content)

/** Returns the tokens that only the configuration lists. */
const missingOf = (
  config: Option.Option<typeof ConfigJson.Type>,
  own: ReadonlyArray<AddedToken>,
): ReadonlyArray<AddedToken> => {
  const known = new Set(own.map(({ content }) => content))
  return Object.entries(Option.getOrUndefined(config)?.added_tokens_decoder ?? {})
    .map(([id, token]) => ({ ...token, id: Number(id) }))
    .filter(({ content }) => !known.has(content))
    .toSorted((one, other) => one.id - other.id)
}

const chatOf = (
  config: Option.Option<typeof ConfigJson.Type>,
  map: Option.Option<typeof RoleNames.Type>,
  file: string | undefined,
): ChatTemplates => {
  const specialTokens: Record<string, string> = {}
  const configuration = Option.getOrUndefined(config)
  // Older files have a special tokens map, which takes precedence; newer configurations are complete.
  const older = configuration?.added_tokens_decoder === undefined ? Option.getOrUndefined(map) : undefined
  for (const role of roles) {
    const key = `${role}_token` as const
    const token = older?.[key] ?? configuration?.[key]
    if (token !== undefined && token !== null) specialTokens[key] = nameOf(token)
  }
  const configured = configuration?.chat_template ?? []
  const named =
    typeof configured === "string"
      ? [["default", configured] as const]
      : configured.map((one) => [one.name, one.template] as const)
  // A template in a separate file takes precedence over the configuration.
  return { templates: new Map([...named, ...(file === undefined ? [] : [["default", file] as const])]), specialTokens }
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null

export const read = (files: TokenizerFiles): Effect.Effect<Definition, TokenizerError> =>
  Effect.gen(function* () {
    const { name } = files
    const optional = <A, I>(file: string, text: string | undefined, schema: Schema.Schema<A, I>) =>
      text === undefined
        ? Effect.succeedNone
        : Effect.map(parse(name, file, text, schema), ([value]) => Option.some(value))

    const [own, value] = yield* parse(name, "tokenizer.json", files.tokenizer, TokenizerJson)
    const config = yield* optional("tokenizer_config.json", files.config, ConfigJson)
    const map = yield* optional("special_tokens_map.json", files.specialTokensMap, RoleNames)
    const cuts = (own.truncation ?? own.padding ?? null) !== null
    const missing = missingOf(config, own.added_tokens)
    const addedTokens = [...own.added_tokens, ...missing]
    const json = { ...(isRecord(value) ? value : {}), added_tokens: addedTokens, truncation: null, padding: null }
    return {
      name,
      json,
      text: cuts || missing.length > 0 ? JSON.stringify(json) : files.tokenizer,
      model: own.model.type ?? "",
      decoder: own.decoder ?? null,
      addedTokens,
      chat: chatOf(config, map, files.chatTemplate),
    }
  })

const entriesOf = (vocab: unknown): number =>
  Array.isArray(vocab) ? vocab.length : isRecord(vocab) ? Object.keys(vocab).length : 0

/**
 * Returns a definition that treats special tokens as text and keeps the other added tokens. Libraries number added
 * tokens consecutively, so a special token beyond the vocabulary is replaced by a placeholder that no text contains.
 */
export const withoutSpecialTokens = (definition: Definition): Definition => {
  const { model } = definition.json
  const own = entriesOf(isRecord(model) ? model["vocab"] : undefined)
  const addedTokens = definition.addedTokens.flatMap((token) =>
    !token.special ? [token] : token.id < own ? [] : [{ ...token, content: `\uffff${token.id}\uffff`, special: false }],
  )
  const json = { ...definition.json, added_tokens: addedTokens }
  return { ...definition, json, text: JSON.stringify(json), addedTokens }
}
