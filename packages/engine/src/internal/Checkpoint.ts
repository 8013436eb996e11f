/** Saves and restores adapters: the tensors that PEFT reads and, optionally, the state of the optimizer. */
import * as Either from "effect/Either"
import { EngineError } from "../EngineError.ts"
import * as Safetensors from "../Safetensors.ts"
import type { Adapter, Shape } from "./Adapter.ts"
import type { Memory } from "./Memory.ts"

const format = "effect-tinker-adapter-1"

/** Lists both matrices of each pair in PEFT's layout: A [rank, inputs], B [outputs, rank]. */
function* matrices({ layout, shape: { rank } }: Pick<Adapter, "layout" | "shape">) {
  for (const { a, b, inputs, name, outputs } of layout.pairs) {
    yield { name: `${name}.lora_A.weight`, at: a, rows: inputs, columns: rank }
    yield { name: `${name}.lora_B.weight`, at: b, rows: rank, columns: outputs }
  }
}

const tensorsOf = (memory: Memory, adapter: Adapter, block: number): ReadonlyMap<string, Safetensors.Tensor> => {
  const tensors = new Map<string, Safetensors.Tensor>()
  for (const { at, columns, name, rows } of matrices(adapter)) {
    memory.scope((alloc) => {
      const turned = alloc(rows * columns)
      memory.kernel.transpose(rows, columns, block + at, columns, turned, rows)
      tensors.set(name, { shape: [columns, rows], data: memory.floats.slice(turned, turned + rows * columns) })
    })
  }
  return tensors
}

export const gradients = (memory: Memory, adapter: Adapter): ReadonlyMap<string, Safetensors.Tensor> => {
  adapter.ensureGradients()
  return tensorsOf(memory, adapter, adapter.gradients)
}

export const save = (memory: Memory, adapter: Adapter, optimizer: boolean): Uint8Array => {
  const tensors: Record<string, Safetensors.Tensor> = {}
  const put = (prefix: string, block: number) => {
    for (const [name, tensor] of tensorsOf(memory, adapter, block)) tensors[prefix + name] = tensor
  }
  put("", adapter.parameters)
  if (optimizer) {
    adapter.ensureMoments()
    put("optimizer.exp_avg.", adapter.first)
    put("optimizer.exp_avg_sq.", adapter.second)
  }
  const shape = JSON.stringify(adapter.shape)
  const kind = adapter.optimizer
  return Safetensors.write(tensors, {
    effect_tinker: format,
    shape,
    ...(optimizer && { step: String(adapter.steps), ...(kind !== undefined && { optimizer: kind }) }),
  })
}

const invalid = (problem: string) => new EngineError({ reason: "InvalidInput", problem: `adapter file: ${problem}` })

/** Opens an adapter file. Throws an `EngineError`. */
export const open = (bytes: Uint8Array): { readonly file: Safetensors.Safetensors; readonly shape: Shape } => {
  const read = Safetensors.read(bytes)
  if (Either.isLeft(read)) throw invalid(read.left.problem)
  const file = read.right
  if (file.metadata["effect_tinker"] !== format) throw invalid(`expected the format ${format}`)
  try {
    const shape: Shape = JSON.parse(file.metadata["shape"] ?? "")
    return { file, shape }
  } catch {
    throw invalid("the shape is not valid JSON")
  }
}

/** Restores an adapter. Throws before anything changes. */
export const restore = (memory: Memory, adapter: Adapter, file: Safetensors.Safetensors, optimizer: boolean): void => {
  const steps = Number(file.metadata["step"])
  if (optimizer && !Number.isSafeInteger(steps)) throw invalid("no optimizer state")
  const kind = optimizer ? file.metadata["optimizer"] : undefined
  if (kind !== undefined && kind !== "adamw" && kind !== "dimuon") throw invalid(`unknown optimizer ${kind}`)
  const prefixes = optimizer ? ["", "optimizer.exp_avg.", "optimizer.exp_avg_sq."] : [""]
  const found = new Map<string, Safetensors.Tensor>()
  for (const prefix of prefixes) {
    for (const { columns, name, rows } of matrices(adapter)) {
      const tensor = file.get(prefix + name)
      if (tensor === undefined || tensor.shape.join() !== [columns, rows].join())
        throw invalid(`${prefix}${name} is missing or has another shape`)
      found.set(prefix + name, tensor)
    }
  }
  if (optimizer) adapter.ensureMoments()
  for (const [i, prefix] of prefixes.entries()) {
    const block = [adapter.parameters, adapter.first, adapter.second][i] ?? 0
    for (const { at, columns, name, rows } of matrices(adapter)) {
      memory.scope((alloc) => {
        const turned = alloc(rows * columns)
        memory.floats.set(found.get(prefix + name)?.data ?? [], turned)
        memory.kernel.transpose(columns, rows, turned, rows, block + at, columns)
      })
    }
  }
  if (optimizer) adapter.steps = steps
  else {
    for (const block of [adapter.first, adapter.second]) {
      if (block !== 0) memory.floats.fill(0, block, block + adapter.layout.size)
    }
    adapter.steps = 0
  }
  adapter.optimizer = kind
  adapter.zeroGradients()
}

/** Returns the configuration file that PEFT needs beside the tensors. */
export const peftConfig = ({ shape }: Adapter, baseModel: string): string =>
  `${JSON.stringify(
    {
      peft_type: "LORA",
      task_type: "CAUSAL_LM",
      base_model_name_or_path: baseModel,
      r: shape.rank,
      lora_alpha: shape.alpha,
      lora_dropout: 0,
      bias: "none",
      fan_in_fan_out: false,
      inference_mode: true,
      target_modules: [
        ...(shape.trainAttn ? ["q_proj", "k_proj", "v_proj", "o_proj"] : []),
        ...(shape.trainMlp ? ["gate_proj", "up_proj", "down_proj"] : []),
        ...(shape.trainUnembed ? ["lm_head"] : []),
      ],
    },
    null,
    2,
  )}\n`
