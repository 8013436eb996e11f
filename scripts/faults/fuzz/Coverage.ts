/** Finds out which blocks of code have run, with V8's precise coverage. */
import { type Profiler, Session } from "node:inspector"

export interface Coverage {
  /** Returns the blocks that have run since the last call and are not known yet. */
  readonly take: () => ReadonlyArray<string>
  /** Makes blocks known. */
  readonly add: (blocks: ReadonlyArray<string>) => void
  readonly stop: () => void
}

interface Range {
  readonly startOffset: number
  readonly endOffset: number
}

const isWithin = (inner: Range, outer: Range) =>
  inner.startOffset >= outer.startOffset && inner.endOffset <= outer.endOffset

/**
 * The blocks of every function as far as they have been seen. V8 does not report a block that ran as often as the code
 * around it, so a known block has run if its function has run and no range that did not run contains it.
 */
class Blocks {
  private readonly seen = new Map<string, Map<string, Range>>()

  /** Returns the blocks of a function that have run. */
  ran(scriptId: string, { ranges }: Profiler.FunctionCoverage): ReadonlyArray<string> {
    const [whole] = ranges
    if (whole === undefined || whole.count === 0) return []
    const name = `${scriptId}:${whole.startOffset}`
    const known = this.seen.get(name) ?? new Map<string, Range>()
    this.seen.set(name, known)
    for (const range of ranges) known.set(`${name}:${range.startOffset}:${range.endOffset}`, range)
    const missed = ranges.filter(({ count }) => count === 0)
    return [...known].flatMap(([block, range]) => (missed.some((outer) => isWithin(range, outer)) ? [] : [block]))
  }
}

/** Starts to measure the scripts whose address passes the filter. */
export const start = (isMeasured: (url: string) => boolean): Coverage => {
  const session = new Session()
  session.connect()
  const known = new Set<string>()
  const all = new Blocks()
  // The inspector of the own thread answers before `post` returns.
  session.post("Profiler.enable")
  session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true })
  return {
    take: () => {
      const blocks: Array<string> = []
      session.post("Profiler.takePreciseCoverage", (error, taken) => {
        if (error !== null) return
        for (const { functions, scriptId, url } of taken.result)
          if (isMeasured(url)) for (const one of functions) blocks.push(...all.ran(scriptId, one))
      })
      return blocks.filter((block) => !known.has(block))
    },
    add: (blocks) => {
      for (const block of blocks) known.add(block)
    },
    stop: () => session.disconnect(),
  }
}
