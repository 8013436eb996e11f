/**
 * Chat templates: a conversation as the text that a model was trained on. Templates are written for Python's jinja2 as
 * transformers sets it up, and render here to the same text, character for character, or not at all.
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
 * Data as a template sees it: JSON, with what JSON in JavaScript can't say. A `Map` keeps the order of keys such as
 * `"1"`, an `ExactJson.Float` is a float that is whole, a `bigint` an integer above 2⁵³. `ExactJson.parse` makes all of
 * these. A property that is undefined is not there.
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
 * @since 0.1.0
 * @category models
 */
export type TemplateObject = { readonly [key: string]: TemplateData } | ReadonlyMap<string, TemplateData>

/**
 * @since 0.1.0
 * @category models
 */
export interface RenderInput {
  /**
   * As the template sees them: `role`, `content` (text, parts or null), `tool_calls`, `reasoning_content`, `name`,
   * `tool_call_id` and whatever else it asks for. As in transformers, reasoning is copied to the names that templates
   * use: `reasoning_content` and `thinking`.
   */
  readonly messages: ReadonlyArray<TemplateObject>
  readonly tools?: ReadonlyArray<TemplateObject> | undefined
  readonly documents?: ReadonlyArray<TemplateObject> | undefined
  /** Whether the header of an answer is added at the end. Default: false, as in transformers. */
  readonly addGenerationPrompt?: boolean | undefined
  /**
   * Whether the text ends where the final message ends, so that a model goes on with it. A name says which field of the
   * message is meant; `true` means `content`. Default: false.
   */
  readonly continueFinalMessage?: boolean | string | undefined
  /** Other variables of the template, such as `enable_thinking`. */
  readonly variables?: Readonly<Record<string, TemplateData>> | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ChatTemplate {
  readonly source: string
  readonly render: (input: RenderInput) => Effect.Effect<string, TemplateError>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** `bos_token` and the like, by the names under which templates see them. */
  readonly specialTokens?: Readonly<Record<string, string>> | undefined
  readonly limits?: Partial<TemplateLimits> | undefined
  /** Where `strftime_now` reads the clock. Default: UTC. */
  readonly timeZone?: DateTime.TimeZone | undefined
}

const fold = (problem: unknown, line?: number): TemplateError => {
  if (problem instanceof Failure) {
    const { detail, message, reason } = problem
    const place = problem.line ?? line
    return new TemplateError({ reason, problem: message, ...detail, ...(place === undefined ? {} : { line: place }) })
  }
  // The stack is what ends first where syntax and macros are deep at once.
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
    throw new Failure("Input", `${name}[${index}] is no object`)
  })

/**
 * Reads a template. What can't be rendered exactly is refused here, by name.
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
 * The template that a tokenizer brings, with its special tokens. Without a name it is the one that is called `default`.
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
      problem: `${tokenizer.name} has no chat template called "${name}", ${known === "" ? "nor any other" : `only ${known}`}`,
    }),
  )
}
