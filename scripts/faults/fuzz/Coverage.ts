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

/**
 * Returns whether an offset in a bundle of esbuild is in a module whose path passes the filter. A comment with the path
 * precedes each module.
 */
export const modulesOf = (bundle: string, isIncluded: (path: string) => boolean): ((offset: number) => boolean) => {
  const starts = Array.from(bundle.matchAll(/^\/\/ (\S+\.\w+)$/gm), ({ 1: path = "", index }) => ({
    index,
    isIn: isIncluded(path),
  }))
  return (offset) => starts.findLast(({ index }) => index <= offset)?.isIn === true
}

/**
 * Starts to measure the functions of scripts that pass the filters; the second is asked once for each function. Without
 * it, code of libraries that happens to run for the first time looks like progress.
 */
export const start = (isScript: (url: string) => boolean, isMeasured: (offset: number) => boolean): Coverage => {
  const session = new Session()
  session.connect()
  const known = new Set<string>()
  const all = new Blocks()
  const filtered = new Map<number, boolean>()
  const passes = (offset: number): boolean => {
    const passed = filtered.get(offset) ?? isMeasured(offset)
    filtered.set(offset, passed)
    return passed
  }
  // The inspector of the own thread answers before `post` returns.
  session.post("Profiler.enable")
  session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true })
  return {
    take: () => {
      const blocks: Array<string> = []
      session.post("Profiler.takePreciseCoverage", (error, taken) => {
        if (error !== null) return
        for (const { functions, scriptId, url } of taken.result) {
          if (!isScript(url)) continue
          for (const one of functions)
            if (passes(one.ranges[0]?.startOffset ?? 0)) blocks.push(...all.ran(scriptId, one))
        }
      })
      return blocks.filter((block) => !known.has(block))
    },
    add: (blocks) => {
      for (const block of blocks) known.add(block)
    },
    stop: () => session.disconnect(),
  }
}
