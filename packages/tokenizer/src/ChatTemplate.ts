/**
 * Renders conversations with the chat templates that models were trained on. Templates are written for Python's jinja2
 * as configured by transformers; they render to exactly the same text here or fail.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import type { ExactJson } from "./ExactJson.ts"
import { continueFinal, withoutTag } from "./internal/template/Continue.ts"
import { Failure } from "./internal/template/Failure.ts"
import { globals } from "./internal/template/Globals.ts"
import { fromUnknown, withReasoning } from "./internal/template/Input.ts"
import { Meter } from "./internal/template/Meter.ts"
import { parse } from "./internal/template/Parser.ts"
import { Frame, Run } from "./internal/template/Run.ts"
import { compileTemplate } from "./internal/template/Statements.ts"
import { wallTime } from "./internal/template/Strftime.ts"
import type { Value } from "./internal/template/Value.ts"
import { Dict } from "./internal/template/Value.ts"
import { TemplateError } from "./TemplateError.ts"
import type { TemplateLimits } from "./TemplateLimits.ts"
import { defaults } from "./TemplateLimits.ts"
import type * as Tokenizer from "./Tokenizer.ts"

/**
 * Data for a template: JSON plus values that JSON in JavaScript lacks. A `Map` keeps the order of keys such as `"1"`,
 * an `ExactJson.Float` is a float with an integer value, and a `bigint` is an integer above 2⁵³. `ExactJson.parse`
 * returns all of these. Properties that are undefined are left out.
 *
 * @since 0.1.0
 * @category models
 */
export type TemplateData =
  | ExactJson
  | undefined
  | ReadonlyArray<TemplateData>
  | ReadonlyMap<string, TemplateData>
  | { readonly [key: string]: TemplateData }

/**
 * An object for a template.
 *
 * @since 0.1.0
 * @category models
 */
export type TemplateObject = { readonly [key: string]: TemplateData } | ReadonlyMap<string, TemplateData>

/**
 * The conversation to render, with options.
 *
 * @since 0.1.0
 * @category models
 */
export interface RenderInput {
  /**
   * The messages as the template sees them: `role`, `content` (text, parts or null), `tool_calls`, `reasoning_content`,
   * `name`, `tool_call_id` and anything else the template reads. As in transformers, reasoning is available as both
   * `reasoning_content` and `thinking`.
   */
  readonly messages: ReadonlyArray<TemplateObject>
  readonly tools?: ReadonlyArray<TemplateObject> | undefined
  readonly documents?: ReadonlyArray<TemplateObject> | undefined
  /** Whether to append the header of an answer. Default: false, as in transformers. */
  readonly addGenerationPrompt?: boolean | undefined
  /**
   * Whether to end the text where the final message ends, so that the model continues it. A string names the field of
   * the message to continue; `true` means `content`. Default: false.
   */
  readonly continueFinalMessage?: boolean | string | undefined
  /** Additional variables of the template, such as `enable_thinking`. */
  readonly variables?: Readonly<Record<string, TemplateData>> | undefined
}

/**
 * A compiled chat template.
 *
 * @since 0.1.0
 * @category models
 */
export interface ChatTemplate {
  readonly source: string
  readonly render: (input: RenderInput) => Effect.Effect<string, TemplateError>
}

/**
 * Options of {@link make}.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** `bos_token` and so on, by the names that templates use. */
  readonly specialTokens?: Readonly<Record<string, string>> | undefined
  readonly limits?: Partial<TemplateLimits> | undefined
  /** The time zone of `strftime_now`. Default: UTC. */
  readonly timeZone?: DateTime.TimeZone | undefined
}

const fold = (problem: unknown, line?: number): TemplateError => {
  if (problem instanceof Failure) {
    const { detail, message, reason } = problem
    const place = problem.line ?? line
    return new TemplateError({ reason, problem: message, ...detail, ...(place === undefined ? {} : { line: place }) })
  }
  // Deeply nested syntax combined with deep macro calls overflows the stack before any limit is reached.
  if (problem instanceof RangeError) {
    return new TemplateError({ reason: "Limit", problem: `the template needs too much memory: ${problem.message}` })
  }
  throw problem
}

