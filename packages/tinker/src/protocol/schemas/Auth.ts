/**
 * The wire format of the JWT exchange and of API keys.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { lazy } from "../../internal/util/Lazy.ts"
import * as Wire from "../../internal/codec/Wire.ts"

/**
 * Requests a JWT.
 *
 * @since 0.1.0
 * @category auth
 */
export const AuthTokenRequest = lazy(() => Wire.struct({}))

/**
 * A JWT.
 *
 * @since 0.1.0
 * @category auth
 */
export const AuthToken = lazy(() => Wire.struct({ jwt: Schema.Redacted(Schema.String) }))

/**
 * Information about the API key of the request.
 *
 * @since 0.1.0
 * @category auth
 */
export const ApiKey = lazy(() =>
  Wire.struct({
    keyId: Schema.Finite,
    name: Schema.String,
    note: Wire.orElse(Schema.String, ""),
    details: Wire.struct({
      orgDetails: Wire.struct({ name: Schema.String }),
      userDetails: Wire.struct({ email: Schema.String }),
    }),
  }),
)

/**
 * The type of {@link ApiKey}.
 *
 * @since 0.1.0
 * @category auth
 */
export type ApiKey = typeof ApiKey.Type
