/**
 * Represents a training example: the model input and the inputs of the loss function. The loss defines which inputs are
 * required (see `Loss`).
 *
 * @since 0.1.0
 */
import type * as ModelInput from "./ModelInput.ts"
import type * as TensorData from "./TensorData.ts"

/**
 * The origin of tokens: a range of the prompt or of the generated tokens of a sampled sequence.
 *
 * @since 0.1.0
 * @category models
 */
export interface Span {
  readonly source: "prompt" | "sampled"
  readonly sequenceId: string
  readonly offset: number
  readonly length: number
}

/**
 * The origin of a datum's tokens, given for both the model input and the loss inputs, or for neither.
 *
 * @since 0.1.0
 * @category models
 */
export type Provenance =
  | { readonly modelInputSpans: ReadonlyArray<Span>; readonly lossInputSpans: ReadonlyArray<Span> }
  | { readonly modelInputSpans?: undefined; readonly lossInputSpans?: undefined }

/**
 * A training example. `Inputs` is the type of the loss inputs.
 *
 * @since 0.1.0
 * @category models
 */
export type Datum<Inputs = Readonly<Record<string, TensorData.Input>>> = {
  readonly modelInput: ModelInput.Input
  readonly inputs: Inputs
} & Provenance
