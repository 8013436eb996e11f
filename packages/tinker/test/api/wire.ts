import { readFileSync } from "node:fs"
import type { Schema } from "effect"
import * as Api from "effect-tinker/protocol/Api"
import * as Training from "effect-tinker/protocol/schemas/Training"
import type { Endpoint } from "effect-tinker/protocol/Endpoint"

export interface RecordedRequest {
  readonly method: string
  readonly path: string
  readonly query: ReadonlyArray<readonly [string, string]>
  readonly headers: Readonly<Record<string, string>>
  readonly body?: unknown
  readonly bodyBase64?: string
}

export interface Exchange {
  readonly request: RecordedRequest
  readonly response: {
    readonly status: number
    readonly headers: Readonly<Record<string, string>>
    readonly body?: unknown
  }
}

export const wire = new URL("../../../../test/wire/", import.meta.url)

/** The recorded exchanges of an operation vector, in the order they happened. */
export const exchanges = (file: string): ReadonlyArray<Exchange> => {
  const vector = JSON.parse(readFileSync(new URL(file, wire), "utf8"))
  if (vector.exchanges !== undefined) return vector.exchanges
  return vector.request === null ? [] : [{ request: vector.request, response: vector.response }]
}

/** The answers that a behaviour's server gave. */
export const script = (
  file: string,
): ReadonlyArray<{ readonly for: string; readonly status: number; readonly body?: unknown }> =>
  JSON.parse(readFileSync(new URL(file, wire), "utf8")).script

const isEndpoint = (value: unknown): value is Endpoint<never, unknown> =>
  typeof value === "object" && value !== null && "operation" in value

/** Every endpoint, by its name. */
export const table = Object.entries<unknown>(Api).flatMap(([name, value]) =>
  isEndpoint(value) ? [[name, value] as const] : [],
)

/** What a future of each type gives in JSON; the other types are told in protobuf. */
export const results: Readonly<Record<string, Schema.Schema.AnyNoContext>> = {
  CreateModel: Training.CreateModelResult,
  LoadWeights: Training.LoadWeightsResult,
  OptimStep: Training.OptimStepResult,
  SaveWeights: Training.SaveWeightsResult,
  SaveWeightsForSampler: Training.SaveWeightsForSamplerResult,
  SaveWeightsExternal: Training.SaveWeightsExternalResult,
  CreateCustomLoss: Training.CreateCustomLossResult,
  UnloadModel: Training.UnloadModelResult,
}
