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

/** The exchanges of a recording, in order. */
export const exchanges = (file: string): ReadonlyArray<Exchange> => {
  const vector = JSON.parse(readFileSync(new URL(file, wire), "utf8"))
  if (vector.exchanges !== undefined) return vector.exchanges
  return vector.request === null ? [] : [{ request: vector.request, response: vector.response }]
}

/** The responses of the server in a recorded behavior. */
export const script = (
  file: string,
): ReadonlyArray<{ readonly for: string; readonly status: number; readonly body?: unknown }> =>
  JSON.parse(readFileSync(new URL(file, wire), "utf8")).script

const isEndpoint = (value: unknown): value is Endpoint<never, unknown> =>
  typeof value === "object" && value !== null && "operation" in value

/** Every endpoint, by name. */
export const table = Object.entries<unknown>(Api).flatMap(([name, value]) =>
  isEndpoint(value) ? [[name, value] as const] : [],
)

/** The JSON result of each type of future; the other types are protobuf. */
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
