/** Parses tokens to statements, rule by rule as jinja2 does, so that templates have the same meaning. */
import { Failure, unsupported } from "./Failure.ts"
import { filterNamed } from "./Filters.ts"
import type { Token } from "./Lexer.ts"
import { tokenize } from "./Lexer.ts"
import { unsupportedMethods } from "./Methods.ts"
import type { ArithmeticSign } from "./Operators.ts"
import type { Body, CallArguments, ComparisonSign, Expression, Parameter, Statement, Target } from "./Syntax.ts"
import { namesOf } from "./Syntax.ts"
import { testNamed } from "./Tests.ts"

const noArguments: CallArguments = { positional: [], keyword: [], spread: undefined, keywordSpread: undefined }

const constants = new Map<string, boolean | null>([
  ["true", true],
  ["True", true],
  ["false", false],
  ["False", false],
  ["none", null],
  ["None", null],
])

/** Statements of jinja2 that need other files or change escaping. */
const unsupportedStatements = new Set(["include", "import", "from", "extends", "block", "autoescape"])

/** Globals of jinja2 that can't be reproduced exactly: random text, mutable objects, and the template itself. */
const unsupportedNames = new Set(["lipsum", "cycler", "joiner", "self"])

/** Filters and tests of jinja2 that are not implemented; other unknown names are unknown to jinja2 too. */
const unsupportedFilters = new Set(
  "attr filesizeformat pprint random striptags urlencode urlize wordwrap xmlattr filter test".split(" "),
)

const comparisons = new Set<string>(["==", "!=", "<", "<=", ">", ">="])

const isComparison = (sign: string): sign is ComparisonSign => comparisons.has(sign)

class Parser {
  readonly tokens: ReadonlyArray<Token>
  readonly depth: number
  index = 0
  nesting = 0
  /** The number of loops around the statement, within its macro. */
  loops = 0
  /** Whether the statement is directly in a condition, where jinja2 reports unknown filters only at run time. */
  isConditional = false

  constructor(source: string, depth: number) {
    this.tokens = tokenize(source)
    this.depth = depth
  }

  get current(): Token {
    const token = this.tokens[this.index] ?? this.tokens.at(-1)
    return token ?? { type: "end", value: "", line: 1 }
  }

  fail(problem: string, line = this.current.line): never {
    throw new Failure("Syntax", problem, { exception: "TemplateSyntaxError" }, line)
  }

  /** Limits nesting, so that no template can overflow the stack. */
  nested<A>(parse: () => A): A {
    if (++this.nesting > this.depth) {
      throw new Failure("Limit", `the template is nested deeper than ${this.depth} levels`, {}, this.current.line)
    }
    const result = parse()
    this.nesting--
    return result
  }

  /** Limits the length of operator chains, which nest as deeply as they are long. */
  chained(links: number): void {
    if (links > this.depth) {
      throw new Failure("Limit", `more than ${this.depth} operators in a row`, {}, this.current.line)
    }
  }

  next(): Token {
    const token = this.current
    this.index++
    return token
  }

  is(type: Token["type"], value?: string, ahead = 0): boolean {
    const token = this.tokens[this.index + ahead]
    return token !== undefined && token.type === type && (value === undefined || token.value === value)
  }

  skip(type: Token["type"], value?: string): boolean {
    const found = this.is(type, value)
    if (found) this.index++
    return found
  }

  describe(): string {
    const { type, value } = this.current
    return type === "end" ? "end of template" : value === "" ? type : String(value)
  }

  expect(type: Token["type"], value?: string): Token {
    if (!this.is(type, value)) this.fail(`expected ${value ?? type}, got '${this.describe()}'`)
    return this.next()
  }

  name(): string {
    return String(this.expect("name").value)
  }

  // Statements

  template(): Body {
    const body = this.statements([])
    if (!this.is("end")) this.fail(`unexpected '${this.describe()}'`)
    return body
  }

  /** Parses up to a tag with one of the names; that name is the next token. */
  statements(ends: ReadonlyArray<string>): Body {
    const body: Array<Statement> = []
    while (!this.is("end")) {
      const { line } = this.current
      if (this.is("data")) {
        body.push({ kind: "text", text: String(this.next().value), line })
      } else if (this.skip("printBegin")) {
        body.push({ kind: "print", value: this.tuple(), line })
        this.expect("printEnd")
      } else {
        this.expect("blockBegin")
        if (this.current.type === "name" && ends.includes(this.current.value)) return body
        body.push(...this.nested(() => this.statement(line)))
        this.expect("blockEnd")
      }
    }
    if (ends.length > 0) this.fail(`unexpected end of template, expected ${ends.join(" or ")}`)
    return body
  }

