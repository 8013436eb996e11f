/** Runs passes over data, packed into parts of limited size. */
import { EngineError } from "../EngineError.ts"
import type { Prepared, TokenLoss } from "../Losses.ts"
import type * as AdamW from "../AdamW.ts"
import type * as Dimuon from "../Dimuon.ts"
import type { Adapter } from "./Adapter.ts"
import type { Memory } from "./Memory.ts"
import * as Orthogonal from "./Orthogonal.ts"
import { type Model, pass } from "./Transformer.ts"

/** The output of one datum, with `columns` values per token. */
export interface Output {
  readonly columns: number
  readonly logprobs: Float32Array
  readonly elementwiseLoss: Float32Array
}

/** The number of tokens computed at once, unless one datum alone has more; bounds the memory. */
const maxTokens = 2048

/** Half a gigabyte; more takes several calls. */
const maxLogits = 2 ** 27

const parts = (data: ReadonlyArray<Prepared>): ReadonlyArray<ReadonlyArray<number>> => {
  const all: Array<Array<number>> = []
  let room = 0
  for (const [index, { tokens }] of data.entries()) {
    const last = all.at(-1)
    if (last === undefined || tokens.length > room) {
      all.push([index])
      room = maxTokens - tokens.length
    } else {
      last.push(index)
      room -= tokens.length
    }
  }
  return all
}

const unrated: TokenLoss = () => ({ loss: 0, slope: 0 })

export const run = (
  model: Model,
  adapter: Adapter | undefined,
  data: ReadonlyArray<Prepared>,
  train: boolean,
): { readonly outputs: ReadonlyArray<Output>; readonly loss: number } => {
  const { config, memory } = model
  const { vocabSize } = config
  if (train) adapter?.ensureGradients()
  const outputs = data.map(({ columns, targets }): Output => ({
    columns,
    logprobs: new Float32Array(targets.length),
    elementwiseLoss: new Float32Array(targets.length),
  }))
  const known = data.some(({ isOfSequence }) => isOfSequence)
    ? run(
        model,
        adapter,
        data.map((datum) => ({ ...datum, isOfSequence: false, loss: () => unrated })),
        false,
      ).outputs
    : outputs
  const losses = data.map(({ loss }, index) => loss(known[index]?.logprobs ?? new Float32Array()))
  let total = 0
  for (const part of parts(data)) {
    const chosen = part.flatMap((index) => {
      const datum = data[index]
      const output = outputs[index]
      const loss = losses[index]
      return datum === undefined || output === undefined || loss === undefined ? [] : [{ datum, output, loss }]
    })
    const rows = chosen.reduce((sum, { datum }) => sum + datum.tokens.length, 0)
    memory.scope((alloc) => {
      const tokens = new Int32Array(rows)
      const owner = new Int32Array(rows)
      const positions = alloc(rows)
      let start = 0
      const sequences = chosen.map(({ datum }, i) => {
        const { length } = datum.tokens
        tokens.set(datum.tokens, start)
        owner.fill(i, start, start + length)
        for (let p = 0; p < length; p++) memory.ints[positions + start + p] = p
        start += length
        return { start: start - length, length }
      })
      pass(
        model,
        adapter,
        { rows, tokens, positions, sequences },
        {
          train,
          visit: (first, some, logits, exps, stats) => {
            const { floats, kernel } = memory
            let any = false
            for (let r = 0; r < some; r++) {
              const which = owner[first + r] ?? 0
              const one = chosen[which]
              const sequence = sequences[which]
              if (one === undefined || sequence === undefined) continue
              const { columns, targets } = one.datum
              const most = floats[stats + 2 * r] ?? 0
              const sum = floats[stats + 2 * r + 1] ?? 0
              const lse = most + Math.log(sum)
              let slopes = 0
              const at = (first + r - sequence.start) * columns
              const found: Array<number> = []
              for (let k = 0; k < columns; k++) {
                const logprob = (floats[logits + r * vocabSize + (targets[at + k] ?? 0)] ?? 0) - lse
                const value = one.loss(logprob, at + k)
                one.output.logprobs[at + k] = logprob
                one.output.elementwiseLoss[at + k] = value.loss
                total += value.loss
                slopes += value.slope
                found.push(value.slope)
              }
              if (!train) continue
              // d loss / d logits = sum of slopes (one-hot - softmax)
              kernel.scale(vocabSize, exps + r * vocabSize, -slopes / sum)
              for (const [k, slope] of found.entries()) {
                if (slope === 0) continue
                any = true
                const cell = exps + r * vocabSize + (targets[at + k] ?? 0)
                floats[cell] = (floats[cell] ?? 0) + slope
              }
            }
            return any
          },
        },
      )
    })
  }
  return { outputs, loss: total }
}

