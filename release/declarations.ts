import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'

const PACKAGE = '@kubernetes/client-node'
const IMPORTED = new RegExp(`(['"])${PACKAGE}['"]`, 'g')
const FOLDER = 'kubernetes-models'
const MODELS = 'gen/models'
/** The only type of that file that models use. The file imports the rest of the client. */
const INT_OR_STRING = /^export type IntOrString = .*;$/m
const NEXT = /from '(\.[^']+)\.js'/g

/**
 * Copies the declarations of those models that the package's declarations use, with their license, so that users need
 * not install a client of 65 MB. Returns the number of files.
 */
export async function bundleModels(root: string, declarations: readonly string[], installed: string): Promise<number> {
  const [source, folder] = [join(installed, PACKAGE, 'dist'), join(root, FOLDER)]
  const copied = new Set<string>()
  const copy = async (path: string): Promise<void> => {
    if (copied.has(path)) return
    copied.add(path)
    const whole = await readFile(join(source, `${path}.d.ts`), 'utf8')
    const text = path === 'types' ? (INT_OR_STRING.exec(whole)?.[0] ?? '') : whole
    await mkdir(dirname(join(folder, path)), { recursive: true })
    await writeFile(join(folder, `${path}.d.ts`), text)
    for (const [, next = ''] of text.matchAll(NEXT)) await copy(join(dirname(path), next))
  }
  const named = new Set<string>()
  for (const path of declarations) {
    const file = join(root, path)
    const text = await readFile(file, 'utf8')
    if (!text.includes(PACKAGE)) continue
    for (const [name] of text.matchAll(/\bV\d[A-Z]\w+/g)) named.add(`${MODELS}/${name}`)
    const index = `${'../'.repeat(path.split('/').length - 1)}${FOLDER}/index.js`
    await writeFile(file, text.replace(IMPORTED, `$1${index}$1`))
  }
  for (const path of named) await copy(path)
  await writeFile(
    join(folder, 'index.d.ts'),
    [...named]
      .sort()
      .map((path) => `export * from './${path}.js'\n`)
      .join(''),
  )
  await writeFile(join(folder, 'LICENSE'), await readFile(join(installed, PACKAGE, 'LICENSE')))
  return copied.size
}
