/**
 * Where a Tinker server is. Two spellings of one server are one `BaseUrl`, two path prefixes are two: requests,
 * connection pools and limiter keys all go through `parse`, so they can't disagree.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import { InvalidConfig } from "../TinkerError.ts"

const normalise = (text: string): Either.Either<string, string> => {
  // A URL with credentials must not be echoed, so no message here quotes the text.
  if (!URL.canParse(text)) return Either.left("is not a URL; expected something like https://host/prefix")
  const url = new URL(text)
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    return Either.left(`has the scheme ${url.protocol} where http: or https: was expected`)
  }
  if (url.username !== "" || url.password !== "") {
    return Either.left("carries a user name or password; give the credential as an API key")
  }
  if (text.includes("?") || text.includes("#")) {
    return Either.left("has a query or a fragment; only a path prefix may follow the host")
  }
  return Either.right(`${url.protocol}//${url.host}${url.pathname.replace(/\/+$/, "")}`)
}

/**
 * A normalised base URL: lower-case scheme and host, no default port, no trailing slash, path prefix kept.
 *
 * @since 0.1.0
 * @category models
 */
export const BaseUrl = Schema.NonEmptyString.pipe(
  Schema.filter((text) => Either.merge(normalise(text)) === text || "Expected a normalised base URL"),
  Schema.brand("effect-tinker/http/BaseUrl"),
)

/**
 * @since 0.1.0
 * @category models
 */
export type BaseUrl = typeof BaseUrl.Type

/**
 * The hosted service.
 *
 * @since 0.1.0
 * @category constants
 */
export const hosted: BaseUrl = BaseUrl.make("https://tinker.thinkingmachines.dev/services/tinker-prod")

/**
 * Normalises a base URL. `setting` names where it came from in the error.
 *
 * @since 0.1.0
 * @category constructors
 */
export const parse = (text: string, setting = "baseUrl"): Either.Either<BaseUrl, InvalidConfig> =>
  Either.mapBoth(normalise(text), {
    onLeft: (problem) => new InvalidConfig({ setting, problem }),
    onRight: (url) => BaseUrl.make(url),
  })
