import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { blocksOf } from './blocks.ts'
import type { Export } from './exports.ts'

const RESULT = /^(.+?) \/\/ => (.+)$/gm

/** An example as a module: each `EXPRESSION // => VALUE` compares both. */
const moduleOf = (example: string): string =>
  `import { deepEqual } from 'node:assert/strict'\n${example.replaceAll(RESULT, 'deepEqual(\n  $1,\n  $2,\n)')}\n`

export const hasResult = (example: string): boolean => example.search(RESULT) >= 0

/** The name of the module: names that differ by case alone are different files on every machine. */
export const fileOf = ({ name }: Export): string => `${/^[A-Z]/.test(name) ? 'type' : 'value'}-${name.toLowerCase()}.ts`

/**
 * A folder of modules with the examples, beside `website.ts` of the tutorial, which they import. It is inside the
 * repository, so that `fairlead` is its own package.
 */
export async function examplesFolder(
  exports: readonly Export[],
  change: (example: string) => string = (example) => example,
): Promise<{ dir: string } & AsyncDisposable> {
  await mkdir('build', { recursive: true })
  const dir = await mkdtemp(join(process.cwd(), 'build/examples-'))
  const website = (await blocksOf('tutorial')).find(({ about }) => about === 'website.ts')?.text ?? ''
  await writeFile(join(dir, 'website.ts'), website)
  for (const one of exports)
    await writeFile(
      join(dir, fileOf(one)),
      `${moduleOf(change(one.example ?? ''))}export {}
`,
    )
  return { dir, [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }) }
}
