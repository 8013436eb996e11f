/**
 * Measures the cost of encoding a batch as a forward_backward request: ours (with checks and conversions), the minimal
 * code that writes the same bytes, and `JSON.stringify`.
 *
 *   pnpm build && node scripts/bench/encode.mjs [datums] [tokens] [blocks] [plain | typed]
 *
 * The last argument limits the run to one kind of input, in code that has never seen the other. Exits with 1 if ours
 * costs more than 1.5 times the minimum.
 */
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { Either } from "effect"
// Imports the build, which users run: in the workspace, the package name resolves to its sources.
import * as ForwardBackward from "../../packages/tinker/dist/ForwardBackward.js"
import * as Loss from "../../packages/tinker/dist/Loss.js"
import { encodeFwdBwd } from "./harness/drivers/codec.mjs"

const [datums = 256, tokens = 2048, blocks = 25] = process.argv.slice(2, 5).map(Number)
const only = process.argv[5]
const limit = 1.5

const plain = () =>
  Array.from({ length: datums }, (_, d) => ({
    modelInput: Array.from({ length: tokens }, (_, i) => (d * 7919 + i * 104_729) % 151_936),
    inputs: {
      targetTokens: Array.from({ length: tokens }, (_, i) => (d * 7919 + (i + 1) * 104_729) % 151_936),
      weights: Array.from({ length: tokens }, (_, i) => (i % 5) / 4),
    },
  }))

const typed = () =>
  plain().map(({ modelInput, inputs }) => ({
    modelInput: Int32Array.from(modelInput),
    inputs: { targetTokens: Int32Array.from(inputs.targetTokens), weights: Float32Array.from(inputs.weights) },
  }))

const ours = (data) =>
  Loss.prepare(Loss.crossEntropy, data).pipe(
    Either.flatMap((batch) => ForwardBackward.toProtobuf({ modelId: "model-1", seqId: 7, batch, forwardOnly: false })),
    Either.getOrThrow,
  )

/** The encoder of the raw limit: no checks, fixed fields, precomputed lengths. */
const floor = (data) =>
  encodeFwdBwd(
    "model-1",
    7,
    data.map(({ modelInput, inputs }) => ({
      tokens: modelInput,
      targets: inputs.targetTokens,
      weights: inputs.weights,
    })),
  )

const json = (data) =>
  Buffer.from(
    JSON.stringify({
      forward_backward_input: {
        data: data.map(({ modelInput, inputs }) => ({
          model_input: { chunks: [{ type: "encoded_text", tokens: Array.from(modelInput) }] },
          loss_fn_inputs: {
            target_tokens: {
              data: Array.from(inputs.targetTokens),
              dtype: "int64",
              shape: [inputs.targetTokens.length],
            },
            weights: { data: Array.from(inputs.weights), dtype: "float32", shape: [inputs.weights.length] },
          },
        })),
        loss_fn: "cross_entropy",
      },
      model_id: "model-1",
      seq_id: 7,
    }),
  )

setFlagsFromString("--expose-gc")
const collect = runInNewContext("gc")

const encoders = { ours, floor, JSON: json }

/** Returns the mean CPU milliseconds per call over a block of calls, including garbage collection. */
const cpu = (encode, data, calls) => {
  // Collects garbage of the previous block first.
  collect()
  const before = process.cpuUsage()
  for (let call = 0; call < calls; call++) encode(data)
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000 / calls
}

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1]

/** Blocks are interleaved, so that other load on the machine affects all encoders equally. */
const measure = (name, data) => {
  if (!Buffer.from(ours(data)).equals(floor(data))) throw new Error("the encoders wrote different bytes")
  const times = { ours: [], floor: [], JSON: [] }
  for (let block = 0; block < blocks; block++) {
    times.ours.push(cpu(encoders.ours, data, 20))
    times.floor.push(cpu(encoders.floor, data, 20))
    times.JSON.push(cpu(encoders.JSON, data, 1))
  }
  const ratio = median(times.ours.map((time, block) => time / times.floor[block]))
  if (ratio > limit) process.exitCode = 1
  return {
    input: name,
    "ours ms": median(times.ours).toFixed(2),
    "floor ms": median(times.floor).toFixed(2),
    "JSON ms": median(times.JSON).toFixed(2),
    "ours : floor : JSON": `${ratio.toFixed(2)} : 1 : ${(median(times.JSON) / median(times.floor)).toFixed(1)}`,
  }
}

const inputs = Object.entries({ plain, typed }).flatMap(([name, make]) =>
  only === undefined || only === name ? [[`${name} arrays`, make()]] : [],
)
// Warms up every loop with all inputs, as in a long-running program.
for (const [, data] of inputs) for (const encode of Object.values(encoders)) cpu(encode, data, 5)
console.log(`${datums} datums of ${tokens} tokens, CPU time per request: median of ${blocks} blocks`)
console.table(inputs.map(([name, data]) => measure(name, data)))
