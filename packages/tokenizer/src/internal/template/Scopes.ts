/**
 * Resolves names to variables. jinja2 does so before anything runs: each loop, macro and block has its own names, and a
 * name assigned anywhere in one of them belongs to it from its start. Templates rely on the consequences, so this
 * module follows the same rules (jinja2's `idtracking`).
 */
import type { Body, Expression, Parameter, Statement, Target } from "./Syntax.ts"
import { namesOf, partsOf } from "./Syntax.ts"

/** The variables of one call of a macro or of the template. */
export class Unit {
  readonly parent: Unit | undefined
  size = 0
  constructor(parent: Unit | undefined) {
    this.parent = parent
  }
}

export class Variable {
  readonly unit: Unit
  readonly slot: number
  constructor(unit: Unit) {
    this.unit = unit
    this.slot = unit.size++
  }
}

/** The value of a variable when its scope is entered. */
export type Start =
  | { readonly kind: "parameter" }
  | { readonly kind: "undefined" }
  | { readonly kind: "global"; readonly name: string }
  | { readonly kind: "copy"; readonly of: Variable }

const parameter: Start = { kind: "parameter" }
const nothing: Start = { kind: "undefined" }

export class Scope {
  readonly unit: Unit
  readonly parent: Scope | undefined
  /** One variable per name, whichever branch defines it first. */
  private readonly variables: Map<string, Variable>
  private visible: Map<string, Variable>
  private stored: Set<string>
  starts: Map<Variable, Start>

  constructor(unit: Unit, parent?: Scope, branchOf?: Scope) {
    this.unit = unit
    this.parent = parent
    this.variables = branchOf?.variables ?? new Map()
    this.visible = new Map(branchOf?.visible)
    this.stored = new Set(branchOf?.stored)
    this.starts = new Map(branchOf?.starts)
  }

  inner(unit: Unit = this.unit): Scope {
    return new Scope(unit, this)
  }

  find(name: string): Variable | undefined {
    return this.visible.get(name) ?? this.parent?.find(name)
  }

  private define(name: string, start: Start): Variable {
    let variable = this.variables.get(name)
    if (variable === undefined) this.variables.set(name, (variable = new Variable(this.unit)))
    this.visible.set(name, variable)
    this.starts.set(variable, start)
    return variable
  }

  declare(name: string): Variable {
    this.stored.add(name)
    return this.define(name, parameter)
  }

  load(name: string): void {
    if (this.find(name) === undefined) this.define(name, { kind: "global", name })
  }

  store(name: string): void {
    this.stored.add(name)
    if (this.visible.has(name)) return
    const outer = this.parent?.find(name)
    this.define(name, outer === undefined ? nothing : { kind: "copy", of: outer })
  }

  expression(expression: Expression): void {
    if (expression.kind === "name") this.load(expression.name)
    for (const part of partsOf(expression)) this.expression(part)
  }

  target(target: Target): void {
    if (target.kind === "name") this.store(target.name)
    else if (target.kind === "namespace") this.load(target.name)
    else for (const item of target.items) this.target(item)
  }

  declareTarget(target: Target): void {
    for (const name of namesOf(target)) this.declare(name)
  }

  parameters(parameters: ReadonlyArray<Parameter>): void {
    for (const { name } of parameters) this.declare(name)
    for (const { fallback } of parameters) if (fallback !== undefined) this.expression(fallback)
  }

  body(body: Body): void {
    for (const statement of body) this.statement(statement)
  }

  /** Applies the effects of a statement on this scope; nested statements have scopes of their own. */
  private statement(statement: Statement): void {
    switch (statement.kind) {
      case "text":
      case "break":
      case "continue":
      case "generation":
        return
      case "print":
        return this.expression(statement.value)
      case "if":
        this.expression(statement.test)
        return this.merge([statement.body, statement.elifs, statement.otherwise].map((branch) => this.branch(branch)))
      case "for":
        return this.expression(statement.items)
      case "set":
        this.expression(statement.value)
        return this.target(statement.target)
      case "setBlock":
        return this.target(statement.target)
      case "macro":
        return this.store(statement.name)
      case "callBlock":
        return this.expression(statement.call)
      case "filterBlock":
        return this.expression(statement.filter)
      case "with":
        for (const [, value] of statement.bindings) this.expression(value)
        return
    }
  }

  private branch(body: Body): Scope {
    const scope = new Scope(this.unit, this.parent, this)
    scope.body(body)
    return scope
  }

  /** Merges branches. A variable assigned in only some of them has its outer value before them. */
  private merge(branches: ReadonlyArray<Scope>): void {
    const counts = new Map<string, number>()
    for (const branch of branches) {
      for (const name of branch.stored) if (!this.stored.has(name)) counts.set(name, (counts.get(name) ?? 0) + 1)
    }
    for (const branch of branches) {
      for (const [name, variable] of branch.visible) this.visible.set(name, variable)
      for (const [variable, start] of branch.starts) this.starts.set(variable, start)
      for (const name of branch.stored) this.stored.add(name)
    }
    for (const [name, count] of counts) {
      const variable = this.visible.get(name)
      if (count === branches.length || variable === undefined) continue
      const outer = this.parent?.find(name)
      this.starts.set(variable, outer === undefined ? { kind: "global", name } : { kind: "copy", of: outer })
    }
  }
}

/** Returns which of the names are used in the body before they are assigned, in reading order. */
export const undeclared = (body: Body, names: ReadonlyArray<string>): ReadonlySet<string> => {
  const wanted = new Set(names)
  const found = new Set<string>()
  const stores = (list: ReadonlyArray<string>) => {
    for (const name of list) wanted.delete(name)
  }
  const expression = (value: Expression | undefined): void => {
    if (value === undefined) return
    if (value.kind === "name" && wanted.has(value.name)) found.add(value.name)
    for (const part of partsOf(value)) expression(part)
  }
  const parameters = (list: ReadonlyArray<Parameter>) => {
    stores(list.map(({ name }) => name))
    for (const { fallback } of list) expression(fallback)
  }
  const all = (statements: Body): void => {
    for (const statement of statements) one(statement)
  }
  const one = (statement: Statement): void => {
    switch (statement.kind) {
      case "print":
        return expression(statement.value)
      case "if":
        expression(statement.test)
        all(statement.body)
        all(statement.elifs)
        return all(statement.otherwise)
      case "for":
        stores(namesOf(statement.target))
        expression(statement.items)
        all(statement.body)
        all(statement.otherwise)
        return expression(statement.test)
      case "set":
        stores(namesOf(statement.target))
        return expression(statement.value)
      case "setBlock":
        stores(namesOf(statement.target))
        expression(statement.filter)
        return all(statement.body)
      case "macro":
        parameters(statement.parameters)
        return all(statement.body)
      case "callBlock":
        expression(statement.call)
        parameters(statement.parameters)
        return all(statement.body)
      case "generation":
        return all(statement.body)
      case "filterBlock":
        all(statement.body)
        return expression(statement.filter)
      case "with":
        stores(statement.bindings.flatMap(([target]) => namesOf(target)))
        for (const [, value] of statement.bindings) expression(value)
        return all(statement.body)
    }
  }
  all(body)
  return found
}
