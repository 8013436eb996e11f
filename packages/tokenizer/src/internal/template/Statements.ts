/** Compiles statements to functions that write the rendered text. */
import { none } from "./Arguments.ts"
import { raise, typeError, unsupported } from "./Failure.ts"
import type { Evaluate } from "./Expressions.ts"
import { compile, compileArguments, invoke, readVariable } from "./Expressions.ts"
import { str } from "./Printing.ts"
import { Frame, Output } from "./Run.ts"
import { Scope, undeclared, Unit } from "./Scopes.ts"
import type { Body, Parameter, Statement, Target } from "./Syntax.ts"
import type { Arguments, Value } from "./Value.ts"
import {
  Callable,
  collect,
  Dict,
  Generator,
  isIterable,
  iterate,
  Loop,
  Namespace,
  sizeOf,
  textOf,
  truthy,
  Tuple,
  typeName,
  Undefined,
} from "./Value.ts"

/** How a statement ended: normally, or by leaving the loop or the current iteration. */
type End = "done" | "break" | "continue"

type Execute = (frame: Frame, out: Output) => End

type Assign = (frame: Frame, value: Value) => void

/** Initializes the variables of a scope. */
const compileEntry = (scope: Scope): ((frame: Frame) => void) => {
  const steps = Array.from(scope.starts).flatMap(([{ slot }, start]): ReadonlyArray<(frame: Frame) => void> => {
    switch (start.kind) {
      case "parameter":
        return []
      case "undefined":
        return [(frame) => (frame.slots[slot] = undefined)]
      case "global":
        return [(frame) => (frame.slots[slot] = frame.run.globals.get(start.name))]
      case "copy": {
        const read = readVariable(scope, start.of)
        return [(frame) => (frame.slots[slot] = read(frame))]
      }
    }
  })
  return (frame) => {
    for (const step of steps) step(frame)
  }
}

