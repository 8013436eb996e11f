/**
 * Imports only the parts of undici that are used. Its main entry also loads fetch, WebSocket, cookies, caches and
 * mocks, which take a quarter of the startup time of a bundled program. These files are not public API, so the undici
 * version is pinned exactly.
 */
import type * as Undici from "undici"
import undiciConnector from "undici/lib/core/connect.js"
import undiciErrors from "undici/lib/core/errors.js"
import UndiciPool from "undici/lib/dispatcher/pool.js"

export const Pool: typeof Undici.Pool = UndiciPool
export type Pool = Undici.Pool
export const buildConnector: typeof Undici.buildConnector = undiciConnector
export const errors: typeof Undici.errors = undiciErrors