const attempt = <A>(work: () => A, line?: () => number): Either.Either<A, TemplateError> => {
  try {
    return Either.right(work())
  } catch (problem) {
    return Either.left(fold(problem, line?.()))
  }
}

const objects = (values: ReadonlyArray<TemplateObject>, name: string, depth: number): ReadonlyArray<Dict> =>
  values.map((value, index) => {
    const object = fromUnknown(value, `${name}[${index}]`, depth)
    if (object instanceof Dict) return object
    throw new Failure("Input", `${name}[${index}] is not an object`)
  })

/**
 * Compiles a template. Fails with `Unsupported` for any construct that could not be rendered exactly.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (source: string, options: Options = {}): Either.Either<ChatTemplate, TemplateError> => {
  const limits: TemplateLimits = { ...defaults, ...options.limits }
  const zone = options.timeZone ?? DateTime.zoneUnsafeMakeNamed("UTC")

  const prepare = () => {
    new Meter(limits).within(source.length)
    return compileTemplate(parse(source, limits.depth))
  }

  const variablesOf = (input: RenderInput, messages: ReadonlyArray<Dict>): ReadonlyArray<readonly [string, Value]> => {
    const optional = (values: ReadonlyArray<TemplateObject> | undefined, name: string): Value =>
      values === undefined ? null : objects(values, name, limits.depth)
    const named = (values: Readonly<Record<string, TemplateData>> | undefined) =>
      Object.entries(values ?? {}).flatMap(([key, value]) =>
        value === undefined ? [] : [[key, fromUnknown(value, key, limits.depth)] as const],
      )
    return [
      ...named(options.specialTokens),
      ...named(input.variables),
      ["messages", messages],
      ["tools", optional(input.tools, "tools")],
      ["documents", optional(input.documents, "documents")],
      ["add_generation_prompt", input.addGenerationPrompt ?? false],
    ]
  }

  return Either.map(attempt(prepare), (template): ChatTemplate => {
    const renderAt = (input: RenderInput, now: number): Either.Either<string, TemplateError> => {
      const meter = new Meter(limits)
      let run: Run | undefined
      const work = () => {
        const messages = objects(input.messages, "messages", limits.depth).map(withReasoning)
        const continued = continueFinal(source, messages, input)
        const variables = variablesOf(input, continued?.messages ?? messages)
        const context = new Run(meter, new Map([...globals(meter, () => wallTime(now, zone)), ...variables]))
        run = context
        const text = template((size) => new Frame(context, size))
        return continued === undefined ? text : withoutTag(text, continued.final)
      }
      return attempt(work, () => run?.line ?? 0)
    }
    return {
      source,
      render: (input) =>
        Effect.flatMap(Clock.currentTimeMillis, (now) =>
          Either.match(renderAt(input, now), { onLeft: Effect.fail, onRight: Effect.succeed }),
        ),
    }
  })
}

/**
 * Compiles a template of a tokenizer, by default the one named `default`, with the tokenizer's special tokens.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromTokenizer = (
  tokenizer: Tokenizer.Service,
  name = "default",
  options: Options = {},
): Either.Either<ChatTemplate, TemplateError> => {
  const { specialTokens, templates } = tokenizer.chat
  const source = templates.get(name)
  if (source !== undefined)
    return make(source, { ...options, specialTokens: { ...specialTokens, ...options.specialTokens } })
  const known = [...templates.keys()].map((key) => `"${key}"`).join(", ")
  return Either.left(
    new TemplateError({
      reason: "NoTemplate",
      problem: `${tokenizer.name} has no chat template named "${name}"; available templates: ${known === "" ? "none" : known}`,
    }),
  )
}
