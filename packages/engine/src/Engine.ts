/**
 * The engine: a base model that is frozen, adapters that are trained over it, and samples of each. Plain and
 * synchronous: whoever serves many runs it in a thread of its own. Every call ends in a value or an `EngineError`, and
 * what it refuses it refuses before anything changes.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as AdamW from "./AdamW.ts"
import { EngineError } from "./EngineError.ts"
import { Adapter, type Shape } from "./internal/Adapter.ts"
import * as Checkpoint from "./internal/Checkpoint.ts"
import * as Kernel from "./internal/Kernel.ts"
import { Memory } from "./internal/Memory.ts"
import { sample } from "./internal/Sampling.ts"
import * as Training from "./internal/Training.ts"
import type { Model } from "./internal/Transformer.ts"
import * as Weights from "./internal/Weights.ts"
import * as Losses from "./Losses.ts"
import * as ModelConfig from "./ModelConfig.ts"
import * as Random from "./Random.ts"
import * as Safetensors from "./Safetensors.ts"
import * as Sampler from "./Sampler.ts"

type Result<A> = Either.Either<A, EngineError>

/**
 * What an adapter is. What is not given: alpha 32, a seed of chance, everything trained.
 *
 * @since 0.1.0
 * @category models
 */
export interface AdapterOptions {
  readonly rank: number
  readonly alpha?: number | undefined
  readonly seed?: number | undefined
  readonly trainAttn?: boolean | undefined
  readonly trainMlp?: boolean | undefined
  readonly trainUnembed?: boolean | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface AdapterInfo extends Shape {
  readonly parameters: number
  readonly steps: number
}

/**
 * `outputs` has an entry for each datum; `columns` is 1, or K for targets of [N, K]. The names of the metrics are the
 * wire's.
 *
 * @since 0.1.0
 * @category models
 */
export interface PassResult {
  readonly outputs: ReadonlyArray<{
    readonly columns: number
    readonly logprobs: Float32Array
    readonly elementwiseLoss: Float32Array
  }>
  readonly metrics: { readonly "loss:sum": number }
}

/**
 * A sample that is computed step by step: between two steps its caller may do something else, or leave it.
 *
 * @since 0.1.0
 * @category models
 */
export interface SampleRun {
  /** True when there is a result. */
  readonly step: () => Result<boolean>
  readonly result: () => Sampler.SampleResult | undefined
  /** Gives its memory back; a finished one has done so. */
  readonly close: () => void
}

/**
 * @since 0.1.0
 * @category models
 */
export interface EngineOptions {
  /** `auto` is SIMD where there is any. Both give the same bits. */
  readonly kernel?: "auto" | "simd" | "plain" | undefined
}

/**
 * An adapter is named by its creator. The base model itself, without one, is `undefined`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Engine {
  readonly config: ModelConfig.ModelConfig
  readonly kernel: "simd" | "plain"
  /** Bytes of the kernel's memory: in use, and ever needed. */
  readonly memory: () => { readonly used: number; readonly reserved: number }
  readonly adapters: () => ReadonlyArray<string>
  readonly adapter: (id: string) => Result<AdapterInfo>
  readonly createAdapter: (id: string, options: AdapterOptions) => Result<AdapterInfo>
  readonly dropAdapter: (id: string) => Result<void>
  /** Values only. */
  readonly forward: (id: string | undefined, data: ReadonlyArray<Losses.Datum>, loss: Losses.Loss) => Result<PassResult>
  /**
   * What the model makes of the token after each of `tokens`, before any softmax: [tokens, vocabulary], row after row.
   * Of some positions only, where `positions` names them, in that order.
   */
  readonly logits: (
    id: string | undefined,
    tokens: ArrayLike<number>,
    positions?: ArrayLike<number>,
  ) => Result<Float32Array>
  /** Adds the gradients to those that the adapter has. */
  readonly forwardBackward: (id: string, data: ReadonlyArray<Losses.Datum>, loss: Losses.Loss) => Result<PassResult>
  /** Uses the gradients up. */
  readonly optimStep: (
    id: string,
    params: AdamW.AdamParams & { readonly type?: string | undefined },
  ) => Result<{ readonly gradNorm: number; readonly step: number }>
  readonly sample: (id: string | undefined, request: Sampler.SampleRequest) => Result<Sampler.SampleResult>
  readonly startSample: (id: string | undefined, request: Sampler.SampleRequest) => Result<SampleRun>
  /** A safetensors file that PEFT reads; with `optimizer`, to go on training from. Gradients are not in it. */
  readonly saveAdapter: (id: string, options?: { readonly optimizer?: boolean }) => Result<Uint8Array>
  /** A new adapter from such a file. */
  readonly loadAdapter: (
    id: string,
    file: Uint8Array,
    options?: { readonly optimizer?: boolean },
  ) => Result<AdapterInfo>
  /** The weights of an adapter that exists become those of the file; its gradients are gone. */
  readonly restoreAdapter: (
    id: string,
    file: Uint8Array,
    options?: { readonly optimizer?: boolean },
  ) => Result<AdapterInfo>
  /** `adapter_config.json` for a directory with the file of `saveAdapter` as `adapter_model.safetensors`. */
  readonly peftConfig: (id: string, baseModel: string) => Result<string>
  /** The gradients that are waiting for the next step, by the names that PEFT gives the weights. */
  readonly gradients: (id: string) => Result<ReadonlyMap<string, Safetensors.Tensor>>
}

