/**
 * Credentials: the JWT exchange and the API key itself.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { lazy } from "../../internal/util/Lazy.ts"
import * as Wire from "../../internal/codec/Wire.ts"

/**
 * @since 0.1.0
 * @category auth
 */
export const AuthTokenRequest = lazy(() => Wire.struct({}))

/**
 * @since 0.1.0
 * @category auth
 */
export const AuthToken = lazy(() => Wire.struct({ jwt: Schema.Redacted(Schema.String) }))

/**
 * What the server knows about the API key of the request.
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
 * @since 0.1.0
 * @category auth
 */
export type ApiKey = typeof ApiKey.Type
