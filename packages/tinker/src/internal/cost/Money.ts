/** Amounts of money, exact in picodollars. */

/**
 * An amount of money in picodollars (10⁻¹² USD).
 *
 * @since 0.1.0
 * @category money
 */
export type Money = bigint

/**
 * Returns an amount in dollars as money. Digits beyond picodollars are rounded.
 *
 * @since 0.1.0
 * @category money
 */
export const usd = (dollars: number): Money => {
  // In two parts, because a float has not enough digits for a thousand dollars in picodollars.
  const micros = Math.trunc(dollars * 1e6)
  return BigInt(micros) * 1_000_000n + BigInt(Math.round((dollars * 1e6 - micros) * 1e6))
}

/**
 * Returns money in dollars, for display and metrics.
 *
 * @since 0.1.0
 * @category money
 */
export const toUsd = (money: Money): number => Number(money) / 1e12

/**
 * Formats money: whole cents from a dollar on, and more digits the less it is.
 *
 * @since 0.1.0
 * @category money
 */
export const format = (money: Money): string => {
  const dollars = toUsd(money)
  const size = Math.abs(dollars)
  return `$${dollars.toFixed(size >= 1 || size === 0 ? 2 : size >= 0.01 ? 4 : 6)}`
}
