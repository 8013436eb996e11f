/**
 * The engine: a frozen base model, trainable adapters, and sampling from both. It is synchronous, so a server should
 * run it in a separate thread. Every call returns a value or an `EngineError`; input is checked before anything
 * changes.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as AdamW from "./AdamW.ts"
import * as Dimuon from "./Dimuon.ts"
import { EngineError } from "./EngineError.ts"
import { Adapter, type Shape } from "./internal/Adapter.ts"
import * as Checkpoint from "./internal/Checkpoint.ts"
import * as Kernel from "./internal/Kernel.ts"
import { Memory } from "./internal/Memory.ts"
import { PrefixCache } from "./internal/PrefixCache.ts"
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
 * The shape of an adapter. Defaults: alpha 32, a random seed, everything trained.
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
 * The shape of an adapter, its size, and the number of optimizer steps so far.
 *
 * @since 0.1.0
 * @category models
 */
export interface AdapterInfo extends Shape {
  readonly parameters: number
  readonly steps: number
}

/**
 * The result of a pass. `outputs` has one entry per datum; `columns` is 1, or K for targets of shape [N, K]. Metrics
 * have the names used on the wire.
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
 * A sampling run that proceeds step by step, so that the caller can do other work in between or cancel it.
 *
 * @since 0.1.0
 * @category models
 */
export interface SampleRun {
  /** Returns true once there is a result. */
  readonly step: () => Result<boolean>
  readonly result: () => Sampler.SampleResult | undefined
  /** Frees the memory of the run; a finished run has already done so. */
  readonly close: () => void
}

/**
 * Options of an engine.
 *
 * @since 0.1.0
 * @category models
 */
export interface EngineOptions {
  /** `auto` uses SIMD if available. Both kernels give identical results. */
  readonly kernel?: "auto" | "simd" | "plain" | undefined
  /**
   * The most bytes to keep of sampled sequences, so that prompts that begin like them take less time; results are the
   * same. Default: 64 MiB.
   */
  readonly prefixCache?: number | undefined
}

/**
 * An engine. Adapters are referred to by the name that they were created with; `undefined` is the base model.
 *
 * @since 0.1.0
 * @category models
 */
export interface Engine {
  readonly config: ModelConfig.ModelConfig
  readonly kernel: "simd" | "plain"
  /** Returns the size of the kernel's memory in bytes: currently used, held by the cache of prefixes, and reserved. */
  readonly memory: () => { readonly used: number; readonly cached: number; readonly reserved: number }
  readonly adapters: () => ReadonlyArray<string>
  readonly adapter: (id: string) => Result<AdapterInfo>
  readonly createAdapter: (id: string, options: AdapterOptions) => Result<AdapterInfo>
  readonly dropAdapter: (id: string) => Result<void>
  /** Computes losses without gradients. */
  readonly forward: (id: string | undefined, data: ReadonlyArray<Losses.Datum>, loss: Losses.Loss) => Result<PassResult>
  /**
   * Returns the logits for the token after each of `tokens`, with shape [tokens, vocabulary] in row-major order. If
   * `positions` is given, returns only those rows, in that order.
   */
  readonly logits: (
    id: string | undefined,
    tokens: ArrayLike<number>,
    positions?: ArrayLike<number>,
  ) => Result<Float32Array>
  /** Computes losses and adds the gradients to those of the adapter. */
  readonly forwardBackward: (id: string, data: ReadonlyArray<Losses.Datum>, loss: Losses.Loss) => Result<PassResult>
  /**
   * Updates the weights and clears the gradients. An update that is not finite changes neither weights nor moments.
   * `type` is `adamw`, which is the default, or `dimuon`, which uses fewer of the parameters; it must be the same in all
   * steps of an adapter.
   */
  readonly optimStep: (
    id: string,
    params: AdamW.AdamParams & { readonly type?: string | undefined },
  ) => Result<{ readonly gradNorm: number; readonly step: number }>
  readonly sample: (id: string | undefined, request: Sampler.SampleRequest) => Result<Sampler.SampleResult>
  readonly startSample: (id: string | undefined, request: Sampler.SampleRequest) => Result<SampleRun>
  /**
   * Writes a safetensors file for PEFT, with `optimizer` including the state to resume training. Leaves out gradients.
   */
  readonly saveAdapter: (id: string, options?: { readonly optimizer?: boolean }) => Result<Uint8Array>
  /** Creates an adapter from such a file. */
  readonly loadAdapter: (
    id: string,
    file: Uint8Array,
    options?: { readonly optimizer?: boolean },
  ) => Result<AdapterInfo>
  /** Replaces the weights of an existing adapter with those of the file and clears its gradients. */
  readonly restoreAdapter: (
    id: string,
    file: Uint8Array,
    options?: { readonly optimizer?: boolean },
  ) => Result<AdapterInfo>
  /** Returns the `adapter_config.json` that belongs beside the file of `saveAdapter` (`adapter_model.safetensors`). */
  readonly peftConfig: (id: string, baseModel: string) => Result<string>
  /** Returns the gradients accumulated for the next step, by PEFT's names of the weights. */
  readonly gradients: (id: string) => Result<ReadonlyMap<string, Safetensors.Tensor>>
}

