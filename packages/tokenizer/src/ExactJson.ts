/**
 * Parses JSON without losing information: `1.0` stays a float, integers of any size stay exact, and keys keep their
 * order (`"1"` after `"b"` if written that way). Given the result of `parse`, a chat template prints tool arguments
 * exactly as Python does.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"

/**
 * A number that is a float even if its value is an integer: `1.0`, which `JSON.parse` can't tell from `1`.
 *
 * @since 0.1.0
 * @category models
 */
export class Float {
  /** @since 0.1.0 */
  readonly value: number
  constructor(value: number) {
    this.value = value
  }
}

/**
 * Parsed JSON. An integer is a `number` if that is exact, otherwise a `bigint`.
 *
 * @since 0.1.0
 * @category models
 */
export type ExactJson =
  | string
  | number
  | bigint
  | Float
  | boolean
  | null
  | ReadonlyArray<ExactJson>
  | ReadonlyMap<string, ExactJson>

/**
 * A text that is not valid JSON, with the index of the problem.
 *
 * @since 0.1.0
 * @category errors
 */
export class ExactJsonError extends Schema.TaggedError<ExactJsonError>("@effect-tinker/tokenizer/ExactJsonError")(
  "ExactJsonError",
  { problem: Schema.String, index: Schema.Number },
) {
  /** @since 0.1.0 */
  override get message(): string {
    return `${this.problem} at index ${this.index}`
  }
}

/** Deeper than any real tool call, and well below the depth that overflows the stack. */
const maxDepth = 500

const space = /[ \t\n\r]*/y
const number = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y
// oxlint-disable-next-line no-control-regex
const string = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y
const words: ReadonlyArray<readonly [string, ExactJson]> = [
  ["true", true],
  ["false", false],
  ["null", null],
  ["NaN", new Float(Number.NaN)],
  ["Infinity", new Float(Number.POSITIVE_INFINITY)],
  ["-Infinity", new Float(Number.NEGATIVE_INFINITY)],
]

const integer = (digits: string): number | bigint => {
  const value = Number(digits)
  return Number.isSafeInteger(value) ? value + 0 : BigInt(digits)
}

class Reader {
  readonly text: string
  index = 0
  constructor(text: string) {
    this.text = text
  }

  fail(problem: string): never {
    throw new ExactJsonError({ problem, index: this.index })
  }

  take(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.index
    const found = pattern.exec(this.text)
    if (found !== null) this.index = pattern.lastIndex
    return found
  }

  /** Skips white space, then `sign` if it follows. */
  skip(sign: string): boolean {
    this.take(space)
    const found = this.text.startsWith(sign, this.index)
    if (found) this.index += sign.length
    return found
  }

  key(): string {
    this.take(space)
    const found = this.take(string)
    return found === null ? this.fail("expected a key in double quotes") : JSON.parse(found[0])
  }

  value(depth: number): ExactJson {
    if (depth > maxDepth) this.fail(`nested deeper than ${maxDepth} levels`)
    if (this.skip("{")) {
      const entries = new Map<string, ExactJson>()
      if (this.skip("}")) return entries
      do {
        const key = this.key()
        if (!this.skip(":")) this.fail("expected a colon")
        entries.set(key, this.value(depth + 1))
      } while (this.skip(","))
      return this.skip("}") ? entries : this.fail("expected a comma or a closing brace")
    }
    if (this.skip("[")) {
      const items: Array<ExactJson> = []
      if (this.skip("]")) return items
      do items.push(this.value(depth + 1))
      while (this.skip(","))
      return this.skip("]") ? items : this.fail("expected a comma or a closing bracket")
    }
    for (const [word, value] of words) if (this.skip(word)) return value
    const text = this.take(string)
    if (text !== null) return JSON.parse(text[0])
    const digits = this.take(number)
    if (digits === null) return this.fail("expected a value")
    return digits[1] === undefined && digits[2] === undefined ? integer(digits[0]) : new Float(Number(digits[0]))
  }
}

/**
 * Parses everything that Python's `json.loads` accepts, including `NaN` and `Infinity`.
 *
 * @since 0.1.0
 * @category decoding
 */
export const parse = (text: string): Either.Either<ExactJson, ExactJsonError> =>
  Either.try({
    try: () => {
      const reader = new Reader(text)
      const value = reader.value(0)
      reader.skip("")
      return reader.index === text.length ? value : reader.fail("expected the end of the text after the value")
    },
    catch: (problem) =>
      problem instanceof ExactJsonError ? problem : new ExactJsonError({ problem: String(problem), index: 0 }),
  })
