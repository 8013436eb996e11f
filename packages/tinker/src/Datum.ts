/**
 * One training example: what the model reads, and what the loss function wants to know about it. Which inputs those
 * are is said by the loss (see `Loss`).
 *
 * @since 0.1.0
 */
import type * as ModelInput from "./ModelInput.ts"
import type * as TensorData from "./TensorData.ts"

/**
 * Where tokens came from: a part of the prompt, or of the tokens, of a sampled sequence.
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
 * The origin of a datum's tokens: for both the model's input and the loss's, or for neither.
 *
 * @since 0.1.0
 * @category models
 */
export type Provenance =
  | { readonly modelInputSpans: ReadonlyArray<Span>; readonly lossInputSpans: ReadonlyArray<Span> }
  | { readonly modelInputSpans?: undefined; readonly lossInputSpans?: undefined }

/**
 * @since 0.1.0
 * @category models
 */
export type Datum<Inputs = Readonly<Record<string, TensorData.Input>>> = {
  readonly modelInput: ModelInput.Input
  readonly inputs: Inputs
} & Provenance
