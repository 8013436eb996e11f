/** The directory of the model that ships with the engine. A bundle does not know its place in the repository. */
import { fileURLToPath } from "node:url"

export const model =
  process.env["TINKER_LAB_MODEL"] ?? fileURLToPath(new URL("../../../packages/engine/model", import.meta.url))
