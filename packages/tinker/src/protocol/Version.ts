/**
 * The version of this SDK.
 *
 * @since 0.1.0
 */

/**
 * The version of this SDK, sent with every request. A test keeps it in sync with the package version.
 *
 * @since 0.1.0
 * @category constants
 */
export const version: string = "0.1.0"
