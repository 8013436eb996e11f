/** The amounts of a meter, and whether another one fits the budget. Knows nothing of tokens, fibers or clients. */

export class Ledger {
  spent: bigint
  unconfirmed = 0n
  limit: bigint | undefined
  /** Reserved for operations that will cost just that. */
  private exact = 0n
  /** Reserved for operations that may cost less. */
  private atMost = 0n

  constructor(spent: bigint, limit: bigint | undefined) {
    this.spent = spent
    this.limit = limit
  }

  get inFlight(): bigint {
    return this.exact + this.atMost
  }

  /** Money that is spent, or may be. */
  get committed(): bigint {
    return this.spent + this.unconfirmed + this.exact
  }

  /**
   * Reserves an amount if it fits. `later`: it may fit when operations in flight turn out to cost less than they could.
   */
  reserve(amount: bigint, isExact: boolean): "reserved" | "later" | "over" {
    if (this.limit !== undefined && this.committed + amount > this.limit) return "over"
    if (this.limit !== undefined && this.committed + this.atMost + amount > this.limit) return "later"
    if (isExact) this.exact += amount
    else this.atMost += amount
    return "reserved"
  }

  /** Replaces a reservation by what the operation cost. */
  settle(reserved: bigint, isExact: boolean, cost: bigint): void {
    this.free(reserved, isExact)
    this.spent += cost
  }

  /** Keeps a reservation forever, because the cost of the operation is unknown. */
  abandon(reserved: bigint, isExact: boolean): void {
    this.free(reserved, isExact)
    this.unconfirmed += reserved
  }

  private free(amount: bigint, isExact: boolean): void {
    if (isExact) this.exact -= amount
    else this.atMost -= amount
  }
}
