/** Visits every reachable state of a model, and checks that every branch of a module was taken on the way. */
import { Session } from "node:inspector"

/** The result of a step of a model: the next state, or a violation. */
export interface Move<S> {
  readonly name: string
  readonly to: S
  readonly violation?: string | undefined
}

export interface Model<S> {
  readonly initial: S
  readonly moves: (state: S) => ReadonlyArray<Move<S>>
}

export interface Found<S> {
  readonly states: number
  readonly transitions: number
  /** States without moves. */
  readonly ends: ReadonlyArray<S>
  /** The first violation, with the moves that lead to it. */
  readonly violation: string | undefined
}

/** Visits states breadth first. Reaching `cap` states is an error: the exploration would not be complete. */
export const explore = <S>({ initial, moves }: Model<S>, cap: number): Found<S> => {
  const seen = new Map<string, { readonly from: string | undefined; readonly move: string }>()
  const keyOf = (state: S) => JSON.stringify(state)
  const ends: Array<S> = []
  let transitions = 0
  const first = keyOf(initial)
  seen.set(first, { from: undefined, move: "" })
  let queue: Array<readonly [string, S]> = [[first, initial]]
  const pathTo = (key: string): ReadonlyArray<string> => {
    const { from, move } = seen.get(key) ?? { from: undefined, move: "" }
    return from === undefined ? [] : [...pathTo(from), move]
  }
  while (queue.length > 0) {
    const next: typeof queue = []
    for (const [key, state] of queue) {
      const possible = moves(state)
      if (possible.length === 0) ends.push(state)
      for (const { name, to, violation } of possible) {
        transitions++
        if (violation !== undefined) {
          const path = [...pathTo(key), name].join(" → ")
          return {
            states: seen.size,
            transitions,
            ends,
            violation: `${violation} after ${path}: ${JSON.stringify(to)}`,
          }
        }
        const target = keyOf(to)
        if (seen.has(target)) continue
        seen.set(target, { from: key, move: name })
        if (seen.size > cap) throw new Error(`more than ${cap} states`)
        next.push([target, to])
      }
    }
    queue = next
  }
  return { states: seen.size, transitions, ends, violation: undefined }
}

interface Range {
  readonly startOffset: number
  readonly endOffset: number
  readonly count: number
}

interface ScriptCoverage {
  readonly scriptId: string
  readonly url: string
  readonly functions: ReadonlyArray<{ readonly functionName: string; readonly ranges: ReadonlyArray<Range> }>
}

/** Counts every branch that runs from now on. Modules have to be imported after this. */
export const startCoverage = (): { readonly untaken: (file: string) => ReadonlyArray<string> } => {
  const session = new Session()
  session.connect()
  const post = (method: string, parameters: object = {}): unknown => {
    let outcome: unknown
    // On the same thread, the callback runs before the call returns.
    session.post(method, parameters, (error, result) => {
      if (error !== null) throw new Error(`${method}: ${JSON.stringify(error)}`)
      outcome = result
    })
    return outcome
  }
  post("Debugger.enable")
  post("Profiler.enable")
  post("Profiler.startPreciseCoverage", { callCount: true, detailed: true })
  return {
    untaken: (file) => {
      const { result } = post("Profiler.takePreciseCoverage") as { readonly result: ReadonlyArray<ScriptCoverage> }
      const scripts = result.filter(({ url }) => url.endsWith(file))
      if (scripts.length === 0) throw new Error(`${file} was not loaded`)
      const found = scripts.flatMap(({ functions, scriptId }) => {
        const { scriptSource } = post("Debugger.getScriptSource", { scriptId }) as { readonly scriptSource: string }
        return functions.flatMap(({ functionName, ranges }) =>
          ranges
            .filter(({ count }) => count === 0)
            .map(
              ({ endOffset, startOffset }) => `${functionName}: ${scriptSource.slice(startOffset, endOffset).trim()}`,
            ),
        )
      })
      // The transform guards the exports of a module.
      return found.filter((text) => !text.endsWith(": catch {}"))
    },
  }
}

/** Returns the commands of other kinds. */
export const without = <T extends { readonly _tag: string }>(
  commands: ReadonlyArray<T>,
  tag: string,
): ReadonlyArray<T> => commands.filter(({ _tag }) => _tag !== tag)
