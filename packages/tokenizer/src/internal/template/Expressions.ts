/** Compiles expressions to functions of the variables, so that static decisions are made only once. */
import { Failure, raise, typeError } from "./Failure.ts"
import { filterNamed } from "./Filters.ts"
import { getAttribute, getItem } from "./Lookup.ts"
import type { Meter } from "./Meter.ts"
import { arithmetic, negate, plus, slice } from "./Operators.ts"
import { str } from "./Printing.ts"
import type { Frame } from "./Run.ts"
import type { Scope, Variable } from "./Scopes.ts"
import type { CallArguments, ComparisonSign, Expression } from "./Syntax.ts"
import { testNamed } from "./Tests.ts"
import type { Arguments, Key, Value } from "./Value.ts"
import {
  Callable,
  collect,
  compare,
  contains,
  Dict,
  equal,
  newKey,
  or,
  textOf,
  truthy,
  Tuple,
  typeName,
  Undefined,
  use,
} from "./Value.ts"

export type Evaluate = (frame: Frame) => Value

/** Returns how many calls further out the variable lives. */
const distance = (scope: Scope, variable: Variable): number => {
  let hops = 0
  for (let { unit } = scope; unit !== variable.unit && unit.parent !== undefined; unit = unit.parent) hops++
  return hops
}

const frameAt = (frame: Frame, hops: number): Frame => {
  let found = frame
  for (let left = hops; left > 0; left--) found = found.parent ?? found
  return found
}

export const readVariable = (scope: Scope, variable: Variable): ((frame: Frame) => Value | undefined) => {
  const hops = distance(scope, variable)
  const { slot } = variable
  if (hops === 0) return (frame) => frame.slots[slot]
  if (hops === 1) return (frame) => frame.parent?.slots[slot]
  return (frame) => frameAt(frame, hops).slots[slot]
}

const name = (scope: Scope, wanted: string): Evaluate => {
  const variable = scope.find(wanted)
  const missing = new Undefined(`'${wanted}' is undefined`)
  if (variable === undefined) return (frame) => or(frame.run.globals.get(wanted), missing)
  const read = readVariable(scope, variable)
  return (frame) => or(read(frame), missing)
}

const noArguments: Arguments = { positional: [], keyword: new Map() }

export const compileArguments = (scope: Scope, args: CallArguments): ((frame: Frame) => Arguments) => {
  const positional = args.positional.map((value) => compile(scope, value))
  const keyword = args.keyword.map(([key, value]) => [key, compile(scope, value)] as const)
  const spread = args.spread === undefined ? undefined : compile(scope, args.spread)
  const keywordSpread = args.keywordSpread === undefined ? undefined : compile(scope, args.keywordSpread)
  if (spread === undefined && keywordSpread === undefined) {
    if (keyword.length === 0) {
      if (positional.length === 0) return () => noArguments
      return (frame) => ({ positional: positional.map((value) => value(frame)), keyword: noArguments.keyword })
    }
    return (frame) => ({
      positional: positional.map((value) => value(frame)),
      keyword: new Map(keyword.map(([key, value]) => [key, value(frame)])),
    })
  }
  return (frame) => {
    const values = positional.map((value) => value(frame))
    const named = new Map(keyword.map(([key, value]) => [key, value(frame)]))
    if (spread !== undefined) values.push(...collect(frame.meter, spread(frame)))
    if (keywordSpread !== undefined) addKeywords(named, keywordSpread(frame))
    return { positional: values, keyword: named }
  }
}

const addKeywords = (named: Map<string, Value>, value: Value): void => {
  if (!(value instanceof Dict)) return typeError(`argument after ** must be a mapping, not ${typeName(value)}`)
  for (const [key, item] of value.entries) {
    if (typeof key !== "string") return typeError("keywords must be strings")
    if (named.has(key)) return typeError(`got multiple values for keyword argument '${key}'`)
    named.set(key, item)
  }
}

/** Calls a value if it is callable. */
export const invoke = (frame: Frame, callee: Value, args: Arguments): Value => {
  frame.meter.spend(1)
  if (callee instanceof Callable) return callee.call(args)
  return callee instanceof Undefined ? use(callee) : typeError(`'${typeName(callee)}' object is not callable`)
}

const comparison = (meter: Meter, sign: ComparisonSign, a: Value, b: Value): boolean => {
  switch (sign) {
    case "==":
      return equal(a, b)
    case "!=":
      return !equal(a, b)
    case "in":
      return contains(meter, b, a)
    case "not in":
      return !contains(meter, b, a)
    case "<":
      return compare(a, b, sign) < 0
    case "<=":
      return compare(a, b, sign) <= 0
    case ">":
      return compare(a, b, sign) > 0
    case ">=":
      return compare(a, b, sign) >= 0
  }
}

/** Charges for comparing texts, which can be long. */
const chargeComparison = (meter: Meter, a: Value, b: Value): void => {
  const one = textOf(a)
  const two = textOf(b)
  meter.spend(one === undefined || two === undefined ? 1 : 1 + Math.min(one.length, two.length) / 16)
}

const compileComparison = (scope: Scope, expression: Extract<Expression, { kind: "compare" }>): Evaluate => {
  const first = compile(scope, expression.first)
  const rest = expression.rest.map(([sign, operand]) => [sign, compile(scope, operand)] as const)
  return (frame) => {
    let left = first(frame)
    for (const [sign, operand] of rest) {
      const right = operand(frame)
      chargeComparison(frame.meter, left, right)
      if (!comparison(frame.meter, sign, left, right)) return false
      left = right
    }
    return true
  }
}