  /** Parses the body between a tag and its end tag. */
  block(...ends: ReadonlyArray<string>): Body {
    this.skip("sign", ":")
    this.expect("blockEnd")
    return this.statements(ends)
  }

  blockTo(end: string): Body {
    const body = this.block(end)
    this.next()
    return body
  }

  /** Parses a body that becomes a function of its own, so that it can't leave a loop around it. */
  separate(parse: () => Body): Body {
    const { loops } = this
    this.loops = 0
    const body = this.conditionally(false, parse)
    this.loops = loops
    return body
  }

  conditionally<A>(isConditional: boolean, parse: () => A): A {
    const outer = this.isConditional
    this.isConditional = isConditional
    const result = parse()
    this.isConditional = outer
    return result
  }

  /** Rejects an unknown filter or test, unless jinja2 would report it only at run time. */
  unknown(kind: string, name: string, line: number): void {
    if (!this.isConditional || unsupportedFilters.has(name)) unsupported(`the ${kind} ${name}`, line)
  }

  statement(line: number): ReadonlyArray<Statement> {
    if (!this.is("name")) this.fail("tag name expected")
    const name = this.name()
    switch (name) {
      case "if":
        return [this.conditionally(true, () => this.ifStatement(line))]
      case "for":
        return [this.forStatement(line)]
      case "set":
        return [this.setStatement(line)]
      case "macro":
        return [this.macro(line)]
      case "call":
        return [this.callBlock(line)]
      case "filter":
        return [this.filterBlock(line)]
      case "with":
        return [this.withStatement(line)]
      case "generation":
        return [{ kind: "generation", body: this.separate(() => this.blockTo("endgeneration")), line }]
      case "print":
        return this.printStatement(line)
      case "break":
      case "continue":
        if (this.loops === 0) this.fail(`'${name}' outside loop`)
        return [{ kind: name, line }]
      default:
        return unsupportedStatements.has(name)
          ? unsupported(`the tag ${name}`, line)
          : this.fail(`Encountered unknown tag '${name}'.`)
    }
  }

  ifStatement(line: number): Statement {
    const branch = () => ({ test: this.tuple(false), body: this.block("elif", "else", "endif") })
    const first = branch()
    const elifs: Array<Statement> = []
    let end = this.next()
    while (end.value === "elif") {
      elifs.push({ kind: "if", ...branch(), elifs: [], otherwise: [], line: end.line })
      end = this.next()
    }
    const otherwise = end.value === "else" ? this.blockTo("endif") : []
    return { kind: "if", ...first, elifs, otherwise, line }
  }

  forStatement(line: number): Statement {
    const target = this.target("in")
    this.expect("name", "in")
    const items = this.tuple(false, "recursive")
    const test = this.skip("name", "if") ? this.conditionally(false, () => this.expression()) : undefined
    if (this.is("name", "recursive")) unsupported("a recursive loop", line)
    this.loops++
    const body = this.conditionally(false, () => this.block("endfor", "else"))
    this.loops--
    const otherwise = this.next().value === "else" ? this.conditionally(false, () => this.blockTo("endfor")) : []
    if (namesOf(target).includes("loop")) this.fail("Can't assign to special loop variable in for-loop target", line)
    return { kind: "for", target, items, test, body, otherwise, line }
  }

  setStatement(line: number): Statement {
    const target = this.target(undefined, true)
    if (this.skip("sign", "=")) return { kind: "set", target, value: this.tuple(), line }
    const filter = this.filters({ kind: "captured" })
    return { kind: "setBlock", target, filter, body: this.conditionally(false, () => this.blockTo("endset")), line }
  }

  macro(line: number): Statement {
    const name = this.name()
    const parameters = this.parameters()
    return { kind: "macro", name, parameters, body: this.separate(() => this.blockTo("endmacro")), line }
  }

  callBlock(line: number): Statement {
    const parameters = this.is("sign", "(") ? this.parameters() : []
    const call = this.expression()
    if (call.kind !== "call") return this.fail("expected call", line)
    return { kind: "callBlock", call, parameters, body: this.separate(() => this.blockTo("endcall")), line }
  }

