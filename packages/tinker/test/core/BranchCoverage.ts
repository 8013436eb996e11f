/** Counts which branches of a module run, with the coverage that V8 itself keeps. */
import { type Profiler, Session } from "node:inspector"

const session = new Session()

const post = <A>(method: string, params: object = {}): A => {
  let answer: { readonly result: A } | undefined
  // Within one process, the callback runs before the call returns.
  session.post(method, params, (error, result) => {
    if (error !== null) throw error
    answer = { result: result as A }
  })
  if (answer === undefined) throw new Error(`${method} gave no answer`)
  return answer.result
}

/** Starts counting. A module must be imported after this. */
export const start = (): void => {
  session.connect()
  post("Profiler.enable")
  post("Profiler.startPreciseCoverage", { callCount: true, detailed: true })
}

/** Returns the code of every branch of a module that never ran, and stops counting. */
export const unreached = (file: string): ReadonlyArray<string> => {
  const { result } = post<Profiler.TakePreciseCoverageReturnType>("Profiler.takePreciseCoverage")
  const script = result.find(({ url }) => url.endsWith(file))
  if (script === undefined) throw new Error(`${file} was not imported`)
  post("Debugger.enable")
  const { scriptSource } = post<{ scriptSource: string }>("Debugger.getScriptSource", { scriptId: script.scriptId })
  post("Debugger.disable")
  post("Profiler.stopPreciseCoverage")
  post("Profiler.disable")
  session.disconnect()
  return script.functions.flatMap(({ functionName, ranges }) =>
    ranges
      .filter(({ count }) => count === 0)
      .map(({ endOffset, startOffset }) => scriptSource.slice(startOffset, endOffset).trim())
      // The getters with which the test runner exports a module.
      .filter((code) => !code.startsWith("catch") && !code.startsWith("() => { try { return "))
      .map((code) => `${functionName}: ${code}`),
  )
}
