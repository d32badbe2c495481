import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { authorsFolder, PACKED_WITHIN_MS, ROOT } from './author.ts'

const HEAD = `import { ConfigMap, Pod, reconciler, resource, z } from 'fairlead'
import { simulate } from 'fairlead/testing'
const base = { group: 'example.com', version: 'v1', kind: 'Website', plural: 'websites' }
const status = z.object({ phase: z.enum(['New', 'Up']), ready: z.int32() })
const spec = z.object({ size: z.int32() })
export const Website = resource({ ...base, spec, status })
const website = { name: 'website', for: Website }
export const right = reconciler({ ...website, reconcile: () => ({ status: { phase: 'Up', ready: 1 } }) })
export const world = simulate(right, { objects: [] })
void [ConfigMap, Pod]
`

/** The last line of a module, and the complete error of the compiler for it. */
const CASES: [wrong: string, said: string][] = [
  ['resource({ ...base, spec })', "TS2741: Property 'status' is missing in type"],
  [
    'resource({ ...base, spec: z.string(), status })',
    "TS2740: Type 'ZodString' is missing the following properties from type 'ZodObject",
  ],
  [
    "resource({ ...base, spec, status, scope: 'Namespace' })",
    `TS2820: Type '"Namespace"' is not assignable to type '"Cluster" | "Namespaced" | undefined'`,
  ],
  [
    "resource({ ...base, spec, status, validations: [{ rul: 'true' }] })",
    "TS2561: Object literal may only specify known properties, but 'rul' does not exist in type 'ValidationRule'",
  ],
  [
    "Website.of({ metadata: { name: 'a' }, spec: { size: 'x' } })",
    "TS2322: Type 'string' is not assignable to type 'number'",
  ],
  [
    "Website.of({ metadata: { name: 'a' }, spec: { sise: 1, size: 1 } })",
    "TS2353: Object literal may only specify known properties, and 'sise' does not exist",
  ],
  [
    "Website.of({ metadata: { name: 'a' }, spec: { size: 1 }, status: { phase: 'Old' } })",
    `TS2322: Type '"Old"' is not assignable to type '"New" | "Up"`,
  ],
  [
    "reconciler({ ...website, reconcile: () => ({ status: { phase: 'Old', ready: 1 } }) })",
    `TS2322: Type '"Old"' is not assignable to type '"New" | "Up"'`,
  ],
  [
    "reconciler({ ...website, reconcile: () => ({ status: { phase: 'Up', ready: 1, conditions: [{ type: 'Ready', status: 'True', reason: 'Up' }] } }) })",
    "TS2741: Property 'lastTransitionTime' is missing in type",
  ],
  [
    "reconciler({ ...website, reconcile: () => ({ status: { phase: 'New' } }) })",
    "TS2741: Property 'ready' is missing in type",
  ],
  [
    "reconciler({ ...website, reconcile: ({ object }) => ({ status: { phase: 'Up', ready: object.spec.sise } }) })",
    "TS2339: Property 'sise' does not exist on type '{ size: number; }'",
  ],
  [
    "reconciler({ ...website, related: [{ ...Pod, within: 'Clustre' }], reconcile: () => undefined })",
    `TS2820: Type '"Clustre"' is not assignable to type '"Cluster" | "Namespace" | undefined'`,
  ],
  ['world.object?.status?.phse', "TS2551: Property 'phse' does not exist on type"],
  ['world.object?.spec.size.length', "TS2339: Property 'length' does not exist on type 'number'"],
]

let folder: Awaited<ReturnType<typeof authorsFolder>>
let said: string[]

beforeAll(async () => {
  folder = await authorsFolder()
  const { dir } = folder
  for (const [index, [wrong]] of CASES.entries()) await writeFile(join(dir, `case-${index}.ts`), `${HEAD}${wrong}\n`)
  const compilerOptions = { tsBuildInfoFile: 'tsc.tsbuildinfo', typeRoots: [join(ROOT, 'node_modules/@types')] }
  const project = { extends: join(ROOT, 'tsconfig.json'), compilerOptions, include: ['*.ts'] }
  await writeFile(join(dir, 'tsconfig.json'), JSON.stringify(project))
  const compiling = promisify(execFile)(join(ROOT, 'node_modules/.bin/tsc'), ['-p', '.', '--pretty', 'false'], {
    cwd: dir,
  })
  const { stdout } = await compiling.catch((failed: { stdout: string }) => failed)
  said = stdout.trimEnd().split('\n')
}, PACKED_WITHIN_MS)
afterAll(() => folder?.[Symbol.asyncDispose]())

it.each(CASES.map(([wrong, message], index) => ({ wrong, message, file: `case-${index}.ts` })))(
  'the compiler says in one line what is wrong with $wrong',
  ({ message, file }) => {
    const lines = said.filter((line) => line.startsWith(`${file}(`))
    expect(lines).toEqual([expect.stringContaining(`error ${message}`)])
    expect(lines[0]).toMatch(new RegExp(`^${file}\\(${HEAD.split('\n').length},\\d+\\)`))
    expect(said.filter((line) => line.startsWith(' '))).toEqual([])
  },
)
