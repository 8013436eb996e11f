/** Counts the work of a render and ends it when a limit is exceeded. */
import type { TemplateLimits } from "../../TemplateLimits.ts"
import { Failure } from "./Failure.ts"

export class Meter {
  readonly limits: TemplateLimits
  left: number
  depth = 0
  constructor(limits: TemplateLimits) {
    this.limits = limits
    this.left = limits.steps
  }

  get used(): number {
    return this.limits.steps - this.left
  }

  /** Charges for steps; called before the work is done. */
  spend(steps: number): void {
    this.left -= steps
    if (this.left < 0) {
      throw new Failure("Limit", `the template takes more than ${this.limits.steps} steps; raise the limit \`steps\``)
    }
  }

  /** Charges for reading or writing a text of this length. */
  text(length: number): void {
    this.within(length)
    this.spend(1 + length / 16)
  }

  /** Charges for concatenating texts, which the runtime does without copying. */
  join(length: number): void {
    this.within(length)
    this.spend(1 + length / 1024)
  }

  within(length: number): void {
    if (length > this.limits.length) {
      throw new Failure("Limit", `a text exceeds ${this.limits.length} characters; raise the limit \`length\``)
    }
  }

  /** Charges for calculating with an integer of this size. Python can't print integers above 4300 decimal digits. */
  bits(length: number): void {
    if (length > 65_536) throw new Failure("Limit", "an integer exceeds 65536 bits")
    this.spend(1 + length / 64)
  }

  nested<A>(work: () => A): A {
    if (this.depth >= this.limits.depth) {
      throw new Failure(
        "Limit",
        `the template recurses deeper than ${this.limits.depth} levels; raise the limit \`depth\``,
      )
    }
    this.depth++
    try {
      return work()
    } finally {
      this.depth--
    }
  }
}