  filterBlock(line: number): Statement {
    const filter = this.filters(this.filter({ kind: "captured" }))
    return { kind: "filterBlock", filter, body: this.conditionally(false, () => this.blockTo("endfilter")), line }
  }

  withStatement(line: number): Statement {
    const bindings: Array<readonly [Target, Expression]> = []
    while (!this.is("blockEnd")) {
      if (bindings.length > 0) this.expect("sign", ",")
      const target = this.target()
      this.expect("sign", "=")
      bindings.push([target, this.expression()])
    }
    return { kind: "with", bindings, body: this.conditionally(false, () => this.blockTo("endwith")), line }
  }

  printStatement(line: number): ReadonlyArray<Statement> {
    const values: Array<Statement> = []
    while (!this.is("blockEnd")) {
      if (values.length > 0) this.expect("sign", ",")
      values.push({ kind: "print", value: this.expression(), line })
    }
    return values
  }

  parameters(): ReadonlyArray<Parameter> {
    const parameters: Array<Parameter> = []
    this.expect("sign", "(")
    while (!this.is("sign", ")")) {
      if (parameters.length > 0) this.expect("sign", ",")
      const name = this.name()
      if (parameters.some((other) => other.name === name)) this.fail(`duplicate argument '${name}'`)
      const fallback = this.skip("sign", "=") ? this.expression() : undefined
      if (fallback === undefined && parameters.at(-1)?.fallback !== undefined) {
        this.fail("non-default argument follows default argument")
      }
      if (name === "caller") unsupported("a parameter named caller", this.current.line)
      parameters.push({ name, fallback })
    }
    this.expect("sign", ")")
    return parameters
  }

  target(end?: string, withNamespace = false): Target {
    const items: Array<Target> = []
    let isTuple = false
    do {
      if (this.endsTuple(end)) break
      items.push(this.singleTarget(withNamespace))
      isTuple ||= this.is("sign", ",")
    } while (this.skip("sign", ","))
    const [first] = items
    if (first === undefined) return this.fail(`Expected an expression, got '${this.describe()}'`)
    return isTuple ? { kind: "tuple", items } : first
  }

  singleTarget(withNamespace: boolean): Target {
    if (this.skip("sign", "(")) {
      const inner = this.nested(() => this.target())
      this.expect("sign", ")")
      return inner
    }
    const name = this.name()
    if (constants.has(name)) this.fail(`can't assign to '${name}'`)
    if (name === "loop" && this.loops > 0) this.fail("Can't assign to special loop variable in for-loop target")
    if (!withNamespace || !this.skip("sign", ".")) return { kind: "name", name }
    return { kind: "namespace", name, attribute: this.name() }
  }

  // Expressions, from the lowest precedence

  endsTuple(end?: string): boolean {
    return (
      this.is("printEnd") || this.is("blockEnd") || this.is("sign", ")") || (end !== undefined && this.is("name", end))
    )
  }

  tuple(withChoice = true, end?: string, inBrackets = false): Expression {
    const items: Array<Expression> = []
    let isTuple = false
    do {
      if (this.endsTuple(end)) break
      items.push(this.expression(withChoice))
      isTuple ||= this.is("sign", ",")
    } while (this.skip("sign", ","))
    const [first] = items
    if (first !== undefined && !isTuple) return first
    if (first === undefined && !inBrackets) this.fail(`Expected an expression, got '${this.describe()}'`)
    return { kind: "tuple", items }
  }

  expression(withChoice = true): Expression {
    return this.nested(() => (withChoice ? this.choice() : this.or()))
  }

  choice(): Expression {
    let result = this.or()
    for (let links = 1; this.skip("name", "if"); links++) {
      this.chained(links)
      const test = this.or()
      const otherwise = this.skip("name", "else") ? this.nested(() => this.choice()) : undefined
      result = { kind: "choice", test, chosen: result, otherwise }
    }
    return result
  }

  or(): Expression {
    let left = this.and()
    for (let links = 1; this.skip("name", "or"); links++) {
      this.chained(links)
      left = { kind: "or", left, right: this.and() }
    }
    return left
  }

  and(): Expression {
    let left = this.not()
    for (let links = 1; this.skip("name", "and"); links++) {
      this.chained(links)
      left = { kind: "and", left, right: this.not() }
    }
    return left
  }

