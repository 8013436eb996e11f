/**
 * Draws tables that fit a width. Column widths and line breaks are those of the official command, so that both print the
 * same table.
 */

/** A table: its cells may wrap, except in the first column. */
export interface Table {
  readonly title?: string | undefined
  readonly columns: ReadonlyArray<string>
  readonly rows: ReadonlyArray<ReadonlyArray<string>>
}

/** How the parts of a table are emphasized. */
export interface Styles {
  readonly title: (text: string) => string
  readonly header: (text: string) => string
  readonly first: (text: string) => string
}

const same = (text: string): string => text

/** No emphasis, for pipes. */
export const plain: Styles = { title: same, header: same, first: same }

const ansi = (code: string) => (text: string) => `\u001b[${code}m${text}\u001b[0m`

/** The emphasis on terminals. */
export const colored: Styles = { title: ansi("3"), header: ansi("1"), first: ansi("96") }

/** The columns that a character takes on a terminal: East Asian wide characters and emoji take two. */
const isWide = (code: number): boolean =>
  code >= 0x1100 &&
  (code <= 0x115f ||
    (code >= 0x2e80 && code <= 0xa4cf) ||
    (code >= 0xac00 && code <= 0xd7a3) ||
    (code >= 0xf900 && code <= 0xfaff) ||
    (code >= 0xfe30 && code <= 0xfe6f) ||
    (code >= 0xff00 && code <= 0xff60) ||
    (code >= 0xffe0 && code <= 0xffe6) ||
    (code >= 0x1f300 && code <= 0x1faff) ||
    (code >= 0x20000 && code <= 0x3fffd))

/** The number of columns that a text takes on a terminal. */
export const lengthOf = (text: string): number => {
  let length = 0
  for (const character of text) length += isWide(character.codePointAt(0) ?? 0) ? 2 : 1
  return length
}

/** The beginning of a text that fits a width. */
const cut = (text: string, width: number): string => {
  let [kept, length] = ["", 0]
  for (const character of text) {
    length += lengthOf(character)
    if (length > width) break
    kept += character
  }
  return kept
}

const truncated = (text: string, width: number): string =>
  lengthOf(text) <= width ? text : width < 1 ? "" : `${cut(text, width - 1)}…`

const pieces = (text: string, width: number): ReadonlyArray<string> => {
  const out: Array<string> = []
  for (let rest = text; rest !== ""; rest = rest.slice(out.at(-1)?.length)) out.push(cut(rest, width) || rest)
  return out
}

/** Breaks a line between words. A word longer than the width gets lines of its own, shortened or continued. */
const wrapped = (line: string, width: number, long: "shorten" | "continue"): ReadonlyArray<string> => {
  const lines: Array<string> = []
  let current = ""
  for (const word of line.match(/\s*\S+\s*/g) ?? []) {
    if (lengthOf(current) + lengthOf(word.trimEnd()) <= width) current += word
    else {
      if (current !== "") lines.push(current)
      current = word
    }
  }
  lines.push(current)
  return lines.flatMap((text) => {
    const kept = lengthOf(text) > width ? text.trimEnd() : text
    return long === "shorten" || lengthOf(kept) <= width ? [truncated(kept, width)] : pieces(kept, width)
  })
}

const padded = (text: string, width: number): string => text + " ".repeat(Math.max(0, width - lengthOf(text)))

const centered = (text: string, width: number): string => {
  const left = Math.max(0, Math.floor((width - lengthOf(text)) / 2))
  return padded(" ".repeat(left) + text, width)
}

/** Rounds a half to the even neighbor. */
const round = (value: number): number => {
  const floor = Math.floor(value)
  if (value - floor !== 0.5) return Math.round(value)
  return floor % 2 === 0 ? floor : floor + 1
}

/** Takes a total from chosen widths in equal parts, none of which loses more than its limit. */
const reduced = (
  widths: ReadonlyArray<number>,
  total: number,
  isChosen: (width: number, index: number) => boolean,
  limit: (width: number) => number,
): Array<number> => {
  let rest = total
  let left = widths.filter((width, index) => isChosen(width, index) && limit(width) > 0).length
  return widths.map((width, index) => {
    if (!isChosen(width, index) || limit(width) <= 0) return width
    const share = Math.min(limit(width), round(rest / left))
    rest -= share
    left -= 1
    return width - share
  })
}

const sum = (numbers: ReadonlyArray<number>): number => numbers.reduce((total, number) => total + number, 0)

/** Narrows the widest columns first, down to the next widest, and all of them only if that is not enough. */
const fitted = (natural: ReadonlyArray<number>, available: number): ReadonlyArray<number> => {
  let widths = [...natural]
  const mayWrap = (index: number) => index > 0
  for (let excess = sum(widths) - available; excess > 0; excess = sum(widths) - available) {
    const wrapping = widths.filter((_, index) => mayWrap(index))
    const widest = Math.max(0, ...wrapping)
    const next = Math.max(0, ...wrapping.filter((width) => width !== widest))
    const step = Math.min(excess, widest - next)
    if (wrapping.length === 0 || step === 0) break
    widths = reduced(
      widths,
      excess,
      (width, index) => mayWrap(index) && width === widest,
      () => step,
    )
  }
  const excess = sum(widths) - available
  return excess <= 0
    ? widths
    : reduced(
        widths,
        excess,
        () => true,
        (width) => width,
      )
}

const longest = (text: string): number => Math.max(0, ...text.split("\n").map(lengthOf))

/** A cell has one space on either side. */
const padding = 2

/** Draws a table. A table without columns is its title. */
export const render = ({ columns, rows, title }: Table, width: number, styles: Styles = plain): string => {
  if (columns.length === 0) return title === undefined ? "" : `${title}\n`
  const natural = columns.map((column, index) =>
    Math.max(longest(column), ...rows.map((row) => longest(row[index] ?? ""))),
  )
  const widths = fitted(
    natural.map((width) => width + padding),
    width - columns.length - 1,
  )
  const total = sum(widths) + columns.length + 1
  const rule = (left: string, line: string, middle: string, right: string) =>
    `${left}${widths.map((width) => line.repeat(width)).join(middle)}${right}\n`
  const row = (cells: ReadonlyArray<string>, edge: string, style: (text: string, column: number) => string) => {
    const blocks = widths.map((width, index) => {
      const room = Math.max(0, width - padding)
      const lines = (cells[index] ?? "").split("\n")
      return index === 0
        ? lines.map((line) => truncated(line, room))
        : lines.flatMap((line) => wrapped(line, room, "shorten"))
    })
    const height = Math.max(1, ...blocks.map((block) => block.length))
    return Array.from({ length: height }, (_, line) => {
      const parts = blocks.map((block, index) => {
        const room = (widths[index] ?? 0) - padding
        return room < 0 ? " ".repeat(room + padding) : ` ${style(padded(cut(block[line] ?? "", room), room), index)} `
      })
      return `${edge}${parts.join(edge)}${edge}\n`
    }).join("")
  }
  const head =
    title === undefined
      ? ""
      : wrapped(title, total, "continue")
          .map((line) => `${styles.title(centered(line.trimEnd(), total))}\n`)
          .join("")
  return [
    head,
    rule("┏", "━", "┳", "┓"),
    row(columns, "┃", styles.header),
    rule("┡", "━", "╇", "┩"),
    ...rows.map((cells) => row(cells, "│", (text, column) => (column === 0 ? styles.first(text) : text))),
    rule("└", "─", "┴", "┘"),
  ].join("")
}
