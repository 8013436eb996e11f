/**
 * Limits for chat templates. Templates are third-party programs: one that loops forever or fills the memory ends with a
 * `TemplateError`. Work is counted rather than timed, so that an input that renders once always renders.
 *
 * @since 0.1.0
 */

/**
 * How much work a template may do.
 *
 * @since 0.1.0
 * @category models
 */
export interface TemplateLimits {
  /**
   * Statements, visited items, calls (eight steps each), and one step per 16 processed characters. Default: 10 million.
   */
  readonly steps: number
  /** The length of the longest string, including the result, in UTF-16 units. Default: 2²⁴. */
  readonly length: number
  /** The depth of nested macro calls, of nested syntax, and of nested data. Default: 200. */
  readonly depth: number
}

/**
 * The default limits: hundreds of times what real templates need for long conversations, and about a second of work.
 *
 * @since 0.1.0
 * @category constants
 */
export const defaults: TemplateLimits = { steps: 10_000_000, length: 2 ** 24, depth: 200 }
