/** Facts about the models of the service. The table is that of the tokenizer package. */
import * as Option from "effect/Option"
import * as Models from "@effect-tinker/tokenizer/Models"

/** The width of a model, and how many parameters an adapter of rank 1 has in each kind of layer. */
export type Model = Pick<Models.Facts, "hiddenSize" | "mlp" | "attention" | "unembed">

/** The names of the models of the service. */
export const names: ReadonlyArray<string> = Object.keys(Models.table).filter((name) => name !== Models.local)

/** Returns a name without the variant that the service appends, e.g. `:peft:262144`. */
export const baseName: (model: string) => string = Models.baseName

/** Returns what is known about a model, whatever its variant. */
export const find = (model: string): Model | undefined => Option.getOrUndefined(Models.find(model))
