/**
 * Represents the address of a Tinker server. Different spellings of one address are equal; different path prefixes are
 * not. Requests, connection pools and limiter keys all use `parse`, so they always agree.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Schema from "effect/Schema"
import { InvalidConfig } from "../TinkerError.ts"

const normalize = (text: string): Either.Either<string, string> => {
  // The messages never quote the URL, because it may contain credentials.
  if (!URL.canParse(text)) return Either.left("not a valid URL; expected a URL like https://host/prefix")
  const url = new URL(text)
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    return Either.left(`expected http: or https:, got ${url.protocol}`)
  }
  if (url.username !== "" || url.password !== "") {
    return Either.left("must not contain a user name or password; use an API key instead")
  }
  if (text.includes("?") || text.includes("#")) {
    return Either.left("must not contain a query or fragment; only a path prefix may follow the host")
  }
  return Either.right(`${url.protocol}//${url.host}${url.pathname.replace(/\/+$/, "")}`)
}

/**
 * A normalized base URL: lower-case scheme and host, no default port, no trailing slash, with its path prefix.
 *
 * @since 0.1.0
 * @category models
 */
export const BaseUrl = Schema.NonEmptyString.pipe(
  Schema.filter((text) => Either.merge(normalize(text)) === text || "Expected a normalized base URL"),
  Schema.brand("effect-tinker/http/BaseUrl"),
)

/**
 * The type of {@link BaseUrl}.
 *
 * @since 0.1.0
 * @category models
 */
export type BaseUrl = typeof BaseUrl.Type

/**
 * The address of the hosted service.
 *
 * @since 0.1.0
 * @category constants
 */
export const hosted: BaseUrl = BaseUrl.make("https://tinker.thinkingmachines.dev/services/tinker-prod")

/**
 * Normalizes a base URL. `setting` names its source in errors.
 *
 * @since 0.1.0
 * @category constructors
 */
export const parse = (text: string, setting = "baseUrl"): Either.Either<BaseUrl, InvalidConfig> =>
  Either.mapBoth(normalize(text), {
    onLeft: (problem) => new InvalidConfig({ setting, problem }),
    onRight: (url) => BaseUrl.make(url),
  })
