import { readdirSync, rmSync } from "node:fs"

const remove = (path) => rmSync(new URL(`../${path}`, import.meta.url), { recursive: true, force: true })

remove(".tsbuild")
for (const name of readdirSync(new URL("../packages", import.meta.url))) remove(`packages/${name}/dist`)
