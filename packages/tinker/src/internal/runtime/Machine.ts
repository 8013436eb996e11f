/** Drives a pure core: hands it events one at a time and performs the commands that it returns. */

/** Commands may cause events before they return; those wait until all commands of the current event are performed. */
export abstract class Machine<Event, Command> {
  private waiting: Array<Event> | undefined = undefined
  private isRunning = false

  /** Applies an event to the state and returns what to do. */
  protected abstract handle(event: Event): ReadonlyArray<Command>

  /** Performs one command. */
  protected abstract perform(command: Command): void

  /** Ends the work after `handle` or `perform` threw. It must not throw, and its own commands must not. */
  protected abstract onDefect(cause: unknown): void

  send(event: Event): void {
    if (this.isRunning) {
      ;(this.waiting ??= []).push(event)
      return
    }
    this.isRunning = true
    let next: Event | undefined = event
    while (next !== undefined) {
      this.step(next)
      next = this.waiting?.shift()
    }
    this.isRunning = false
  }

  private step(event: Event): void {
    try {
      for (const command of this.handle(event)) this.perform(command)
    } catch (cause) {
      this.onDefect(cause)
    }
  }
}