/** What the insides throw becomes a value here; anything that is no `EngineError` is a defect. */
const attempt = <A>(body: () => A): Result<A> => {
  try {
    return Either.right(body())
  } catch (error) {
    if (error instanceof EngineError) return Either.left(error)
    throw error
  }
}

const fail = (reason: EngineError["reason"], problem: string) => new EngineError({ reason, problem })

const maxRank = 256

const shapeOf = (options: AdapterOptions): Shape => {
  const { rank } = options
  if (!Number.isSafeInteger(rank) || rank < 1 || rank > maxRank)
    throw fail("InvalidInput", `rank: expected an integer from 1 to ${maxRank}, got ${rank}`)
  const alpha = options.alpha ?? 32
  if (!(alpha > 0 && alpha < Infinity)) throw fail("InvalidInput", `alpha: expected a positive number, got ${alpha}`)
  const seed = options.seed ?? Random.anySeed()
  if (!Number.isSafeInteger(seed)) throw fail("InvalidInput", `seed: expected an integer, got ${seed}`)
  const shape = {
    rank,
    alpha,
    seed,
    trainAttn: options.trainAttn ?? true,
    trainMlp: options.trainMlp ?? true,
    trainUnembed: options.trainUnembed ?? true,
  }
  if (!shape.trainAttn && !shape.trainMlp && !shape.trainUnembed)
    throw fail("InvalidInput", "an adapter trains attention, MLP or unembedding: at least one of them")
  return shape
}

const positionsOf = (length: number, positions: ArrayLike<number> | undefined): Int32Array => {
  if (positions === undefined) return Int32Array.from({ length }, (_, i) => i)
  const strange = Array.from(positions).findIndex((at) => !(Number.isInteger(at) && at >= 0 && at < length))
  if (strange >= 0)
    throw fail("InvalidInput", `positions[${strange}]: ${positions[strange]} is not from 0 to ${length - 1}`)
  return Int32Array.from(positions)
}

