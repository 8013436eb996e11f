/** Tells when the memory of a body may be reused: no attempt reads it any more, and none will follow. */
export class BodyUse {
  private readers = 0
  private isOver = false
  private readonly onFree: () => void

  constructor(onFree: () => void) {
    this.onFree = onFree
  }

  /** A client starts to read the body. */
  began(): void {
    this.readers++
  }

  /** The client that started last no longer reads it. */
  readonly sent = (): void => {
    this.readers--
    this.check()
  }

  /** No attempt will follow. */
  ended(): void {
    this.isOver = true
    this.check()
  }

  private check(): void {
    if (this.isOver && this.readers === 0) this.onFree()
  }
}