/** Converts a thrown `EngineError` to a value; anything else is a defect. */
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

const defaultPrefixCache = 64 * 2 ** 20

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
    throw fail("InvalidInput", "expected at least one of trainAttn, trainMlp and trainUnembed to be true")
  return shape
}

const positionsOf = (length: number, positions: ArrayLike<number> | undefined): Int32Array => {
  if (positions === undefined) return Int32Array.from({ length }, (_, i) => i)
  const invalid = Array.from(positions).findIndex((at) => !(Number.isInteger(at) && at >= 0 && at < length))
  if (invalid >= 0)
    throw fail("InvalidInput", `positions[${invalid}]: expected 0 to ${length - 1}, got ${positions[invalid]}`)
  return Int32Array.from(positions)
}

/**
 * Creates an engine from the parsed `config.json` and the safetensors files of a model.
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
    const { prefixCache = defaultPrefixCache } = options
    if (!(Number.isSafeInteger(prefixCache) && prefixCache >= 0))
      return yield* Either.left(fail("InvalidInput", `prefixCache: expected a number of bytes, got ${prefixCache}`))
    const linear = Kernel.make(options.kernel ?? "auto")
    if (linear === undefined)
      return yield* Either.left(fail("Unsupported", "this runtime has no WebAssembly SIMD; use the plain kernel"))
    const memory = new Memory(linear)
    const weights = yield* attempt(() => Weights.load(memory, config, tensors))
    return over({ memory, config, weights }, new PrefixCache(memory, config, prefixCache))
  })

const over = (model: Model, cache: PrefixCache): Engine => {
  const { config, memory } = model
  const changed = (adapter: Adapter) => {
    adapter.version++
    cache.dropOf(adapter)
  }
  const adapters = new Map<string, Adapter>()
  const get = (id: string): Adapter => {
    const adapter = adapters.get(id)
    if (adapter === undefined) throw fail("NotFound", `no adapter named ${JSON.stringify(id)}`)
    return adapter
  }
  const maybe = (id: string | undefined): Adapter | undefined => (id === undefined ? undefined : get(id))
  const info = (adapter: Adapter): AdapterInfo => {
    const { layout, shape, steps } = adapter
    const parameters = layout.pairs.reduce((sum, { inputs, outputs }) => sum + (inputs + outputs) * shape.rank, 0)
    return { ...shape, parameters, steps }
  }
  const create = (id: string, shape: Shape, fill: (adapter: Adapter) => void): AdapterInfo => {
    if (adapters.has(id)) throw fail("InvalidInput", `an adapter named ${JSON.stringify(id)} already exists`)
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
    // A failed pass must leave the gradients unchanged.
    const size = adapter?.layout.size ?? 0
    const had = train && adapter !== undefined && adapter.gradients !== 0
    const before = had ? memory.floats.slice(adapter.gradients, adapter.gradients + size) : undefined
    try {
      const { loss: sum, outputs } = Training.run(model, adapter, prepared, train)
      if (!Number.isFinite(sum)) throw fail("NotFinite", `the loss is ${sum}; the gradients are unchanged`)
      return { outputs, metrics: { "loss:sum": sum } }
    } catch (error) {
      if (train && before !== undefined && adapter !== undefined) memory.floats.set(before, adapter.gradients)
      else if (train) adapter?.zeroGradients()
      throw error
    }
  }
  const start = (id: string | undefined, request: Sampler.SampleRequest): SampleRun => {
    const adapter = maybe(id)
    const run = sample(model, cache, adapter, Sampler.prepare(request, config, Random.anySeed))
    let result: Sampler.SampleResult | undefined
    return {
      step: () =>
        attempt(() => {
          if (result !== undefined) return true
          if (id !== undefined && adapters.get(id) !== adapter)
            throw fail("NotFound", `the adapter ${JSON.stringify(id)} was dropped`)
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
    memory: () => ({ used: memory.used - cache.bytes, cached: cache.bytes, reserved: memory.bytes }),
    adapters: () => [...adapters.keys()],
    adapter: (id) => attempt(() => info(get(id))),
    createAdapter: (id, options) => attempt(() => create(id, shapeOf(options), (adapter) => adapter.initialize())),
    dropAdapter: (id) =>
      attempt(() => {
        const adapter = get(id)
        changed(adapter)
        adapter.free()
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
        const { type = "adamw" } = params
        if (type !== "adamw" && type !== "dimuon")
          throw fail("Unsupported", `optimizer ${type}: only adamw and dimuon are supported`)
        const adapter = get(id)
        const { optimizer = type } = adapter
        if (optimizer !== type) throw fail("InvalidInput", `type: the earlier steps used ${optimizer}, not ${type}`)
        const { gradNorm } =
          type === "dimuon"
            ? Training.dimuon(model, adapter, Dimuon.prepare(params))
            : Training.adamw(model, adapter, AdamW.prepare(params))
        adapter.optimizer = type
        changed(adapter)
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
        changed(adapter)
        return info(adapter)
      }),
    peftConfig: (id, baseModel) => attempt(() => Checkpoint.peftConfig(get(id), baseModel)),
    gradients: (id) => attempt(() => Checkpoint.gradients(memory, get(id))),
  }
}
