/**
 * The modules for application code. Modules for servers and platforms are in `effect-tinker/protocol/*` and
 * `effect-tinker/http/*`; the others are importable by path, e.g. `effect-tinker/Session`.
 *
 * @since 0.1.0
 */
export * as AdminClient from "./AdminClient.ts"
export * as ApiFuture from "./ApiFuture.ts"
export * as Archive from "./Archive.ts"
export * as ChatClient from "./ChatClient.ts"
export * as Checkpoint from "./Checkpoint.ts"
export * as CustomLoss from "./CustomLoss.ts"
export * as Datum from "./Datum.ts"
export * as Download from "./Download.ts"
export * as Gradient from "./Gradient.ts"
export * as Loss from "./Loss.ts"
export * as ModelInput from "./ModelInput.ts"
export * as Optimizer from "./Optimizer.ts"
export * as RateLimiter from "./RateLimiter.ts"
export * as RestClient from "./RestClient.ts"
export * as RetryPolicy from "./RetryPolicy.ts"
export * as SampleResult from "./SampleResult.ts"
export * as SamplingClient from "./SamplingClient.ts"
export * as SamplingParams from "./SamplingParams.ts"
export * as ServiceClient from "./ServiceClient.ts"
export * as TensorData from "./TensorData.ts"
export * as Tinker from "./Tinker.ts"
export * as TinkerConfig from "./TinkerConfig.ts"
export * as TinkerError from "./TinkerError.ts"
export * as TinkerMetrics from "./TinkerMetrics.ts"
export * as TinkerTenants from "./TinkerTenants.ts"
export * as TrainingClient from "./TrainingClient.ts"
export * as TrainingJournal from "./TrainingJournal.ts"
export * as TrainingResult from "./TrainingResult.ts"
