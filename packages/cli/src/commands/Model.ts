/** Implements `tinkerfx model`. */
import * as RestClient from "effect-tinker/RestClient"
import * as ServiceClient from "effect-tinker/ServiceClient"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Clients from "../internal/Clients.ts"
import type { Handler } from "../internal/Commands.ts"
import { Failure } from "../internal/Failure.ts"
import * as Output from "../internal/Output.ts"
import { nullable } from "../internal/Records.ts"
import * as Words from "../internal/Words.ts"

const shown = <A>(value: Option.Option<A>, format: (value: A) => string = String): string =>
  Option.match(value, { onNone: () => "N/A", onSome: format })

export const list: Handler<{ readonly substring: string | undefined }> = ({ substring }, { format }) =>
  Effect.gen(function* () {
    const { getServerCapabilities } = yield* ServiceClient.ServiceClient
    const { supportedModels } = yield* getServerCapabilities
    const wanted = substring?.toLowerCase()
    const models =
      wanted === undefined
        ? supportedModels
        : supportedModels.filter(({ modelName }) =>
            Option.exists(modelName, (name) => name.toLowerCase().includes(wanted)),
          )
    if (models.length === 0 && substring !== undefined) {
      const { whoami } = yield* RestClient.RestClient
      // A server without tokens does not tell the organization, which is no reason to hide what happened.
      const organization = yield* Effect.option(whoami)
      const of = Option.match(
        Option.flatMap(organization, ({ orgUrn }) => orgUrn),
        { onNone: () => "", onSome: (urn) => ` for organization ${urn}` },
      )
      return yield* new Failure({
        message: `No model name contains '${substring}'${of}`,
        hint: "Run 'tinkerfx model list' to see every model this organization can use.",
      })
    }
    yield* Output.print(format, {
      json: () => ({
        models: models.map((model) => ({
          model_name: nullable(model.modelName),
          max_context_length: nullable(model.maxContextLength),
          trainable: nullable(model.trainable),
          sampleable: nullable(model.sampleable),
        })),
      }),
      table: () => ({
        columns: ["Model", "Max Context", "Trainable", "Sampleable"],
        rows: models.map((model) => [
          shown(model.modelName),
          shown(model.maxContextLength),
          shown(model.trainable, Words.yes),
          shown(model.sampleable, Words.yes),
        ]),
      }),
    })
  }).pipe(Clients.provide)
