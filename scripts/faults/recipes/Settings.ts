/** The settings of a recipe that the lab runs. */
export interface RecipeSettings {
  readonly recipe: "supervised" | "rl" | "distillation"
  readonly baseUrl: string
  /** The directory of the run. */
  readonly directory: string
  /** The directory of the model. */
  readonly model: string
}