/**
 * From the parsed `config.json` and the safetensors files of a model.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  files: { readonly config: unknown; readonly weights: ReadonlyArray<Uint8Array> },
  options: EngineOptions = {},
): Result<Engine> =>
  Either.gen(function* () {
    const config = yield* ModelConfig.fromJson(files.config)
    const tensors = Safetensors.join(yield* Either.all(files.weights.map((file) => Safetensors.read(file))))
    const linear = Kernel.make(options.kernel ?? "auto")
    if (linear === undefined)
      return yield* Either.left(fail("Unsupported", "this runtime has no WebAssembly SIMD: ask for the plain kernel"))
    const memory = new Memory(linear)
    const weights = yield* attempt(() => Weights.load(memory, config, tensors))
    return over({ memory, config, weights })
  })

const over = (model: Model): Engine => {
  const { config, memory } = model
  const adapters = new Map<string, Adapter>()
  const get = (id: string): Adapter => {
    const adapter = adapters.get(id)
    if (adapter === undefined) throw fail("NotFound", `there is no adapter ${JSON.stringify(id)}`)
    return adapter
  }
  const maybe = (id: string | undefined): Adapter | undefined => (id === undefined ? undefined : get(id))
  const info = (adapter: Adapter): AdapterInfo => {
    const { layout, shape, steps } = adapter
    const parameters = layout.pairs.reduce((sum, { inputs, outputs }) => sum + (inputs + outputs) * shape.rank, 0)
    return { ...shape, parameters, steps }
  }
  const create = (id: string, shape: Shape, fill: (adapter: Adapter) => void): AdapterInfo => {
    if (adapters.has(id)) throw fail("InvalidInput", `there is an adapter ${JSON.stringify(id)} already`)
    const adapter = new Adapter(memory, config, shape)
    try {
      fill(adapter)
    } catch (error) {
      adapter.free()
      throw error
    }
    adapters.set(id, adapter)
    return info(adapter)
  }
  const pass = (
    adapter: Adapter | undefined,
    data: ReadonlyArray<Losses.Datum>,
    loss: Losses.Loss,
    train: boolean,
  ): PassResult => {
    const prepared = Losses.prepare(loss, data, config)
    // A pass that breaks off leaves the gradients as they were.
    const size = adapter?.layout.size ?? 0
    const had = train && adapter !== undefined && adapter.gradients !== 0
    const before = had ? memory.floats.slice(adapter.gradients, adapter.gradients + size) : undefined
    try {
      const { loss: sum, outputs } = Training.run(model, adapter, prepared, train)
      if (!Number.isFinite(sum)) throw fail("NotFinite", `the loss is ${sum}: nothing was added to the gradients`)
      return { outputs, metrics: { "loss:sum": sum } }
    } catch (error) {
      if (train && before !== undefined && adapter !== undefined) memory.floats.set(before, adapter.gradients)
      else if (train) adapter?.zeroGradients()
      throw error
    }
  }
  const start = (id: string | undefined, request: Sampler.SampleRequest): SampleRun => {
    const adapter = maybe(id)
    const run = sample(model, adapter, Sampler.prepare(request, config, Random.anySeed))
    let result: Sampler.SampleResult | undefined
    return {
      step: () =>
        attempt(() => {
          if (result !== undefined) return true
          if (id !== undefined && adapters.get(id) !== adapter)
            throw fail("NotFound", `adapter ${JSON.stringify(id)} is gone`)
          const next = run.next()
          if (next.done === true) result = next.value
          return result !== undefined
        }),
      result: () => result,
      close: () => void run.return(undefined as never),
    }
  }

  return {
    config,
    kernel: memory.kind,
    memory: () => ({ used: memory.used, reserved: memory.bytes }),
    adapters: () => [...adapters.keys()],
    adapter: (id) => attempt(() => info(get(id))),
    createAdapter: (id, options) => attempt(() => create(id, shapeOf(options), (adapter) => adapter.initialize())),
    dropAdapter: (id) =>
      attempt(() => {
        get(id).free()
        adapters.delete(id)
      }),
    forward: (id, data, loss) => attempt(() => pass(maybe(id), data, loss, false)),
    logits: (id, tokens, positions) =>
      attempt(() => {
        const adapter = maybe(id)
        const sequence = Losses.checkSequence(tokens, config, "tokens")
        return Training.logits(model, adapter, sequence, positionsOf(sequence.length, positions))
      }),
    forwardBackward: (id, data, loss) => attempt(() => pass(get(id), data, loss, true)),
    optimStep: (id, params) =>
      attempt(() => {
        if (params.type !== undefined && params.type !== "adamw")
          throw fail("Unsupported", `optimizer ${params.type}: only AdamW is done here`)
        const adapter = get(id)
        const { gradNorm } = Training.step(model, adapter, AdamW.prepare(params))
        return { gradNorm, step: adapter.steps }
      }),
    startSample: (id, request) => attempt(() => start(id, request)),
    sample: (id, request) =>
      attempt(() => {
        const run = start(id, request)
        for (;;) {
          const done = Either.getOrThrowWith(run.step(), (error) => error)
          const result = run.result()
          if (done && result !== undefined) return result
        }
      }),
    saveAdapter: (id, options) => attempt(() => Checkpoint.save(memory, get(id), options?.optimizer ?? false)),
    loadAdapter: (id, bytes, options) =>
      attempt(() => {
        const { file, shape } = Checkpoint.open(bytes)
        return create(id, shapeOf(shape), (adapter) =>
          Checkpoint.restore(memory, adapter, file, options?.optimizer ?? false),
        )
      }),
    restoreAdapter: (id, bytes, options) =>
      attempt(() => {
        const adapter = get(id)
        Checkpoint.restore(memory, adapter, Checkpoint.open(bytes).file, options?.optimizer ?? false)
        return info(adapter)
      }),
    peftConfig: (id, baseModel) => attempt(() => Checkpoint.peftConfig(get(id), baseModel)),
    gradients: (id) => attempt(() => Checkpoint.gradients(memory, get(id))),
  }
}
