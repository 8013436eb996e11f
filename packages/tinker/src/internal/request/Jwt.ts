/** What a JWT says of itself. The signature is the server's business. */
import * as Either from "effect/Either"
import * as Encoding from "effect/Encoding"
import type * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { lazy } from "../util/Lazy.ts"

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
