/**
 * @since 0.1.0
 */

/**
 * The version of this SDK, sent with every request. A test keeps it equal to the package's.
 *
 * @since 0.1.0
 * @category constants
 */
export const version: string = "0.1.0"
