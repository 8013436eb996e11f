import { describe, expect, it } from "@effect/vitest"
import * as Csv from "../src/internal/Csv.js"
import * as Json from "../src/internal/Json.js"
import * as Progress from "../src/internal/Progress.js"
import * as Table from "../src/internal/Table.js"
import * as Words from "../src/internal/Words.js"

const rows = [["run-1", "a description of several words", "tinker://a-rather-long-run-id/weights/final"]]

describe("Table", () => {
  it("no line is wider than the terminal, however narrow, and text wraps between words", () => {
    for (let width = 20; width <= 120; width++) {
      const lines = Table.render({ title: "1 run", columns: ["ID", "Words", "Path"], rows }, width).split("\n")
      expect([width, Math.max(...lines.map(Table.lengthOf)) <= width]).toEqual([width, true])
    }
    expect(Table.render({ columns: ["ID", "Words", "Path"], rows }, 50)).toBe(
      [
        "┏━━━━━━━┳━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┓",
        "┃ ID    ┃ Words              ┃ Path              ┃",
        "┡━━━━━━━╇━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━┩",
        "│ run-1 │ a description of   │ tinker://a-rathe… │",
        "│       │ several words      │                   │",
        "└───────┴────────────────────┴───────────────────┘",
        "",
      ].join("\n"),
    )
  })

  it("wide characters count as two columns", () => {
    const lines = Table.render({ columns: ["名前", "x"], rows: [["日本", "ab"]] }, 40).split("\n")
    expect(new Set(lines.filter((line) => line !== "").map(Table.lengthOf))).toEqual(new Set([13]))
  })

  it("colors change no widths, and a table without columns is its title", () => {
    const table = { title: "t", columns: ["ID", "Words"], rows: [["a", "b"]] }
    // oxlint-disable-next-line no-control-regex
    expect(Table.render(table, 40, Table.colored).replaceAll(/\u001b\[\d+m/g, "")).toBe(Table.render(table, 40))
    expect(Table.render({ title: "Nothing", columns: [], rows: [] }, 40)).toBe("Nothing\n")
  })
})

describe("JSON, CSV, words and bars", () => {
  it("fractions keep their fraction, and text is ASCII", () => {
    const numbers = [1, 0.5, 1e-5, 1.5e-7, 1e16, 123456.25, 0].map((value) => new Json.Fraction(value))
    expect(Json.compact(numbers)).toBe("[1.0, 0.5, 1e-05, 1.5e-07, 1e+16, 123456.25, 0.0]")
    expect(Json.compact({ a: "é\n", b: [], c: {} })).toBe(String.raw`{"a": "\u00e9\n", "b": [], "c": {}}`)
    expect(Json.pretty({ a: [1, null], b: {} })).toBe('{\n  "a": [\n    1,\n    null\n  ],\n  "b": {}\n}')
  })

  it("cells with separators are quoted", () => {
    expect(Csv.render(["a", "b"], [['x"y', "1,2"]])).toBe('a,b\r\n"x""y","1,2"\r\n')
  })

  it("sizes and times read as in the official command", () => {
    expect([0, 1023, 1024, 1048576, 5e12].map(Words.size)).toEqual(["0 B", "1023 B", "1.0 KB", "1.0 MB", "4.5 TB"])
    const at = (seconds: number) => Words.time(1e12 - seconds * 1000, 1e12)
    expect([5, 61, 7200, 86_400 * 2, 86_400 * 15, 86_400 * 31].map(at)).toEqual([
      "just now",
      "1 minute ago",
      "2 hours ago",
      "2 days ago",
      "2 weeks ago",
      "2001-08-09",
    ])
    expect([at(-30), at(-7200)]).toEqual(["in less than a minute", "in 2 hours"])
    expect([Words.stamp(0), Words.stamp(5)]).toEqual(["1970-01-01 00:00:00+00:00", "1970-01-01 00:00:00.005000+00:00"])
  })

  it("a bar fits its terminal and says how far it is", () => {
    const bar = { label: "adapter_model.safetensors", done: 50, total: 200, elapsed: 1000 }
    expect(Progress.draw(bar, 100)).toBe(
      "adapter_model.safetensors  [#########---------------------------]   25%  50/200  00:00:03",
    )
    for (let width = 10; width < 100; width++) expect(Progress.draw(bar, width).length).toBeLessThan(width)
  })
})
