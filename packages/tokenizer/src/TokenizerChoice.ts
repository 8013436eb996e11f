/**
 * Chooses the tokenizer of a model as the reference SDK does.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import { TokenizerError } from "./TokenizerError.ts"

/**
 * The data behind the choice. Pass your own table to support models that are newer than this package.
 *
 * @since 0.1.0
 * @category models
 */
export interface Table {
  /** The release of the reference SDK that the table was taken from. */
  readonly version: string
  /** Models that use the tokenizer of another repository, by the prefix of their names. */
  readonly substitutions: ReadonlyArray<{ readonly prefix: string; readonly repository: string }>
  /** Other names of repositories. */
  readonly aliases: Readonly<Record<string, string>>
  /** Repositories pinned to one revision, and whether their tokenizer is a program. */
  readonly pins: Readonly<Record<string, { readonly revision: string; readonly needsCode: boolean }>>
  /** Prefixes of repositories whose program is not needed, because this package converts their files. */
  readonly converted?: ReadonlyArray<string> | undefined
  /** Models without a loadable tokenizer, by the prefix of their names. */
  readonly refused: ReadonlyArray<{ readonly prefix: string; readonly problem: string }>
}

const pinned = (revision: string) => ({ revision, needsCode: true })

const renderedElsewhere =
  "its tokenizer is not published as such; create it from o200k_base.tiktoken with Tiktoken.inkling"

/**
 * The default table.
 *
 * @since 0.1.0
 * @category models
 */
export const table: Table = {
  version: "0.36.0",
  substitutions: [
    { prefix: "meta-llama/Llama-3", repository: "thinkingmachineslabinc/meta-llama-3-instruct-tokenizer" },
  ],
  aliases: { "moonshotai/Kimi-K2.5-Text-Only": "moonshotai/Kimi-K2.5" },
  pins: {
    "moonshotai/Kimi-K2-Thinking": pinned("612681931a8c906ddb349f8ad0f582cb552189cd"),
    "moonshotai/Kimi-K2.5": pinned("4d01dfe0332d63057c186e0b262165819efb6611"),
    "moonshotai/Kimi-K2.6": pinned("b5aabbfb20227ed42becbf5541dbffd213942c58"),
    "moonshotai/Kimi-K3": pinned("f831ab66814297da540d832a5235f8e904f29d06"),
  },
  converted: ["moonshotai/Kimi-K2"],
  refused: [
    { prefix: "thinkingmachines/", problem: renderedElsewhere },
    { prefix: "TML/", problem: renderedElsewhere },
  ],
}

/**
 * The model to choose a tokenizer for.
 *
 * @since 0.1.0
 * @category models
 */
export interface Model {
  /** The name of the base model. A suffix after a colon is ignored. */
  readonly model: string
  /** The tokenizer that the server names (`getInfo`), if any; takes precedence over the table. */
  readonly tokenizerId?: string | undefined
}

/**
 * Where to load a tokenizer from.
 *
 * @since 0.1.0
 * @category models
 */
export interface Choice {
  readonly repository: string
  readonly revision: Option.Option<string>
  /** Whether the tokenizer is a program in that repository, which this package does not run. */
  readonly needsCode: boolean
  /** Whether this package converts the files of that program instead. */
  readonly isConverted: boolean
}

const cut = (name: string) => name.split(":", 1)[0] ?? ""

/** `org/model/variant` has the tokenizer of `org/model`. */
const withoutVariant = (name: string) => name.split("/").slice(0, 2).join("/")

/**
 * Returns the repository and revision. Fails with `NeedsCode` if the model has no loadable tokenizer.
 *
 * @since 0.1.0
 * @category constructors
 */
export const choose = ({ model, tokenizerId }: Model, by: Table = table): Either.Either<Choice, TokenizerError> => {
  const name = cut(model)
  const named = tokenizerId === undefined ? undefined : cut(tokenizerId)
  const substitution = by.substitutions.find(({ prefix }) => name.startsWith(prefix))?.repository
  const chosen = named ?? substitution ?? withoutVariant(name)
  const refusal = by.refused.find(({ prefix }) => chosen.startsWith(prefix))
  if (refusal !== undefined) {
    return Either.left(new TokenizerError({ reason: "NeedsCode", tokenizer: model, problem: refusal.problem }))
  }
  const repository = by.aliases[chosen] ?? chosen
  const pin = by.pins[repository]
  return Either.right({
    repository,
    revision: Option.fromNullable(pin?.revision),
    needsCode: pin?.needsCode ?? false,
    isConverted: (by.converted ?? []).some((prefix) => repository.startsWith(prefix)),
  })
}
