/**
 * Represents the results of forward and forward-backward passes. Protobuf and JSON responses decode to the same value.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import type * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import { lazy } from "./internal/util/Lazy.ts"
import { decoded, outputType, trainingResult } from "./internal/codec/ResultProto.ts"
import * as Wire from "./internal/codec/Wire.ts"
import { TensorData } from "./TensorData.ts"
import { UnexpectedResponse } from "./TinkerError.ts"

const Fields = lazy(() =>
  Schema.Struct({
    /** The server's name for the kind of outputs. */
    outputType: Wire.orElse(Schema.String, "").pipe(Schema.fromKey("loss_fn_output_type")),
    /** For each datum, the tensors returned by the loss, e.g. `logprobs`. */
    outputs: Wire.orElse(Schema.Array(Schema.Record({ key: Schema.String, value: TensorData })), []).pipe(
      Schema.fromKey("loss_fn_outputs"),
    ),
    metrics: Wire.orElse(Wire.Metrics, {}),
  }),
)

/**
 * The result of a forward or forward-backward pass.
 *
 * @since 0.1.0
 * @category models
 */
export const TrainingResult: Schema.Schema<typeof Fields.Type, typeof Fields.Encoded> = lazy(() =>
  Schema.transform(Fields, Schema.typeSchema(Fields), {
    strict: true,
    decode: (fields) => ({ ...fields, outputType: outputType(fields.outputType, fields.outputs) }),
    encode: (result) => result,
  }),
)

/**
 * The type of {@link TrainingResult}.
 *
 * @since 0.1.0
 * @category models
 */
export type TrainingResult = typeof TrainingResult.Type

/**
 * Returns the log probabilities of the targets, one array per datum, e.g. of `Loss.crossEntropy`. Fails if the loss
 * returned none.
 *
 * @since 0.1.0
 * @category reading
 */
export const logprobs = ({
  outputs,
}: TrainingResult): Either.Either<ReadonlyArray<Float32Array>, UnexpectedResponse> => {
  const arrays: Array<Float32Array> = []
  for (const [index, { logprobs }] of outputs.entries()) {
    if (logprobs?.dtype !== "float32" || logprobs.sparse !== undefined) {
      const detail = `outputs[${index}].logprobs: ${logprobs === undefined ? "missing" : "expected dense float32"}`
      return Either.left(new UnexpectedResponse({ operation: "forward", reason: "Schema", detail }))
    }
    arrays.push(logprobs.data)
  }
  return Either.right(arrays)
}

/**
 * Decodes the bytes of a `ForwardBackwardOutput`. Tensors are views of these bytes where the alignment permits.
 *
 * @since 0.1.0
 * @category decoding
 */
export const fromProtobuf = (bytes: Uint8Array): Either.Either<TrainingResult, ParseResult.ParseError> =>
  decoded("ForwardBackwardOutput", () => trainingResult(bytes))

/**
 * Decodes parsed JSON.
 *
 * @since 0.1.0
 * @category decoding
 */
export const fromJson = (json: unknown): Either.Either<TrainingResult, ParseResult.ParseError> =>
  Schema.decodeUnknownEither(TrainingResult)(json)