const compileTarget = (scope: Scope, target: Target): Assign => {
  switch (target.kind) {
    case "name": {
      const slot = scope.find(target.name)?.slot ?? 0
      return (frame, value) => {
        frame.slots[slot] = value
      }
    }
    case "namespace": {
      const namespace = compile(scope, { kind: "name", name: target.name })
      const { attribute } = target
      return (frame, value) => {
        const found = namespace(frame)
        if (!(found instanceof Namespace))
          raise("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
        else if (attribute.startsWith("_")) {
          raise("SecurityError", "Chat templates cannot store underscore-prefixed attributes on a namespace")
        } else found.attributes.set(attribute, value)
      }
    }
    case "tuple": {
      const items = target.items.map((item) => compileTarget(scope, item))
      return (frame, value) => {
        if (!isIterable(value)) return typeError(`cannot unpack non-iterable ${typeName(value)} object`)
        const values = collect(frame.meter, value)
        if (values.length !== items.length) {
          return raise("ValueError", `expected ${items.length} values to unpack, got ${values.length}`)
        }
        items.forEach((assign, index) => assign(frame, values[index] ?? null))
      }
    }
  }
}

const compileSet = (scope: Scope, statement: Extract<Statement, { kind: "set" }>): Execute => {
  const value = compile(scope, statement.value)
  const assign = compileTarget(scope, statement.target)
  return (frame) => {
    assign(frame, value(frame))
    return "done"
  }
}

const compileIf = (scope: Scope, statement: Extract<Statement, { kind: "if" }>): Execute => {
  const branches = [statement, ...statement.elifs].flatMap((branch) =>
    branch.kind === "if" ? [[compile(scope, branch.test), compileBody(scope, branch.body)] as const] : [],
  )
  const otherwise = compileBody(scope, statement.otherwise)
  return (frame, out) => {
    for (const [test, body] of branches) if (truthy(test(frame))) return body(frame, out)
    return otherwise(frame, out)
  }
}

/** Filters the items of a loop lazily, because the loop may change what the condition depends on. */
const compileSelection = (
  scope: Scope,
  { target, test }: Extract<Statement, { kind: "for" }>,
): ((frame: Frame, items: Iterable<Value>) => Iterable<Value>) | undefined => {
  if (test === undefined) return undefined
  const inner = scope.inner()
  inner.declareTarget(target)
  inner.expression(test)
  const enter = compileEntry(inner)
  const assign = compileTarget(inner, target)
  const passes = compile(inner, test)
  return function* (frame, items) {
    enter(frame)
    for (const item of items) {
      frame.meter.spend(1)
      assign(frame, item)
      if (truthy(passes(frame))) yield item
    }
  }
}

const compileFor = (scope: Scope, statement: Extract<Statement, { kind: "for" }>): Execute => {
  const items = compile(scope, statement.items)
  const select = compileSelection(scope, statement)
  const inner = scope.inner()
  const loopSlot = inner.declare("loop").slot
  inner.declareTarget(statement.target)
  inner.body(statement.body)
  const assign = compileTarget(inner, statement.target)
  const body = compileBody(inner, statement.body)
  const enter = compileEntry(inner)
  const after = scope.inner()
  after.body(statement.otherwise)
  const otherwise = compileBody(after, statement.otherwise)
  const enterOtherwise = compileEntry(after)
  return (frame, out) => {
    const value = items(frame)
    const all = iterate(value)
    const isSelected = select !== undefined
    const size = isSelected || value instanceof Undefined ? undefined : sizeOf(value)
    const loop = new Loop(isSelected ? new Generator("generator", select(frame, all)) : all, size)
    let hasFinishedOne = false
    for (;;) {
      const step = loop.advance()
      if (step.done === true) break
      frame.meter.spend(1)
      frame.slots[loopSlot] = loop
      assign(frame, step.value)
      enter(frame)
      const end = body(frame, out)
      if (end === "break") break
      // jinja2 does not count an iteration that `continue` ended early.
      if (end === "done") hasFinishedOne = true
    }
    if (hasFinishedOne) return "done"
    enterOtherwise(frame)
    return otherwise(frame, out)
  }
}

/** Compiles a macro. Its body may also use `caller`, `kwargs` and `varargs`. */
const compileMacro = (
  scope: Scope,
  name: string,
  parameters: ReadonlyArray<Parameter>,
  body: Body,
): ((frame: Frame) => Callable) => {
  const unit = new Unit(scope.unit)
  const inner = scope.inner(unit)
  inner.parameters(parameters)
  inner.body(body)
  const extras = undeclared(body, ["caller", "kwargs", "varargs"])
  const declared = new Set(parameters.map((parameter) => parameter.name))
  const extra = (wanted: string) => (extras.has(wanted) && !declared.has(wanted) ? inner.declare(wanted) : undefined)
  const [caller, kwargs, varargs] = [extra("caller"), extra("kwargs"), extra("varargs")]
  const slots = parameters.map((parameter) => inner.find(parameter.name)?.slot ?? 0)
  const fallbacks = parameters.map(({ fallback, name }): Evaluate => {
    const missing = new Undefined(`parameter '${name}' was not provided`)
    return fallback === undefined ? () => missing : compile(inner, fallback)
  })
  const run = compileBody(inner, body)
  const enter = compileEntry(inner)

  const bindArguments = (frame: Frame, { keyword, positional }: Arguments): void => {
    const rest = new Map(keyword)
    const given = parameters.map((parameter, index): Value | undefined => {
      if (index < positional.length) return positional[index]
      const value = rest.get(parameter.name)
      rest.delete(parameter.name)
      return value
    })
    if (caller !== undefined) {
      frame.slots[caller.slot] = rest.get("caller") ?? new Undefined("No caller defined")
      rest.delete("caller")
    }
    if (kwargs !== undefined) frame.slots[kwargs.slot] = new Dict(rest)
    else if (rest.size > 0) typeError(`macro '${name}' takes no keyword argument '${[...rest.keys()][0]}'`)
    if (varargs !== undefined) frame.slots[varargs.slot] = new Tuple(positional.slice(parameters.length))
    else if (positional.length > parameters.length) {
      typeError(`macro '${name}' takes not more than ${parameters.length} argument(s)`)
    }
    slots.forEach((slot, index) => (frame.slots[slot] = given[index]))
    enter(frame)
    slots.forEach((slot, index) => {
      if (frame.slots[slot] === undefined) frame.slots[slot] = fallbacks[index]?.(frame)
    })
  }

  return (outer) =>
    new Callable(name, (args) =>
      outer.meter.nested(() => {
        outer.meter.spend(8)
        const frame = new Frame(outer.run, unit.size, outer)
        const { line } = outer.run
        bindArguments(frame, args)
        const out = new Output(outer.meter)
        run(frame, out)
        outer.run.line = line
        outer.meter.join(out.text.length)
        return out.text
      }),
    )
}

/** Compiles a body whose text is captured; returns the text and how the body ended. */
const compileCapture = (scope: Scope, body: Body): ((frame: Frame) => readonly [string, End]) => {
  scope.body(body)
  const run = compileBody(scope, body)
  const enter = compileEntry(scope)
  return (frame) => {
    enter(frame)
    const out = new Output(frame.meter)
    const end = run(frame, out)
    return [out.text, end]
  }
}

const compileSetBlock = (scope: Scope, statement: Extract<Statement, { kind: "setBlock" }>): Execute => {
  const inner = scope.inner()
  inner.expression(statement.filter)
  const capture = compileCapture(inner, statement.body)
  const filter = compile(inner, statement.filter)
  const assign = compileTarget(scope, statement.target)
  return (frame) => {
    const [text, end] = capture(frame)
    if (end !== "done") return end
    frame.captured = text
    assign(frame, filter(frame))
    return "done"
  }
}

const compileFilterBlock = (scope: Scope, statement: Extract<Statement, { kind: "filterBlock" }>): Execute => {
  const inner = scope.inner()
  const capture = compileCapture(inner, statement.body)
  inner.expression(statement.filter)
  const filter = compile(inner, statement.filter)
  return (frame, out) => {
    const [text, end] = capture(frame)
    if (end !== "done") return end
    frame.captured = text
    const value = filter(frame)
    out.write(textOf(value) ?? unsupported("a block filter with a result other than a string"))
    return "done"
  }
}

const compileWith = (scope: Scope, statement: Extract<Statement, { kind: "with" }>): Execute => {
  const inner = scope.inner()
  for (const [target] of statement.bindings) inner.declareTarget(target)
  inner.body(statement.body)
  const bindings = statement.bindings.map(
    ([target, value]) => [compileTarget(inner, target), compile(scope, value)] as const,
  )
  const body = compileBody(inner, statement.body)
  const enter = compileEntry(inner)
  return (frame, out) => {
    enter(frame)
    for (const [assign, value] of bindings) assign(frame, value(frame))
    return body(frame, out)
  }
}

const compileCallBlock = (scope: Scope, statement: Extract<Statement, { kind: "callBlock" }>): Execute => {
  const caller = compileMacro(scope, "caller", statement.parameters, statement.body)
  const callee = compile(scope, statement.call.callee)
  const args = compileArguments(scope, statement.call.args)
  return (frame, out) => {
    const called = callee(frame)
    const { keyword, positional } = args(frame)
    const result = invoke(frame, called, { positional, keyword: new Map(keyword).set("caller", caller(frame)) })
    out.write(textOf(result) ?? unsupported("a call block with a result other than a string"))
    return "done"
  }
}

/** Renders the body as if the tags were absent, except that it has its own scope. */
const compileGeneration = (scope: Scope, statement: Extract<Statement, { kind: "generation" }>): Execute => {
  const body = compileMacro(scope, "generation", [], statement.body)
  return (frame, out) => {
    out.write(str(frame.meter, body(frame).call(none)))
    return "done"
  }
}

const compileStatement = (scope: Scope, statement: Statement): Execute => {
  switch (statement.kind) {
    case "text": {
      const { text } = statement
      return (_, out) => {
        out.write(text)
        return "done"
      }
    }
    case "print": {
      const value = compile(scope, statement.value)
      return (frame, out) => {
        out.write(str(frame.meter, value(frame)))
        return "done"
      }
    }
    case "if":
      return compileIf(scope, statement)
    case "for":
      return compileFor(scope, statement)
    case "set":
      return compileSet(scope, statement)
    case "setBlock":
      return compileSetBlock(scope, statement)
    case "macro": {
      const make = compileMacro(scope, statement.name, statement.parameters, statement.body)
      const assign = compileTarget(scope, { kind: "name", name: statement.name })
      return (frame) => {
        assign(frame, make(frame))
        return "done"
      }
    }
    case "callBlock":
      return compileCallBlock(scope, statement)
    case "generation":
      return compileGeneration(scope, statement)
    case "filterBlock":
      return compileFilterBlock(scope, statement)
    case "with":
      return compileWith(scope, statement)
    case "break":
    case "continue": {
      const { kind } = statement
      return () => kind
    }
  }
}

const compileBody = (scope: Scope, body: Body): Execute => {
  const statements = body.map((statement) => [statement.line, compileStatement(scope, statement)] as const)
  return (frame, out) => {
    for (const [line, execute] of statements) {
      frame.run.line = line
      frame.meter.spend(1)
      const end = execute(frame, out)
      if (end !== "done") return end
    }
    return "done"
  }
}

/** Compiles a whole template. */
export const compileTemplate = (body: Body): ((frame: (size: number) => Frame) => string) => {
  const unit = new Unit(undefined)
  const scope = new Scope(unit)
  scope.body(body)
  const run = compileBody(scope, body)
  const enter = compileEntry(scope)
  return (makeFrame) => {
    const frame = makeFrame(unit.size)
    enter(frame)
    const out = new Output(frame.meter)
    run(frame, out)
    return out.text
  }
}