const compileDict = (scope: Scope, expression: Extract<Expression, { kind: "dict" }>): Evaluate => {
  const entries = expression.entries.map(([key, value]) => [compile(scope, key), compile(scope, value)] as const)
  return (frame) => {
    frame.meter.spend(entries.length)
    const dict = new Map<Key, Value>()
    for (const [key, value] of entries) dict.set(newKey(key(frame)), value(frame))
    return new Dict(dict)
  }
}

const concat =
  (parts: ReadonlyArray<Evaluate>): Evaluate =>
  (frame) => {
    // Evaluates all parts before printing any.
    const values = parts.map((part) => part(frame))
    let text = ""
    for (const value of values) text += str(frame.meter, value)
    frame.meter.join(text.length)
    return text
  }

const compileFilter = (scope: Scope, expression: Extract<Expression, { kind: "filter" }>): Evaluate => {
  const of = compile(scope, expression.of)
  const args = compileArguments(scope, expression.args)
  const unknown = () => raise("TemplateRuntimeError", `No filter named '${expression.name}' found.`)
  const filter = filterNamed(expression.name) ?? unknown
  return (frame) => {
    frame.meter.spend(1)
    return filter(of(frame), args(frame), frame.meter)
  }
}

const compileTest = (scope: Scope, expression: Extract<Expression, { kind: "test" }>): Evaluate => {
  const of = compile(scope, expression.of)
  const args = compileArguments(scope, expression.args)
  const unknown = () => raise("TemplateRuntimeError", `No test named '${expression.name}' found.`)
  const test = testNamed(expression.name) ?? unknown
  return (frame) => {
    frame.meter.spend(1)
    return test(of(frame), args(frame), frame.meter)
  }
}

const nothing: Evaluate = () => null

const compileSlice = (scope: Scope, expression: Extract<Expression, { kind: "slice" }>): Evaluate => {
  const parts = [expression.from, expression.to, expression.by]
  const of = compile(scope, expression.of)
  const [from = nothing, to = nothing, by = nothing] = parts.map((bound) =>
    bound === undefined ? nothing : compile(scope, bound),
  )
  const evaluate: Evaluate = (frame) => slice(frame.meter, of(frame), from(frame), to(frame), by(frame))
  if ([expression.of, ...parts].some((part) => part !== undefined && part.kind !== "constant")) return evaluate
  // jinja2 evaluates constant slices at compile time, where errors become undefined values.
  return (frame) => {
    try {
      return evaluate(frame)
    } catch (problem) {
      if (problem instanceof Failure && problem.detail.exception === "TypeError") return new Undefined(problem.message)
      throw problem
    }
  }
}

export const compile = (scope: Scope, expression: Expression): Evaluate => {
  switch (expression.kind) {
    case "constant": {
      const { value } = expression
      return () => value
    }
    case "name":
      return name(scope, expression.name)
    case "captured":
      return (frame) => frame.captured
    case "list":
    case "tuple": {
      const items = expression.items.map((item) => compile(scope, item))
      const isTuple = expression.kind === "tuple"
      return (frame) => {
        frame.meter.spend(items.length)
        const values = items.map((item) => item(frame))
        return isTuple ? new Tuple(values) : values
      }
    }
    case "dict":
      return compileDict(scope, expression)
    case "not": {
      const operand = compile(scope, expression.operand)
      return (frame) => !truthy(operand(frame))
    }
    case "negate":
    case "plus": {
      const operand = compile(scope, expression.operand)
      const change = expression.kind === "negate" ? negate : plus
      return (frame) => change(operand(frame))
    }
    case "arithmetic": {
      const left = compile(scope, expression.left)
      const right = compile(scope, expression.right)
      const { sign } = expression
      return (frame) => arithmetic(frame.meter, sign, left(frame), right(frame))
    }
    case "and": {
      const left = compile(scope, expression.left)
      const right = compile(scope, expression.right)
      return (frame) => {
        const value = left(frame)
        return truthy(value) ? right(frame) : value
      }
    }
    case "or": {
      const left = compile(scope, expression.left)
      const right = compile(scope, expression.right)
      return (frame) => {
        const value = left(frame)
        return truthy(value) ? value : right(frame)
      }
    }
    case "compare":
      return compileComparison(scope, expression)
    case "concat":
      return concat(expression.parts.map((part) => compile(scope, part)))
    case "choice": {
      const test = compile(scope, expression.test)
      const then = compile(scope, expression.chosen)
      const missing = new Undefined("the inline if-expression evaluated to false and no else section was defined.")
      const otherwise = expression.otherwise === undefined ? () => missing : compile(scope, expression.otherwise)
      return (frame) => (truthy(test(frame)) ? then(frame) : otherwise(frame))
    }
    case "attribute": {
      const of = compile(scope, expression.of)
      return (frame) => getAttribute(frame.meter, of(frame), expression.name)
    }
    case "item": {
      const of = compile(scope, expression.of)
      const key = compile(scope, expression.key)
      return (frame) => getItem(frame.meter, of(frame), key(frame))
    }
    case "slice":
      return compileSlice(scope, expression)
    case "call": {
      const callee = compile(scope, expression.callee)
      const args = compileArguments(scope, expression.args)
      return (frame) => invoke(frame, callee(frame), args(frame))
    }
    case "filter":
      return compileFilter(scope, expression)
    case "test":
      return compileTest(scope, expression)
  }
}
