/**
 * The part of undici that is used here. Its entry also loads fetch, WebSocket, cookies, caches and mocks, a quarter of
 * the start of a bundled program. The files are no promise of undici's, so its version is pinned exactly.
 */
import type * as Undici from "undici"
import undiciConnector from "undici/lib/core/connect.js"
import undiciErrors from "undici/lib/core/errors.js"
import UndiciPool from "undici/lib/dispatcher/pool.js"

export const Pool: typeof Undici.Pool = UndiciPool
export type Pool = Undici.Pool
export const buildConnector: typeof Undici.buildConnector = undiciConnector
export const errors: typeof Undici.errors = undiciErrors
