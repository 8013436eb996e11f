/** Implements `tinkerfx version`. */
import { version as number } from "effect-tinker/protocol/Version"
import * as Effect from "effect/Effect"
import type { Handler } from "../internal/Commands.ts"
import { Shell } from "../internal/Shell.ts"

export const version: Handler<object> = () => Effect.flatMap(Shell, ({ out }) => out(`tinkerfx ${number}\n`))