  not(): Expression {
    if (!this.skip("name", "not")) return this.compare()
    return { kind: "not", operand: this.nested(() => this.not()) }
  }

  compare(): Expression {
    const first = this.sum()
    const rest: Array<readonly [ComparisonSign, Expression]> = []
    for (;;) {
      const sign = this.comparison()
      if (sign === undefined) break
      rest.push([sign, this.sum()])
    }
    return rest.length === 0 ? first : { kind: "compare", first, rest }
  }

  comparison(): ComparisonSign | undefined {
    const { type, value } = this.current
    if (type === "sign" && isComparison(value)) {
      this.index++
      return value
    }
    if (this.skip("name", "in")) return "in"
    if (!this.is("name", "not") || !this.is("name", "in", 1)) return undefined
    this.index += 2
    return "not in"
  }

  binary(signs: ReadonlyArray<ArithmeticSign>, operand: () => Expression): Expression {
    let left = operand()
    for (let links = 1; ; links++) {
      const sign = signs.find((sign) => this.is("sign", sign))
      if (sign === undefined) return left
      this.chained(links)
      this.index++
      left = { kind: "arithmetic", sign, left, right: operand() }
    }
  }

  sum(): Expression {
    return this.binary(["+", "-"], () => this.concat())
  }

  concat(): Expression {
    const parts = [this.product()]
    while (this.skip("sign", "~")) parts.push(this.product())
    const [first] = parts
    return parts.length === 1 && first !== undefined ? first : { kind: "concat", parts }
  }

  product(): Expression {
    return this.binary(["*", "/", "//", "%"], () => this.power())
  }

  power(): Expression {
    return this.binary(["**"], () => this.unary())
  }

  unary(withFilter = true): Expression {
    const sign = this.is("sign", "-") ? "negate" : this.is("sign", "+") ? "plus" : undefined
    if (sign !== undefined) this.index++
    const operand: Expression =
      sign === undefined ? this.primary() : { kind: sign, operand: this.nested(() => this.unary(false)) }
    const value = this.postfix(operand)
    return withFilter ? this.filtersAndTests(value) : value
  }

  primary(): Expression {
    const token = this.next()
    if (token.type === "name") {
      const constant = constants.get(token.value)
      if (constant !== undefined) return { kind: "constant", value: constant }
      return unsupportedNames.has(token.value)
        ? unsupported(token.value, token.line)
        : { kind: "name", name: token.value }
    }
    if (token.type === "string") {
      let { value } = token
      while (this.is("string")) value += String(this.next().value)
      return { kind: "constant", value }
    }
    if (token.type === "number") return { kind: "constant", value: token.value }
    if (token.type === "sign") {
      if (token.value === "(") {
        const inner = this.nested(() => this.tuple(true, undefined, true))
        this.expect("sign", ")")
        return inner
      }
      if (token.value === "[") return { kind: "list", items: this.listed("]", () => this.expression()) }
      if (token.value === "{") {
        const entries = this.listed("}", () => {
          const key = this.expression()
          this.expect("sign", ":")
          return [key, this.expression()] as const
        })
        return { kind: "dict", entries }
      }
    }
    this.index--
    return this.fail(`unexpected '${this.describe()}'`)
  }

  /** Parses items separated by commas; a trailing comma is allowed. */
  listed<A>(close: string, parse: () => A): ReadonlyArray<A> {
    const items: Array<A> = []
    while (!this.is("sign", close)) {
      if (items.length > 0) this.expect("sign", ",")
      if (this.is("sign", close)) break
      items.push(parse())
    }
    this.expect("sign", close)
    return items
  }

  postfix(start: Expression): Expression {
    let value = start
    for (let links = 1; ; links++) {
      this.chained(links)
      if (this.skip("sign", ".")) value = this.attribute(value)
      else if (this.skip("sign", "[")) value = this.subscript(value)
      else if (this.is("sign", "(")) value = this.call(value)
      else return value
    }
  }

  filtersAndTests(start: Expression): Expression {
    let value = start
    for (let links = 1; ; links++) {
      this.chained(links)
      if (this.skip("sign", "|")) value = this.filter(value)
      else if (this.skip("name", "is")) value = this.test(value)
      else if (this.is("sign", "(")) value = this.call(value)
      else return value
    }
  }

