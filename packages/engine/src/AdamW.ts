/**
 * The settings of AdamW, computed as in torch.
 *
 * @since 0.1.0
 */
import { EngineError } from "./EngineError.ts"

/**
 * Parameters of a step. Missing ones have the reference's defaults.
 *
 * @since 0.1.0
 * @category models
 */
export interface AdamParams {
  /** Default: 1e-4. */
  readonly learningRate?: number | undefined
  /** Default: 0.9. */
  readonly beta1?: number | undefined
  /** Default: 0.95. */
  readonly beta2?: number | undefined
  /** Default: 1e-12. */
  readonly eps?: number | undefined
  /** Default: 0. */
  readonly weightDecay?: number | undefined
  /** The maximum norm of the gradients. Default: 0, which means no clipping. */
  readonly gradClipNorm?: number | undefined
}

const within = (value: number, name: string, ok: boolean, expected: string): number => {
  if (!ok) throw new EngineError({ reason: "InvalidInput", problem: `${name}: expected ${expected}, got ${value}` })
  return value
}

/** Whether a number is still finite as float32, the precision of the weights. */
const fits = (value: number): boolean => Number.isFinite(Math.fround(value))

/**
 * Fills in the defaults and checks the values. Throws an `EngineError`.
 *
 * @since 0.1.0
 * @category validation
 */
export const prepare = (params: AdamParams): { readonly [K in keyof AdamParams]-?: number } => {
  const notNegative = (value: number, name: string) =>
    within(value, name, value >= 0 && fits(value), "a float32 of at least 0")
  const beta = (value: number, name: string) =>
    within(value, name, value >= 0 && Math.fround(value) < 1, "0 <= beta < 1 as float32")
  const eps = params.eps ?? 1e-12
  return {
    learningRate: notNegative(params.learningRate ?? 1e-4, "learningRate"),
    beta1: beta(params.beta1 ?? 0.9, "beta1"),
    beta2: beta(params.beta2 ?? 0.95, "beta2"),
    eps: within(eps, "eps", Math.fround(eps) > 0 && fits(eps), "a positive float32"),
    weightDecay: notNegative(params.weightDecay ?? 0, "weightDecay"),
    gradClipNorm: notNegative(params.gradClipNorm ?? 0, "gradClipNorm"),
  }
}
