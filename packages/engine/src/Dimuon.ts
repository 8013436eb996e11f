/**
 * The settings of Dimuon: momentum, made orthogonal matrix by matrix. docs/engine.md has what is known of it.
 *
 * @since 0.1.0
 */
import * as AdamW from "./AdamW.ts"
import { EngineError } from "./EngineError.ts"

/**
 * Parameters of a step.
 *
 * @since 0.1.0
 * @category models
 */
export interface DimuonParams {
  /** The update of each matrix has this times the square root of the rank as its Frobenius norm. */
  readonly learningRate?: number | undefined
  /** Default: 0.9. */
  readonly beta1?: number | undefined
  /** The maximum norm of the gradients. Default: 0, which means no clipping. */
  readonly gradClipNorm?: number | undefined
}

/**
 * Fills in the defaults and checks the values. Throws an `EngineError`.
 *
 * @since 0.1.0
 * @category validation
 */
export const prepare = (params: DimuonParams): { readonly [K in keyof DimuonParams]-?: number } => {
  if (params.learningRate === undefined)
    throw new EngineError({ reason: "InvalidInput", problem: "learningRate: dimuon has no default" })
  const { beta1, gradClipNorm, learningRate } = AdamW.prepare({
    learningRate: params.learningRate,
    beta1: params.beta1,
    gradClipNorm: params.gradClipNorm,
  })
  return { beta1, gradClipNorm, learningRate }
}
