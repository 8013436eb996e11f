/** Decides which fault applies to a request. */
import * as Duration from "effect/Duration"
import type { Fault, Seen } from "../../testing/ScriptedServer.ts"

export class Rule {
  fired = 0
  private met = 0
  private readonly from: number
  private readonly until: number
  private readonly times: number

  readonly fault: Fault

  constructor(fault: Fault, now: number) {
    this.fault = fault
    this.from = now + Duration.toMillis(fault.after ?? 0)
    this.until = fault.for === undefined ? Number.POSITIVE_INFINITY : this.from + Duration.toMillis(fault.for)
    this.times = fault.times ?? (fault.for === undefined ? 1 : Number.POSITIVE_INFINITY)
  }

  /** Counts a matching request and returns whether the fault applies to it. */
  happensTo(request: Seen): boolean {
    const { nth = 1, on } = this.fault
    const isFor = on === undefined || (typeof on === "function" ? on(request) : on === request.operation)
    if (!isFor || request.at < this.from || request.at >= this.until) return false
    this.met++
    if (this.met < nth || this.fired >= this.times) return false
    this.fired++
    return true
  }
}

export class Faults {
  private rules: ReadonlyArray<Rule> = []

  add(fault: Fault, now: number): Rule {
    const rule = new Rule(fault, now)
    this.rules = [...this.rules, rule]
    return rule
  }

  remove(rule: Rule): void {
    this.rules = this.rules.filter((other) => other !== rule)
  }

  meet(request: Seen): Fault | undefined {
    return this.rules.find((rule) => rule.happensTo(request))?.fault
  }
}
