/** Writes a bill of materials in the CycloneDX format. Pure. */
import type { Installed } from "./Packages.ts"

const urlOf = ({ name, version }: Installed) => `pkg:npm/${name.replace("@", "%40")}@${version}`

/** Describes all packages as CycloneDX 1.5. */
export const cycloneDx = (packages: ReadonlyArray<Installed>, version: string): string =>
  `${JSON.stringify(
    {
      bomFormat: "CycloneDX",
      specVersion: "1.5",
      version: 1,
      metadata: {
        component: { type: "library", name: "effect-tinker", version, licenses: [{ license: { id: "MIT" } }] },
      },
      components: packages.map((one) => ({
        type: "library",
        "bom-ref": urlOf(one),
        name: one.name,
        version: one.version,
        purl: urlOf(one),
        licenses: [{ expression: one.license }],
      })),
    },
    null,
    2,
  )}\n`
