/**
 * The settings of `tinkerfx train`: those of the recipes, and where data, model and run are. `TrainSettings.ts` lists them
 * for the help; `node --import tsx settings.ts` writes it.
 */
import * as Distillation from "@effect-tinker/recipes/Distillation"
import * as Preference from "@effect-tinker/recipes/Preference"
import * as Rl from "@effect-tinker/recipes/Rl"
import * as RunConfig from "@effect-tinker/recipes/RunConfig"
import * as Supervised from "@effect-tinker/recipes/Supervised"
import * as Schema from "effect/Schema"

const described = (description: string) => Schema.optional(Schema.String).annotations({ description })

/** The settings that every recipe has here, beside its own. */
const places = {
  model: described(
    "The base model, e.g. Qwen/Qwen3-8B. With --local, the model that ships with the engine by default.",
  ),
  out: described("The directory of the run. Default: runs/ and the name of the configuration file, or of the recipe."),
  local: Schema.optional(Schema.Boolean).annotations({
    description: "Trains on the embedded engine: without a server and without a key. Its data are kept with the run.",
    default: false,
  }),
  localModel: described(
    "NAME=DIR: trains the model in DIR (config.json, *.safetensors, tokenizer.json) on the embedded engine.",
  ),
  renderer: described(
    "The name of the renderer, or template for the model's own chat template. Default: that of the model.",
  ),
  tokenizer: described(
    "The tokenizer: a directory or a repository of the Hugging Face Hub. Default: that of the model.",
  ),
  budget: Schema.optional(Schema.Positive).annotations({
    description: "Stops the run before it spends more than so many USD. The run can be continued.",
  }),
  prices: described("A price list as JSON, or free, by which the run counts what it spends. Default: the list prices."),
} as const

const data = (description: string) => Schema.propertySignature(Schema.String).annotations({ description })

const { model: _sft, ...supervised } = Supervised.Config.fields
const { model: _dpo, ...preference } = Preference.Config.fields
const { model: _distill, ...distillation } = Distillation.Config.fields
const { model: _rl, ...rl } = Rl.Config.fields

/** The configuration of each recipe. */
export const recipes = {
  sft: Schema.Struct({
    data: data("The conversations: a file with messages in each row (.jsonl, .csv or .parquet)."),
    ...places,
    ...supervised,
  }),
  rl: Schema.Struct({
    environment: data(
      "The module with the tasks and the reward (.ts, .js or .mjs): it exports tasks and reward, or reply.",
    ),
    data: described("The tasks: a file with messages in each row, if the module exports none."),
    ...places,
    ...rl,
  }),
  dpo: Schema.Struct({
    data: data("The pairs: a file with prompt, chosen and rejected in each row (.jsonl or .parquet)."),
    ...places,
    ...preference,
  }),
  distill: Schema.Struct({
    data: data("The questions: a file with messages in each row (.jsonl, .csv or .parquet)."),
    ...places,
    ...distillation,
  }),
} as const

export type Recipe = keyof typeof recipes

/** The settings that name a file or a directory. */
export const paths = ["data", "environment", "out", "prices"] as const

/** A setting of the command line. */
export interface Listed {
  readonly name: string
  readonly type: string
  readonly description: string
}

/** Lists the settings of a recipe for the help of the command. */
export const list = (recipe: Recipe): ReadonlyArray<Listed> =>
  RunConfig.settings(recipes[recipe] as Schema.Schema.AnyNoContext).map((setting) => ({
    name: setting.name,
    type: setting.type,
    description: [
      ...(setting.description._tag === "Some" ? [setting.description.value] : []),
      ...(setting.default._tag === "Some" ? [`Default: ${setting.default.value}.`] : []),
      ...(setting.isRequired ? ["Required."] : []),
    ].join(" "),
  }))
