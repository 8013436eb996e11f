/** Explores a function with inputs that reach new code. */
import type { Coverage } from "./Coverage.ts"
import { type Dice, dice, mutate } from "./Mutator.ts"

/** Runs one input; returns what is wrong with the function's behavior, if anything. */
export type Run = (input: Uint8Array) => Promise<string | undefined> | string | undefined

export interface Options {
  readonly run: Run
  readonly corpus: ReadonlyArray<Uint8Array>
  readonly coverage: Coverage
  readonly seed: number
  /** When to stop, as the time of `performance.now()`. */
  readonly until: number
}

export interface Finding {
  readonly problem: string
  readonly input: Uint8Array
}

export interface Explored {
  readonly runs: number
  /** Inputs that each reached code that no earlier one reached. */
  readonly corpus: ReadonlyArray<Uint8Array>
  readonly finding: Finding | undefined
}

const longest = 4096
/** Taking coverage costs more than most runs, so it is taken for many at once. */
const batchSize = 128

/** Chooses an input, more often one of the recent ones: they are at the border of what is known. */
const chosen = (corpus: ReadonlyArray<Uint8Array>, random: Dice): Uint8Array => {
  const from = random(2) === 0 ? Math.max(0, corpus.length - 8) : 0
  return corpus[from + random(corpus.length - from)] ?? new Uint8Array()
}

class Explorer {
  runs = 0
  readonly corpus: Array<Uint8Array> = []
  private readonly run: Run
  private readonly coverage: Coverage

  constructor({ coverage, run }: Options) {
    this.run = run
    this.coverage = coverage
  }

  /** Runs inputs and returns the first that misbehaves. */
  async runAll(inputs: ReadonlyArray<Uint8Array>): Promise<Finding | undefined> {
    for (const input of inputs) {
      this.runs++
      const problem = await this.run(input)
      if (problem !== undefined) return { problem, input }
    }
    return undefined
  }

  /** Runs inputs and keeps those that reach code that no earlier one reached. They are found by halving. */
  async keepNew(inputs: ReadonlyArray<Uint8Array>): Promise<Finding | undefined> {
    const finding = await this.runAll(inputs)
    if (finding !== undefined) return finding
    const blocks = this.coverage.take()
    if (blocks.length === 0) return undefined
    const [only] = inputs
    if (inputs.length === 1 && only !== undefined) this.corpus.push(only)
    const middle = inputs.length >> 1
    const found =
      inputs.length === 1
        ? undefined
        : ((await this.keepNew(inputs.slice(0, middle))) ?? (await this.keepNew(inputs.slice(middle))))
    // Also what only ran by chance, such as a timer, so that it is not looked for again.
    this.coverage.add(blocks)
    return found
  }
}

/** Runs mutated inputs until one misbehaves or the time is over. */
export const explore = async (options: Options): Promise<Explored> => {
  const { seed, until } = options
  const random = dice(seed)
  const explorer = new Explorer(options)
  const { corpus } = explorer
  let finding: Finding | undefined
  for (const input of options.corpus) finding ??= await explorer.keepNew([input])
  while (finding === undefined && performance.now() < until) {
    const batch = Array.from({ length: batchSize }, () => mutate(chosen(corpus, random), random, corpus, longest))
    finding = await explorer.keepNew(batch)
    // Lets timers and messages through.
    await new Promise((resume) => setImmediate(resume))
  }
  return { runs: explorer.runs, corpus, finding }
}
