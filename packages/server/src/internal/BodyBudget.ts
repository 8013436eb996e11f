/** Counts the bytes of all request bodies in memory, so that many large requests together stay within a limit. */
export interface Share {
  /** Adds bytes to the share; returns false if they exceed the budget. */
  readonly take: (bytes: number) => boolean
  readonly release: () => void
}

/** Small bodies are always read, so that heartbeats and polls get through while large bodies fill the budget. */
const small = 16 * 2 ** 10

export const make = (limit: number): { readonly share: () => Share } => {
  let used = 0
  return {
    share: () => {
      let own = 0
      return {
        take: (bytes) => {
          if (own + bytes > small && used + bytes > limit) return false
          own += bytes
          used += bytes
          return true
        },
        release: () => {
          used -= own
          own = 0
        },
      }
    },
  }
}
