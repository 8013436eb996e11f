/** Delays between attempts, in milliseconds. Every loop that repeats something takes them from here. */

/** Time between two attempts while billing blocks the account. */
export const billingInterval = 5_000

/** Delay before the first retry: most failures are a single closed connection or a restarting process. */
export const firstDelay = 20

const secondDelay = 250

/**
 * Doubles from `base`. The first two retries come sooner than that, unless the server asked for fewer requests.
 */
export const doubling = (base: number, retries: number, isRateLimited: boolean): number => {
  if (isRateLimited) return base * 2 ** retries
  if (retries < 2) return Math.min(retries === 0 ? firstDelay : secondDelay, base)
  return base * 2 ** (retries - 1)
}
