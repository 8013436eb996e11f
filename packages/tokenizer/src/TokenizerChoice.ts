/**
 * Which tokenizer a model has, as the reference chooses it.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import { TokenizerError } from "./TokenizerError.ts"

/**
 * What the choice is made by. Data, so that a program can bring its own when models change before this package does.
 *
 * @since 0.1.0
 * @category models
 */
export interface Table {
  /** The release of the reference that it was taken from. */
  readonly version: string
  /** Models whose names start so use the tokenizer of another repository. */
  readonly substitutions: ReadonlyArray<{ readonly prefix: string; readonly repository: string }>
  /** Repositories under another name. */
  readonly aliases: Readonly<Record<string, string>>
  /** Repositories of which one revision is used, and whether their tokenizer is a program. */
  readonly pins: Readonly<Record<string, { readonly revision: string; readonly needsCode: boolean }>>
  /** Names that start so have no tokenizer that could be loaded. */
  readonly refused: ReadonlyArray<{ readonly prefix: string; readonly problem: string }>
}

const pinned = (revision: string) => ({ revision, needsCode: true })

const renderedElsewhere = "its tokenizer is not published: texts for it are rendered with the vendor's own package"

/**
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
  refused: [
    { prefix: "thinkingmachines/", problem: renderedElsewhere },
    { prefix: "TML/", problem: renderedElsewhere },
  ],
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Model {
  /** The name of the base model. What follows a colon is not part of it. */
  readonly model: string
  /** What the server calls its tokenizer (`getInfo`), if it says so: it knows best. */
  readonly tokenizerId?: string | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Choice {
  readonly repository: string
  readonly revision: Option.Option<string>
  /** The tokenizer is a program in that repository, which is not run here. */
  readonly needsCode: boolean
}

const cut = (name: string) => name.split(":", 1)[0] ?? ""

/** `org/model/variant` has the tokenizer of `org/model`. */
const withoutVariant = (name: string) => name.split("/").slice(0, 2).join("/")

/**
 * The repository and revision; `NeedsCode` for a model that has none which could be loaded.
 *
 * @since 0.1.0
 * @category constructors
 */
export const choose = ({ model, tokenizerId }: Model, by: Table = table): Either.Either<Choice, TokenizerError> => {
  const name = cut(model)
  const told = tokenizerId === undefined ? undefined : cut(tokenizerId)
  const substitution = by.substitutions.find(({ prefix }) => name.startsWith(prefix))?.repository
  const chosen = told ?? substitution ?? withoutVariant(name)
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
  })
}
