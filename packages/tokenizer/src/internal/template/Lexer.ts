/** Splits a template into tokens, with white space as in jinja2 with `trim_blocks` and `lstrip_blocks`. */
import { Failure, unsupported } from "./Failure.ts"
import { spaces, strip } from "./Text.ts"
import { Float, integer } from "./Value.ts"

export type Token = { readonly line: number } & (
  | { readonly type: "data" | "name" | "string" | "sign"; readonly value: string }
  | { readonly type: "number"; readonly value: number | bigint | Float }
  | { readonly type: "blockBegin" | "blockEnd" | "printBegin" | "printEnd" | "end"; readonly value: "" }
)

const syntax = (problem: string, line: number): never => {
  throw new Failure("Syntax", problem, { exception: "TemplateSyntaxError" }, line)
}

const opening = /\{[{%#]/g
const rawBegin = new RegExp(`\\{%[-+]?[${spaces}]*raw[${spaces}]*(?:-%\\}[${spaces}]*|%\\})`, "y")
const rawEnd = new RegExp(`\\{%([-+]?)[${spaces}]*endraw[${spaces}]*(?:\\+%\\}|-%\\}[${spaces}]*|%\\}\\n?)`, "g")
const commentEnd = new RegExp(`\\+#\\}|-#\\}[${spaces}]*|#\\}\\n?`, "g")
const blockEnd = new RegExp(`\\+%\\}|-%\\}[${spaces}]*|%\\}\\n?`, "y")
const printEnd = new RegExp(`-\\}\\}[${spaces}]*|\\}\\}`, "y")
const blank = new RegExp(`[${spaces}]+`, "y")
const floatNumber = /(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/iy
const integerNumber = /0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*/iy
const word = /[\p{ID_Start}_][\p{ID_Continue}]*/uy
const text = /'[^'\\]*(?:\\[\s\S][^'\\]*)*'|"[^"\\]*(?:\\[\s\S][^"\\]*)*"/y
const sign = /\/\/|\*\*|==|!=|>=|<=|[-+/*%~[\](){}><=.:|,;]/y

const simpleEscapes: Readonly<Record<string, string>> = {
  "\n": "",
  "\\": "\\",
  "'": "'",
  '"': '"',
  a: "\u0007",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
}

const escape = /\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([0-7]{1,3})|([\s\S]))/gu

/** Resolves escapes in a string literal as Python does. */
const unescape = (inner: string, line: number): string =>
  inner.replace(escape, (match, x?: string, u?: string, long?: string, octal?: string, other?: string) => {
    const hex = x ?? u ?? long
    if (hex !== undefined || octal !== undefined) {
      const point = hex === undefined ? Number.parseInt(octal ?? "", 8) : Number.parseInt(hex, 16)
      if (point > 0x10ffff) return syntax("illegal Unicode character", line)
      return point >= 0xd800 && point <= 0xdfff ? unsupported(`the escape ${match}`, line) : String.fromCodePoint(point)
    }
    const letter = other ?? ""
    if (letter === "N") return unsupported("the escape \\N", line)
    if (letter === "x" || letter === "u" || letter === "U") return syntax(`truncated \\${letter} escape`, line)
    const known = simpleEscapes[letter]
    if (known !== undefined) return known
    // Python has already escaped non-ASCII characters, so the backslash combines with that escape's backslash.
    const point = letter.codePointAt(0) ?? 0
    if (point < 0x80) return match
    const code = point.toString(16)
    return code.length <= 2
      ? `\\x${code}`
      : code.length <= 4
        ? `\\u${code.padStart(4, "0")}`
        : `\\U${code.padStart(8, "0")}`
  })

const closing: Readonly<Record<string, string>> = { "(": ")", "[": "]", "{": "}" }

class Lexer {
  readonly source: string
  readonly tokens: Array<Token> = []
  position = 0
  line = 1
  /** Whether the preceding text ended a line, so that white space before a tag is indentation. */
  startsLine = true

  constructor(source: string) {
    const lines = source.replace(/\r\n?/g, "\n")
    this.source = lines.endsWith("\n") ? lines.slice(0, -1) : lines
  }

  match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.position
    return pattern.exec(this.source)?.[0]
  }

  /** Moves past the matched text. */
  pass(matched: string): void {
    if (matched === "") return
    this.position += matched.length
    this.startsLine = matched.endsWith("\n")
    for (let at = matched.indexOf("\n"); at !== -1; at = matched.indexOf("\n", at + 1)) this.line++
  }

  /** Adds the text before a tag, without white space removed by the tag's sign or by the indentation rules. */
  data(before: string, sign: string, isIndented: boolean): void {
    let kept = before
    if (sign === "-") kept = strip(before, "right")
    else if (sign !== "+" && isIndented) {
      const start = before.lastIndexOf("\n") + 1
      if ((start > 0 || this.startsLine) && strip(before.slice(start), "left") === "") kept = before.slice(0, start)
    }
    if (kept !== "") this.tokens.push({ type: "data", value: kept, line: this.line })
    this.pass(before)
  }

  run(): ReadonlyArray<Token> {
    while (this.position < this.source.length) this.text()
    this.tokens.push({ type: "end", value: "", line: this.line })
    return this.tokens
  }

  /** Reads text up to the next tag, and the tag. */
  text(): void {
    opening.lastIndex = this.position
    const at = opening.exec(this.source)?.index ?? this.source.length
    const before = this.source.slice(this.position, at)
    if (at === this.source.length) return this.data(before, "+", false)
    const kind = this.source[at + 1]
    const marker = this.source[at + 2] ?? ""
    const sign = marker === "-" || marker === "+" ? marker : ""
    this.data(before, sign, kind !== "{")
    const raw = kind === "%" ? this.match(rawBegin) : undefined
    if (raw !== undefined) return this.raw(raw)
    this.pass(this.source.slice(at, at + 2 + sign.length))
    if (kind === "#") return this.comment()
    this.tokens.push({ type: kind === "%" ? "blockBegin" : "printBegin", value: "", line: this.line })
    this.inside(kind === "%" ? "blockEnd" : "printEnd", kind === "%" ? blockEnd : printEnd)
  }

  comment(): void {
    commentEnd.lastIndex = this.position
    const end = commentEnd.exec(this.source)
    if (end === null) return syntax("Missing end of comment tag", this.line)
    this.pass(this.source.slice(this.position, end.index + end[0].length))
  }

  raw(begin: string): void {
    this.pass(begin)
    rawEnd.lastIndex = this.position
    const end = rawEnd.exec(this.source)
    if (end === null) return syntax("Missing end of raw directive", this.line)
    this.data(this.source.slice(this.position, end.index), end[1] ?? "", true)
    this.pass(end[0])
  }

  /** Reads the tokens of a tag up to its end. End marks within brackets do not count. */
  inside(endType: "blockEnd" | "printEnd", end: RegExp): void {
    const brackets: Array<string> = []
    while (this.position < this.source.length) {
      const ending = brackets.length === 0 ? this.match(end) : undefined
      if (ending !== undefined) {
        this.tokens.push({ type: endType, value: "", line: this.line })
        return this.pass(ending)
      }
      this.token(brackets)
    }
    return syntax("unexpected end of template", this.line)
  }

  token(brackets: Array<string>): void {
    const line = this.line
    const space = this.match(blank)
    if (space !== undefined) return this.pass(space)
    const float = this.match(floatNumber)
    if (float !== undefined) {
      this.tokens.push({ type: "number", value: new Float(Number(float.replaceAll("_", ""))), line })
      return this.pass(float)
    }
    const digits = this.match(integerNumber)
    if (digits !== undefined) {
      // Python's limit.
      if (digits.length > 4300) return syntax("Exceeds the limit (4300 digits) for integer string conversion", line)
      this.tokens.push({ type: "number", value: integer(BigInt(digits.replaceAll("_", "").toLowerCase())), line })
      return this.pass(digits)
    }
    const name = this.match(word)
    if (name !== undefined) {
      this.tokens.push({ type: "name", value: name, line })
      return this.pass(name)
    }
    const literal = this.match(text)
    if (literal !== undefined) {
      this.tokens.push({ type: "string", value: unescape(literal.slice(1, -1), line), line })
      return this.pass(literal)
    }
    const operator = this.match(sign)
    if (operator === undefined) return syntax(`unexpected char '${this.source[this.position]}'`, line)
    const expected = closing[operator]
    if (expected !== undefined) brackets.push(expected)
    else if (operator === ")" || operator === "]" || operator === "}") {
      const open = brackets.pop()
      if (open !== operator) syntax(`unexpected '${operator}'${open === undefined ? "" : `, expected '${open}'`}`, line)
    }
    this.tokens.push({ type: "sign", value: operator, line })
    this.pass(operator)
  }
}

export const tokenize = (source: string): ReadonlyArray<Token> => new Lexer(source).run()
