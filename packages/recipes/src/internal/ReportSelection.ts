/** Which samples of a run a page contains. All other events are kept. */
import type { RunEvent } from "../RunEvent.ts"

type SampleEvent = Extract<RunEvent, { readonly _tag: "Sample" }>

/** Takes from the lists in turn until there are enough. */
const inTurn = <A>(lists: ReadonlyArray<ReadonlyArray<A>>, count: number): ReadonlySet<A> => {
  const taken = new Set<A>()
  const longest = Math.max(0, ...lists.map(({ length }) => length))
  for (let i = 0; i < longest; i++)
    for (const list of lists) {
      if (taken.size >= count) return taken
      const one = list[i]
      if (one !== undefined) taken.add(one)
    }
  return taken
}

/** The first and the last sample of each prompt that was sampled at several steps. */
const firstAndLast = (samples: ReadonlyArray<SampleEvent>): ReadonlyArray<SampleEvent> => {
  const byPrompt = new Map<string, [SampleEvent, SampleEvent]>()
  for (const sample of samples) {
    const key = JSON.stringify([sample.source, sample.prompt])
    const known = byPrompt.get(key)
    if (known === undefined) byPrompt.set(key, [sample, sample])
    else known[1] = sample
  }
  return [...byPrompt.values()].filter(([first, last]) => first.step < last.step).flat()
}

/** Keeps the best, the worst and the newest samples, and those that show a change. */
export const select = (events: ReadonlyArray<RunEvent>, maxSamples: number): ReadonlyArray<RunEvent> => {
  const samples = events.filter((event) => event._tag === "Sample")
  if (samples.length <= maxSamples) return events
  const rewarded = samples.filter(({ reward }) => reward !== undefined)
  const ascending = rewarded.toSorted((a, b) => (a.reward ?? 0) - (b.reward ?? 0))
  const kept = inTurn<RunEvent>(
    [firstAndLast(samples), ascending.toReversed(), ascending, samples.toReversed()],
    maxSamples,
  )
  return events.filter((event) => event._tag !== "Sample" || kept.has(event))
}

/** An event with its place in the order, from 1. */
export interface Entry {
  readonly id: number
  readonly event: RunEvent
}

/** The events of a run in this process. When there are too many samples, some are dropped; ids stay. */
export class Log {
  private entries: Array<Entry> = []
  private samples = 0
  private last = 0
  private readonly maxSamples: number

  constructor(maxSamples: number) {
    this.maxSamples = maxSamples
  }

  add(event: RunEvent): void {
    this.entries.push({ id: ++this.last, event })
    if (event._tag !== "Sample" || ++this.samples <= 2 * this.maxSamples) return
    const kept = new Set(
      select(
        this.entries.map(({ event }) => event),
        this.maxSamples,
      ),
    )
    this.entries = this.entries.filter(({ event }) => kept.has(event))
    this.samples = this.maxSamples
  }

  /** The events after a place, oldest first. */
  after(id: number): ReadonlyArray<Entry> {
    let [low, high] = [0, this.entries.length]
    while (low < high) {
      const middle = (low + high) >>> 1
      if ((this.entries[middle]?.id ?? 0) <= id) low = middle + 1
      else high = middle
    }
    return this.entries.slice(low)
  }
}
