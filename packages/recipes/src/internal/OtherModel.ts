/** A model beside the one in training: a reference or a teacher. */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type * as SamplingClient from "effect-tinker/SamplingClient"
import { ServiceClient } from "effect-tinker/ServiceClient"
import type { TinkerError } from "effect-tinker/TinkerError"
import type { CostOptions, Run } from "../Run.ts"
import { targetOf } from "./Recipe.ts"
import * as Spending from "./Spending.ts"

/** Opens a base model or a checkpoint. What is asked of it counts as spent by the run, at the prices of its base model. */
export const sampler = (
  { spending }: Run,
  nameOrPath: string,
  cost: CostOptions | undefined,
): Effect.Effect<SamplingClient.Service, TinkerError, ServiceClient | Scope.Scope> =>
  Effect.gen(function* () {
    const target = targetOf(nameOrPath)
    const service = yield* ServiceClient
    const sampler = yield* service.createSamplingClient(target)
    if (Option.isNone(spending) || cost === undefined) return sampler
    const baseModel = "baseModel" in target ? target.baseModel : yield* sampler.getBaseModel
    yield* Spending.check(cost, baseModel)
    return yield* spending.value.sampling(sampler, baseModel)
  })
