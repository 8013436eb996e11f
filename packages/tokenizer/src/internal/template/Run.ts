/** The state of one render: its meter, the current line and the variables. */
import type { Meter } from "./Meter.ts"
import type { Value } from "./Value.ts"

export class Run {
  readonly meter: Meter
  readonly globals: ReadonlyMap<string, Value>
  line = 0
  constructor(meter: Meter, globals: ReadonlyMap<string, Value>) {
    this.meter = meter
    this.globals = globals
  }
}

/** The variables of one call of a macro or of the template; undefined if not assigned yet. */
export class Frame {
  readonly run: Run
  readonly meter: Meter
  readonly parent: Frame | undefined
  readonly slots: Array<Value | undefined>
  /** The rendered text of the block that is being filtered. */
  captured = ""
  constructor(run: Run, size: number, parent?: Frame) {
    this.run = run
    this.meter = run.meter
    this.parent = parent
    this.slots = Array.from({ length: size })
  }
}

/** Collects rendered text. */
export class Output {
  text = ""
  private readonly meter: Meter
  constructor(meter: Meter) {
    this.meter = meter
  }
  write(text: string): void {
    this.text += text
    this.meter.within(this.text.length)
  }
}
