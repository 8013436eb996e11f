/** The syntax tree of a template, following jinja2. */
import type { ArithmeticSign } from "./Operators.ts"
import type { Value } from "./Value.ts"

export interface CallArguments {
  readonly positional: ReadonlyArray<Expression>
  readonly keyword: ReadonlyArray<readonly [string, Expression]>
  readonly spread: Expression | undefined
  readonly keywordSpread: Expression | undefined
}

export type ComparisonSign = "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not in"

export type Expression =
  | { readonly kind: "constant"; readonly value: Value }
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "list" | "tuple"; readonly items: ReadonlyArray<Expression> }
  | { readonly kind: "dict"; readonly entries: ReadonlyArray<readonly [Expression, Expression]> }
  | { readonly kind: "negate" | "plus" | "not"; readonly operand: Expression }
  | {
      readonly kind: "arithmetic"
      readonly sign: ArithmeticSign
      readonly left: Expression
      readonly right: Expression
    }
  | { readonly kind: "and" | "or"; readonly left: Expression; readonly right: Expression }
  | {
      readonly kind: "compare"
      readonly first: Expression
      readonly rest: ReadonlyArray<readonly [ComparisonSign, Expression]>
    }
  | { readonly kind: "concat"; readonly parts: ReadonlyArray<Expression> }
  | {
      readonly kind: "choice"
      readonly test: Expression
      readonly chosen: Expression
      readonly otherwise: Expression | undefined
    }
  | { readonly kind: "attribute"; readonly of: Expression; readonly name: string }
  | { readonly kind: "item"; readonly of: Expression; readonly key: Expression }
  | {
      readonly kind: "slice"
      readonly of: Expression
      readonly from: Expression | undefined
      readonly to: Expression | undefined
      readonly by: Expression | undefined
    }
  | { readonly kind: "call"; readonly callee: Expression; readonly args: CallArguments }
  | { readonly kind: "filter"; readonly of: Expression; readonly name: string; readonly args: CallArguments }
  | { readonly kind: "test"; readonly of: Expression; readonly name: string; readonly args: CallArguments }
  /** The rendered text of the surrounding block; occurs only as the operand of a block's filters. */
  | { readonly kind: "captured" }

export type Target =
  | { readonly kind: "name"; readonly name: string }
  | { readonly kind: "tuple"; readonly items: ReadonlyArray<Target> }
  | { readonly kind: "namespace"; readonly name: string; readonly attribute: string }

export interface Parameter {
  readonly name: string
  readonly fallback: Expression | undefined
}

export type Body = ReadonlyArray<Statement>

export type Statement = { readonly line: number } & (
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "print"; readonly value: Expression }
  | {
      readonly kind: "if"
      readonly test: Expression
      readonly body: Body
      readonly elifs: Body
      readonly otherwise: Body
    }
  | {
      readonly kind: "for"
      readonly target: Target
      readonly items: Expression
      readonly test: Expression | undefined
      readonly body: Body
      readonly otherwise: Body
    }
  | { readonly kind: "set"; readonly target: Target; readonly value: Expression }
  | { readonly kind: "setBlock"; readonly target: Target; readonly filter: Expression; readonly body: Body }
  | {
      readonly kind: "macro"
      readonly name: string
      readonly parameters: ReadonlyArray<Parameter>
      readonly body: Body
    }
  | {
      readonly kind: "callBlock"
      readonly call: Extract<Expression, { kind: "call" }>
      readonly parameters: ReadonlyArray<Parameter>
      readonly body: Body
    }
  | { readonly kind: "generation"; readonly body: Body }
  | { readonly kind: "filterBlock"; readonly filter: Expression; readonly body: Body }
  | { readonly kind: "with"; readonly bindings: ReadonlyArray<readonly [Target, Expression]>; readonly body: Body }
  | { readonly kind: "break" | "continue" }
)

const argumentsOf = (args: CallArguments): ReadonlyArray<Expression> => [
  ...args.positional,
  ...args.keyword.map(([, value]) => value),
  ...(args.spread === undefined ? [] : [args.spread]),
  ...(args.keywordSpread === undefined ? [] : [args.keywordSpread]),
]

/** Returns the operands of an expression in the order of evaluation. */
export const partsOf = (expression: Expression): ReadonlyArray<Expression> => {
  switch (expression.kind) {
    case "constant":
    case "name":
    case "captured":
      return []
    case "list":
    case "tuple":
      return expression.items
    case "dict":
      return expression.entries.flat()
    case "negate":
    case "plus":
    case "not":
      return [expression.operand]
    case "arithmetic":
    case "and":
    case "or":
      return [expression.left, expression.right]
    case "compare":
      return [expression.first, ...expression.rest.map(([, operand]) => operand)]
    case "concat":
      return expression.parts
    case "choice":
      return [expression.test, expression.chosen, ...(expression.otherwise === undefined ? [] : [expression.otherwise])]
    case "attribute":
      return [expression.of]
    case "item":
      return [expression.of, expression.key]
    case "slice":
      return [expression.of, expression.from, expression.to, expression.by].filter((part) => part !== undefined)
    case "call":
      return [expression.callee, ...argumentsOf(expression.args)]
    case "filter":
    case "test":
      return [expression.of, ...argumentsOf(expression.args)]
  }
}

/** Returns the names that a target assigns. */
export const namesOf = (target: Target): ReadonlyArray<string> => {
  if (target.kind === "name") return [target.name]
  return target.kind === "tuple" ? target.items.flatMap(namesOf) : []
}