/** Returns one row of logits for each of `positions`, without training. */
export const logits = (
  model: Model,
  adapter: Adapter | undefined,
  tokens: Int32Array,
  positions: Int32Array,
): Float32Array => {
  const { config, memory } = model
  const { vocabSize } = config
  const rows = tokens.length
  if (positions.length * vocabSize > maxLogits)
    throw new EngineError({
      reason: "InvalidInput",
      problem: `positions: expected at most ${Math.floor(maxLogits / vocabSize)} positions per call, got ${positions.length}`,
    })
  const found = new Float32Array(positions.length * vocabSize)
  memory.scope((alloc) => {
    const at = alloc(rows)
    for (let p = 0; p < rows; p++) memory.ints[at + p] = p
    const batch = { rows, tokens, positions: at, sequences: [{ start: 0, length: rows }] }
    pass(model, adapter, batch, {
      train: false,
      onlyRows: positions,
      visit: (first, some, from) => {
        found.set(memory.floats.subarray(from, from + some * vocabSize), first * vocabSize)
        return false
      },
    })
  })
  return found
}

/** Applies an update to the weights and clears the gradients, or leaves everything else unchanged if it is not finite. */
const step = (
  { memory }: Pick<Model, "memory">,
  adapter: Adapter,
  gradClipNorm: number,
  update: (clip: number) => void,
): { readonly gradNorm: number } => {
  adapter.ensureGradients()
  adapter.ensureMoments()
  const { kernel } = memory
  const { size } = adapter.layout
  const gradNorm = Math.sqrt(kernel.sumOfSquares(size, adapter.gradients))
  if (!Number.isFinite(gradNorm)) {
    adapter.zeroGradients()
    throw new EngineError({
      reason: "NotFinite",
      problem: "the gradients are not finite; they were cleared and the weights are unchanged",
    })
  }
  const before = stateOf(memory, adapter)
  adapter.steps += 1
  update(gradClipNorm > 0 ? Math.min(1, gradClipNorm / (gradNorm + 1e-6)) : 1)
  adapter.zeroGradients()
  if (!isFinite(memory, adapter)) {
    restoreState(memory, adapter, before)
    throw new EngineError({
      reason: "NotFinite",
      problem: "the update is not finite; the gradients were cleared, and the weights and moments are unchanged",
    })
  }
  return { gradNorm }
}

export const adamw = (
  model: Pick<Model, "memory">,
  adapter: Adapter,
  { beta1, beta2, eps, gradClipNorm, learningRate, weightDecay }: ReturnType<typeof AdamW.prepare>,
): { readonly gradNorm: number } =>
  step(model, adapter, gradClipNorm, (clip) => {
    const rate = learningRate / (1 - beta1 ** adapter.steps)
    const correction = Math.sqrt(1 - beta2 ** adapter.steps)
    model.memory.kernel.adamw(
      adapter.layout.size,
      adapter.parameters,
      adapter.gradients,
      adapter.first,
      adapter.second,
      clip,
      1 - learningRate * weightDecay,
      beta1,
      1 - beta1,
      beta2,
      1 - beta2,
      rate,
      correction,
      eps,
    )
  })

export const dimuon = (
  model: Pick<Model, "memory">,
  adapter: Adapter,
  { beta1, gradClipNorm, learningRate }: ReturnType<typeof Dimuon.prepare>,
): { readonly gradNorm: number } =>
  step(model, adapter, gradClipNorm, (clip) => {
    const { first, gradients, layout, parameters, shape } = adapter
    const { kernel } = model.memory
    kernel.scale(layout.size, gradients, clip * (1 - beta1))
    kernel.scale(layout.size, first, beta1)
    kernel.add(layout.size, gradients, first)
    const norm = -learningRate * Math.sqrt(shape.rank)
    for (const { a, b, inputs, outputs } of layout.pairs) {
      Orthogonal.addFactor(model.memory, { rows: inputs, columns: shape.rank }, first + a, parameters + a, norm)
      Orthogonal.addFactor(model.memory, { rows: shape.rank, columns: outputs }, first + b, parameters + b, norm)
    }
  })

interface State {
  readonly steps: number
  readonly blocks: ReadonlyArray<{ readonly at: number; readonly values: Float32Array }>
}

/** Copies the weights, the moments and the number of steps. */
const stateOf = ({ floats }: Memory, { first, layout, parameters, second, steps }: Adapter): State => ({
  steps,
  blocks: [parameters, first, second].map((at) => ({ at, values: floats.slice(at, at + layout.size) })),
})

const restoreState = ({ floats }: Memory, adapter: Adapter, { blocks, steps }: State): void => {
  adapter.steps = steps
  for (const { at, values } of blocks) floats.set(values, at)
}

const isFinite = ({ kernel }: Memory, { first, layout, parameters, second }: Adapter): boolean =>
  [parameters, first, second].every((at) => Number.isFinite(kernel.sumOfSquares(layout.size, at)))
