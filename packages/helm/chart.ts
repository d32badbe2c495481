import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { parse, parseAllDocuments } from 'yaml'

/** A chart in a folder, as far as it is known without rendering it. */
export interface Chart {
  folder: string
  name: string
  /** The hash of all its files. */
  digest: string
  hasNotes: boolean
  /** Its templates draw a value at random. */
  isRandom: boolean
  /** A value is drawn of so few that it may be the same in two renderings. */
  drawsFew: boolean
  /** The templates in which a value is drawn for other values: paths, or `undefined` if it may be any of them. */
  keyed: readonly string[] | undefined
  /** A template names a hook before the deletion. */
  hasDeletionHooks: boolean
  /** Its templates read the clock. */
  readsClock: boolean
  /** What does not give the same objects each time, each with its place. */
  unstable: Unstable[]
  /** The kinds that `crds/` defines. */
  defined: DefinedKind[]
}

interface DefinedKind {
  group: string
  kind: string
  plural: string
  scope: string
}

interface Unstable {
  /** `templates/secret.yaml:7` */
  place: string
  name: string
  /** What happens, and the stable way. */
  advice: string
}

const RANDOM =
  'a value is drawn when its object is created, and stays while the object exists: for a value that outlives it, name a Secret in the spec'
const KEYED = 'the result stays until the values or the chart change: then it is drawn again'
const CLOCK = 'the time of the creation stays while the object exists: leave it out, or give it in the spec'
const ADVICE: Record<string, string> = {
  lookup: 'it finds nothing, because rendering reads no cluster: give the value in the spec',
  getHostByName: 'it returns nothing, because rendering reads no network: give the address in the spec',
  now: CLOCK,
  ago: CLOCK,
  ...Object.fromEntries(
    [
      'randAlphaNum',
      'randAlpha',
      'randAscii',
      'randNumeric',
      'randBytes',
      'randInt',
      'shuffle',
      'uuidv4',
      'genCA',
      'genCAWithKey',
      'genPrivateKey',
    ].map((name) => [name, RANDOM]),
  ),
  ...Object.fromEntries(
    [
      'genSelfSignedCert',
      'genSelfSignedCertWithKey',
      'genSignedCert',
      'genSignedCertWithKey',
      'bcrypt',
      'htpasswd',
      'encryptAES',
    ].map((name) => [name, KEYED]),
  ),
}

const FEW = /\b(randInt|shuffle)\b|\brand(AlphaNum|Alpha|Ascii|Numeric|Bytes)\s+\(?(int\s+)?[1-3]\b/

/** Whether a text has a template that does not make the same each time. */
export const draws = (text: string): boolean =>
  [...text.matchAll(/\{\{.*?\}\}/gs)].some(([action]) =>
    [...action.matchAll(/[A-Za-z]\w*/g)].some(([name]) => Object.hasOwn(ADVICE, name)),
  )

/** Reads a chart. Rejects with an Error that names the folder or the file. */
export async function readChart(folder: string): Promise<Chart> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true }).catch((cause: Error) => {
    throw new Error(`cannot read the chart ${folder}: ${cause.message}`, { cause })
  })
  const paths = entries
    .filter((one) => !one.isDirectory())
    .map(({ parentPath, name }) => relative(folder, join(parentPath, name)))
    .sort()
  if (!paths.includes('Chart.yaml')) throw new Error(`${folder} is not a chart: it has no Chart.yaml`)
  const digest = createHash('sha256')
  const unstable: Unstable[] = []
  const defined: DefinedKind[] = []
  let name = ''
  let hasDeletionHooks = false
  let drawsFew = false
  for (const path of paths) {
    const content = await readFile(join(folder, path))
    digest.update(`${path}\0${content.length}\0`).update(content)
    if (path === 'Chart.yaml') name = (parse(content.toString()) as { name?: string } | null)?.name ?? ''
    const isArchive = /(^|\/)charts\/[^/]+\.tgz$/.test(path)
    // Values may have templates, for `tpl`.
    if (isArchive || /(^|\/)(templates\/|values\.yaml$)/.test(path)) {
      const text = isArchive ? gunzipSync(content).toString('latin1') : content.toString()
      unstable.push(...unstableIn(path, text))
      hasDeletionHooks ||= text.includes('pre-delete')
      drawsFew ||= FEW.test(text)
    }
    if (/(^|\/)crds\/.+\.ya?ml$/.test(path)) defined.push(...definedIn(content.toString()))
  }
  if (name === '') throw new Error(`${join(folder, 'Chart.yaml')} has no name: give the chart one`)
  return {
    folder,
    name,
    digest: digest.digest('hex'),
    hasNotes: paths.includes('templates/NOTES.txt'),
    isRandom: unstable.some(({ advice }) => advice === RANDOM || advice === KEYED),
    drawsFew,
    keyed: keyedIn(unstable),
    hasDeletionHooks,
    readsClock: unstable.some(({ advice }) => advice === CLOCK),
    unstable,
    defined,
  }
}

/** What a named template draws, any template may use. */
function keyedIn(unstable: readonly Unstable[]): readonly string[] | undefined {
  const files = unstable.flatMap(({ advice, place }) => (advice === KEYED ? [place.replace(/:\d+$/, '')] : []))
  return files.some((file) => /\.(tpl|tgz)$|(^|\/)_[^/]*$/.test(file)) ? undefined : files
}

/** In an archive, only the archive is named. */
function unstableIn(path: string, text: string): Unstable[] {
  const found = new Map<string, Unstable>()
  for (const { 0: action, index } of text.matchAll(/\{\{.*?\}\}/gs)) {
    // Texts and comments keep their length, so that the place of what follows stays.
    const code = action.replaceAll(/"(?:\\.|[^"\\])*"|`[^`]*`|\/\*.*?\*\//gs, (quoted) => ' '.repeat(quoted.length))
    for (const { 0: name, index: at } of code.matchAll(/(?<![\w.$])[A-Za-z]\w*/g)) {
      const advice = Object.hasOwn(ADVICE, name) ? ADVICE[name] : undefined
      if (advice === undefined) continue
      const line = text.slice(0, index + at).split('\n').length
      const place = path.endsWith('.tgz') ? path : `${path}:${line}`
      found.set(`${place} ${name}`, { place, name, advice })
    }
  }
  return [...found.values()]
}

interface Definition {
  kind?: string
  spec?: { group?: string; scope?: string; names?: { kind?: string; plural?: string } }
}

const definedIn = (text: string): DefinedKind[] =>
  parseAllDocuments(text).flatMap((document) => {
    const { kind, spec } = (document.toJS() ?? {}) as Definition
    const { group = '', scope = 'Namespaced', names } = spec ?? {}
    if (kind !== 'CustomResourceDefinition' || names?.kind === undefined || names.plural === undefined) return []
    return [{ group, kind: names.kind, plural: names.plural, scope }]
  })
