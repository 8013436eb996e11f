/** Writes comma-separated values as RFC 4180 defines them. */

const quoted = (cell: string): string => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell)

/** Writes a header and rows, each ended by CR and LF. */
export const render = (columns: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<string>>): string =>
  [columns, ...rows].map((row) => `${row.map(quoted).join(",")}\r\n`).join("")
