/** Counts what a render costs, and ends it when that is too much. */
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

  /** So many steps; asked before the work is done. */
  spend(steps: number): void {
    this.left -= steps
    if (this.left < 0) {
      throw new Failure("Limit", `the template takes more than ${this.limits.steps} steps`)
    }
  }

  /** A text of this length is read or written as a whole. */
  text(length: number): void {
    this.within(length)
    this.spend(1 + length / 16)
  }

  /** Two texts are put together, which the runtime does without copying them. */
  join(length: number): void {
    this.within(length)
    this.spend(1 + length / 1024)
  }

  within(length: number): void {
    if (length > this.limits.length) {
      throw new Failure("Limit", `a text becomes longer than ${this.limits.length} characters`)
    }
  }

  /** An integer of so many binary digits is calculated with. Python can't print those of more than 4300 decimal ones. */
  bits(length: number): void {
    if (length > 65_536) throw new Failure("Limit", "an integer has more than 65536 binary digits")
    this.spend(1 + length / 64)
  }

  nested<A>(work: () => A): A {
    if (this.depth >= this.limits.depth) {
      throw new Failure("Limit", `the template recurses more than ${this.limits.depth} levels deep`)
    }
    this.depth++
    try {
      return work()
    } finally {
      this.depth--
    }
  }
}
