/**
 * How much a chat template may do. Templates are programs of other people: one that never ends, or fills the memory,
 * ends in a `TemplateError` instead. Work is counted, not timed, so that a template that renders once always renders.
 *
 * @since 0.1.0
 */

/**
 * @since 0.1.0
 * @category models
 */
export interface TemplateLimits {
  /** Statements, items visited, calls (eight each) and, for each 16 characters that are worked on, one. Default: 10 million. */
  readonly steps: number
  /** The longest text, the result included, in UTF-16 units. Default: 2²⁴. */
  readonly length: number
  /** How deep macros may call each other, syntax may be nested, and data may be nested. Default: 200. */
  readonly depth: number
}

/**
 * Hundreds of times what real templates need for long conversations, and about a second of work.
 *
 * @since 0.1.0
 * @category constants
 */
export const defaults: TemplateLimits = { steps: 10_000_000, length: 2 ** 24, depth: 200 }
