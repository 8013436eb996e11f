/** Reads the claims of a JWT. Only the server checks its signature. */
import * as Either from "effect/Either"
import * as Encoding from "effect/Encoding"
import type * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { lazy } from "../util/Lazy.ts"

/** Returns a reader of the claims that the schema describes. A token that is not a JWT has none. */
export const claims = <A, I>(schema: Schema.Schema<A, I>): ((token: Redacted.Redacted<string>) => Option.Option<A>) => {
  const Claims = lazy(() => Schema.parseJson(schema))
  return (token) =>
    Either.getRight(
      Either.flatMap(
        Encoding.decodeBase64UrlString(Redacted.value(token).split(".")[1] ?? ""),
        Schema.decodeUnknownEither(Claims),
      ),
    )
}