  attribute(of: Expression): Expression {
    const token = this.next()
    if (token.type === "number" && (typeof token.value === "number" || typeof token.value === "bigint")) {
      return { kind: "item", of, key: { kind: "constant", value: token.value } }
    }
    return token.type === "name"
      ? { kind: "attribute", of, name: token.value }
      : this.fail("expected name or number", token.line)
  }

  subscript(of: Expression): Expression {
    const isSliceEnd = () => this.is("sign", "]") || this.is("sign", ",")
    const bound = () => (isSliceEnd() || this.is("sign", ":") ? undefined : this.expression())
    const from = bound()
    let result: Expression
    if (this.skip("sign", ":")) {
      const to = bound()
      const by = this.skip("sign", ":") ? bound() : undefined
      result = { kind: "slice", of, from, to, by }
    } else if (from === undefined) {
      return this.fail("expected subscript expression")
    } else {
      result = { kind: "item", of, key: from }
    }
    if (this.is("sign", ",")) unsupported("a subscript with a comma", this.current.line)
    this.expect("sign", "]")
    return result
  }

  call(callee: Expression): Expression {
    if (callee.kind === "attribute" && unsupportedMethods.has(callee.name)) {
      unsupported(`the method ${callee.name}`, this.current.line)
    }
    return { kind: "call", callee, args: this.args() }
  }

  args(): CallArguments {
    const { line } = this.expect("sign", "(")
    const positional: Array<Expression> = []
    const keyword: Array<readonly [string, Expression]> = []
    let spread: Expression | undefined
    let keywordSpread: Expression | undefined
    const ensure = (isValid: boolean) => {
      if (!isValid) this.fail("invalid syntax for function call expression", line)
    }
    for (let isFirst = true; !this.is("sign", ")"); isFirst = false) {
      if (!isFirst) this.expect("sign", ",")
      if (!isFirst && this.is("sign", ")")) break
      if (this.skip("sign", "*")) {
        ensure(spread === undefined && keywordSpread === undefined)
        spread = this.expression()
      } else if (this.skip("sign", "**")) {
        ensure(keywordSpread === undefined)
        keywordSpread = this.expression()
      } else if (this.is("name") && this.is("sign", "=", 1)) {
        ensure(keywordSpread === undefined)
        const name = this.name()
        this.index++
        ensure(!keyword.some(([other]) => other === name))
        keyword.push([name, this.expression()])
      } else {
        ensure(spread === undefined && keywordSpread === undefined && keyword.length === 0)
        positional.push(this.expression())
      }
    }
    this.expect("sign", ")")
    return { positional, keyword, spread, keywordSpread }
  }

  dotted(): string {
    let name = this.name()
    while (this.skip("sign", ".")) name += `.${this.name()}`
    return name
  }

  /** Parses one filter, after its bar. */
  filter(of: Expression): Expression {
    const { line } = this.current
    const name = this.dotted()
    if (filterNamed(name) === undefined) this.unknown("filter", name, line)
    return { kind: "filter", of, name, args: this.is("sign", "(") ? this.args() : noArguments }
  }

  /** Parses the filters of a block. */
  filters(start: Expression): Expression {
    let value = start
    for (let links = 1; this.skip("sign", "|"); links++) {
      this.chained(links)
      value = this.filter(value)
    }
    return value
  }

  /** Parses one test, after its `is`. */
  test(of: Expression): Expression {
    const { line } = this.current
    const isNegated = this.skip("name", "not")
    const name = this.dotted()
    if (testNamed(name) === undefined) this.unknown("test", name, line)
    let args = noArguments
    if (this.is("sign", "(")) args = this.args()
    else if (this.takesOperand()) {
      if (this.is("name", "is")) this.fail("You cannot chain multiple tests with is")
      args = { ...noArguments, positional: [this.postfix(this.primary())] }
    }
    const test: Expression = { kind: "test", of, name, args }
    return isNegated ? { kind: "not", operand: test } : test
  }

  takesOperand(): boolean {
    if (this.is("name")) return !["else", "or", "and"].some((word) => this.is("name", word))
    return this.is("string") || this.is("number") || this.is("sign", "[") || this.is("sign", "{")
  }
}

/** Parses a whole template; `depth` limits its nesting. */
export const parse = (source: string, depth: number): Body => new Parser(source, depth).template()
