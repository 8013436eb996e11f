/** The messages between the server and a model thread. */
import type { SampledToken } from "../ModelHost.ts"

export interface Start {
  readonly module: string
  readonly data: unknown
}

export type Ask =
  | { readonly id: number; readonly method: string; readonly args: ReadonlyArray<unknown>; readonly stream: boolean }
  | { readonly id: number; readonly cancel: true }

export type Reply =
  | { readonly id: number; readonly value: unknown }
  | { readonly id: number; readonly error: { readonly reason: "invalid" | "internal"; readonly message: string } }
  | { readonly id: number; readonly sequence: number; readonly token: SampledToken }
