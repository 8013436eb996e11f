/** Reduces a pass to hashes of the model input and the numbers of the loss inputs. */
import * as Either from "effect/Either"
import type { ModelInput } from "../../ModelInput.ts"
import type * as PassRequest from "../../protocol/PassRequest.ts"
import * as TensorData from "../../TensorData.ts"
import * as Hash from "../util/Hash.ts"

/** The values of a tensor in dense form, and its shape. */
export interface Numbers {
  readonly values: ReadonlyArray<number>
  readonly shape: ReadonlyArray<number>
}

export interface Datum {
  /** Hash of the model input. */
  readonly inputHash: number
  readonly tokens: number
  readonly inputs: ReadonlyMap<string, Numbers>
}

export interface Pass extends Omit<PassRequest.PassRequest, "data" | "config"> {
  readonly data: ReadonlyArray<Datum>
}

type Read<A> = Either.Either<A, string>

const numbers = (tensor: TensorData.TensorData, name: string): Read<Numbers> =>
  Either.mapBoth(TensorData.toNumbers(tensor, name), {
    onLeft: ({ message }) => message,
    onRight: (values) => ({ values, shape: tensor.shape ?? [values.length] }),
  })

const chunkOf = (chunk: ModelInput["chunks"][number]): { readonly hash: number; readonly tokens: number } => {
  switch (chunk.type) {
    case "encoded_text":
      return { hash: Hash.ofNumbers(chunk.tokens), tokens: chunk.tokens.length }
    case "image":
      return { hash: Hash.ofBytes(chunk.data), tokens: chunk.expectedTokens ?? chunk.tokens ?? 1 }
    case "image_asset_pointer":
      return { hash: Hash.ofText(chunk.location), tokens: chunk.expectedTokens ?? 1 }
    case "dmel":
      return { hash: Hash.ofBytes(chunk.dmel), tokens: 1 }
  }
}

/** Returns the hash and length of a prompt, by the same rules as for a datum. */
export const promptOf = ({ chunks }: ModelInput) => {
  const read = chunks.map(chunkOf)
  return {
    inputHash: read.reduce((hash, chunk) => Hash.mix(hash, chunk.hash), 0),
    tokens: read.reduce((sum, chunk) => sum + chunk.tokens, 0),
  }
}

const datumOf = ({ input, inputs }: PassRequest.Datum): Read<Datum> =>
  Either.map(
    Either.all([...inputs].map(([name, tensor]) => Either.map(numbers(tensor, name), (read) => [name, read] as const))),
    (read) => ({ ...promptOf(input), inputs: new Map(read) }),
  )

export const fromRequest = ({ data, forwardOnly, loss, modelId, seqId }: PassRequest.PassRequest): Read<Pass> =>
  Either.map(Either.all(data.map(datumOf)), (data) => ({ modelId, seqId, forwardOnly, loss, data }))

/** Computes the gradient of a pass; independent of the encoding and of how a batch is split into requests. */
export const gradientOf = ({ data, loss }: Pass): number =>
  data.reduce((sum, { inputHash, inputs }) => {
    let hash = Hash.mix(Hash.ofText(loss), inputHash)
    for (const [name, { values }] of inputs) hash = Hash.mix(hash, Hash.ofNumbers(values, Hash.ofText(name)))
    return (sum + hash) % 2 ** 32
  }, 0)
