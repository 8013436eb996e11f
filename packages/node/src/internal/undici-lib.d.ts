// Types of undici's internal modules.
declare module "undici/lib/dispatcher/pool.js" {
  import type { Pool } from "undici"
  const pool: typeof Pool
  export default pool
}
declare module "undici/lib/core/errors.js" {
  import type { errors } from "undici"
  const all: typeof errors
  export default all
}
declare module "undici/lib/core/connect.js" {
  import type { buildConnector } from "undici"
  const build: typeof buildConnector
  export default build
}
