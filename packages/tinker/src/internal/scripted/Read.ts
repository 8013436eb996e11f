/** Decodes bodies by their schemas, and refuses invalid ones in the format of the service. */
import * as Either from "effect/Either"
import type * as Schema from "effect/Schema"
import * as Routing from "../../protocol/Routing.ts"
import type { Answer } from "../../testing/ScriptedServer.ts"
import * as Answers from "./Answers.ts"
import { type Call, fieldOf } from "./Incoming.ts"

export type Reply<A> = Either.Either<A, Answer>

/** Returns a field that this server is configured not to know. */
const unknownIn = ({ body, state }: Call): string | undefined =>
  state.settings.unknownFields.find((name) => fieldOf(body, name) !== undefined)

export const readJson = <A, I>(call: Call, schema: Schema.Schema<A, I>): Reply<A> => {
  const { body, state } = call
  if (body._tag === "Unreadable") return Answers.refuse(body.status, body.problem)
  if (body._tag === "Protobuf") return Answers.refuse(415, "expected application/json")
  const unknown = unknownIn(call)
  if (unknown !== undefined) {
    return Either.left(Answers.invalid([Routing.unexpected(unknown, fieldOf(body, unknown))]))
  }
  const value: unknown = body._tag === "Json" ? body.value : {}
  return Either.mapLeft(Routing.read(schema, value, { strict: state.settings.strict }), Answers.invalid)
}
