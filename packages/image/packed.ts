import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { basename, join, posix } from 'node:path'
import { ancestors, entriesFrom, type TarEntry } from './files.ts'

/** The entries of a folder in an image, and the paths of files and folders that were left out because of their names. */
export interface Packed {
  entries: TarEntry[]
  /** The paths in the image, as `app/.env`. */
  credentials: string[]
}

/** Names of files and folders that tools write credentials to. */
const CREDENTIALS = [
  /^\.env/i,
  /^(\.npmrc|\.yarnrc|\.yarnrc\.yml|[._]netrc|\.pypirc|\.pgpass|\.my\.cnf|\.git-credentials|\.htpasswd|\.vault-token)$/i,
  /^(\.docker|\.dockercfg|\.dockerconfigjson|\.kube|\.ssh|\.aws|\.azure|\.gcloud|\.gnupg)$/i,
  /^(.*[-._])?kubeconfig([-_][^.]*)?(\.(ya?ml|json|conf))?$/i,
  /^(credentials|application_default_credentials|service[-_]?account.*)\.json$/i,
  /^id_(rsa|dsa|ecdsa|ed25519)(_sk)?$/i,
  /\.(pem|key|p8|p12|pfx|jks|keystore|ppk|kdbx)$/i,
]

/**
 * Returns a folder as entries, without node_modules, version control and credentials. A folder with a package.json is
 * packed as npm packs it: by `files` and `.npmignore`, if `asPackage` is set. A path that is a file is always packed.
 */
export async function packed(
  from: string,
  path: string,
  { asPackage, without = () => false }: { asPackage: boolean; without?: (name: string) => boolean },
): Promise<Packed> {
  const credentials: string[] = []
  const rules = asPackage && existsSync(join(from, 'package.json')) ? await npmRules(from) : undefined
  const entries = await entriesFrom(from, path, async (below, isFolder) => {
    const name = basename(below)
    if (name === 'node_modules' || name === '.git' || without(name)) return false
    if (rules !== undefined && !isFolder && !(await rules(below))) return false
    if (!CREDENTIALS.some((one) => one.test(name)) || (!isFolder && (await isCertificate(join(from, below)))))
      return true
    credentials.push(posix.join(path, below))
    return false
  })
  return { entries, credentials }
}

/** Whether a file in PEM has certificates or public keys, and nothing else. */
async function isCertificate(file: string): Promise<boolean> {
  if (!/\.pem$/i.test(file)) return false
  const text = await readFile(file, 'latin1').catch(() => '')
  const kinds = [...text.matchAll(/-----BEGIN ([^-]+)-----/g)].map(([, kind]) => kind)
  return kinds.length > 0 && kinds.every((kind) => kind === 'CERTIFICATE' || kind === 'PUBLIC KEY')
}

/** A pattern of `.npmignore` or `files`. The last one that matches a path decides. */
interface Rule {
  pattern: RegExp
  isNegated: boolean
  isForFolders: boolean
}

interface PackageJson {
  files?: readonly string[]
  main?: string
  bin?: string | Record<string, string>
}

/** Whether npm would pack a file, by its path in the package. */
type Packs = (path: string) => Promise<boolean>

/** `files` replaces the `.npmignore` beside it. The `.npmignore` of a folder below counts in both cases. */
async function npmRules(folder: string): Promise<Packs> {
  const { files, main, bin = [] } = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')) as PackageJson
  const named = [main, ...(typeof bin === 'string' ? [bin] : Object.values(bin))].filter((one) => one !== undefined)
  const always = new Set(['package.json', ...named.flatMap((one) => [normal(one), `${normal(one)}.js`])])
  const allowed = files?.map((one) => allowance(one))
  const ignored = new Map<string, Promise<Rule[]>>()
  const ignoredIn = (at: string): Promise<Rule[]> => {
    const known = ignored.get(at) ?? ignoreRules(join(folder, at, '.npmignore'))
    ignored.set(at, known)
    return known
  }
  return async (path) => {
    if (always.has(path) || /^(readme|licen[cs]e)(\.[^/]*)?$/i.test(path)) return true
    if (allowed !== undefined && deciding(allowed, path)?.isNegated !== false) return false
    for (let at = posix.dirname(path); ; at = posix.dirname(at)) {
      if (at === '.' && allowed !== undefined) return true
      const rule = deciding(await ignoredIn(at), posix.relative(at, path))
      if (rule !== undefined) return rule.isNegated
      if (at === '.') return true
    }
  }
}

async function ignoreRules(file: string): Promise<Rule[]> {
  if (!existsSync(file)) return []
  const lines = (await readFile(file, 'utf8')).split(/\r?\n/).map((line) => line.replace(/(?<!\\)\s+$/, ''))
  return lines.filter((line) => line !== '' && !line.startsWith('#')).map((line) => ruleOf(line))
}

const normal = (path: string): string => posix.normalize(path).replace(/^\/|\/$/g, '')

/** An entry of `files`: a file, a folder with all that is in it, or a glob. */
function allowance(entry: string): Rule {
  const [, not = '', pattern = ''] = /^(!?)(?:\.?\/)?(.*)$/.exec(entry) ?? []
  const isGlob = /[*?[{]/.test(pattern)
  return ruleOf(`${not}${isGlob && !pattern.includes('/') ? '' : '/'}${normal(pattern)}`)
}

/** Returns the last rule that matches the file or a folder that it is in. */
function deciding(rules: readonly Rule[], path: string): Rule | undefined {
  const folders = ['.', ...ancestors(path)]
  return rules.findLast(
    ({ pattern, isForFolders }) =>
      (!isForFolders && pattern.test(path)) || folders.some((folder) => pattern.test(folder)),
  )
}

/** Reads a line in the syntax of .gitignore. A pattern without a slash before its end matches at any depth. */
function ruleOf(line: string): Rule {
  const [, not = '', text = ''] = /^(!?)(.*)$/.exec(line) ?? []
  const isForFolders = text.endsWith('/')
  const bare = text.replace(/\/$/, '')
  const prefix = bare.includes('/') ? '' : '(?:.*/)?'
  return {
    pattern: new RegExp(`^${prefix}${globOf(bare.replace(/^\//, ''))}$`, 'i'),
    isNegated: not !== '',
    isForFolders,
  }
}

/** Parts of a glob, keyed by what they begin with; the first that matches counts. */
const PARTS: readonly [RegExp, (found: RegExpExecArray) => string][] = [
  [/^\*\*\//, () => '(?:.*/)?'],
  [/^\*\*/, () => '.*'],
  [/^\*/, () => '[^/]*'],
  [/^\?/, () => '[^/]'],
  [/^\[([!^]?)([^\]]+)\]/, ([, not, set = '']) => `[${not ? '^' : ''}${set.replaceAll('\\', '\\\\')}]`],
  [/^\{([^{}]*)\}/, ([, options = '']) => `(?:${options.split(',').map(globOf).join('|')})`],
  [/^\\?([^])/, ([, character = '']) => character.replace(/[$()*+.?[\\\]^{|}]/, '\\$&')],
]

function globOf(glob: string): string {
  let pattern = ''
  for (let rest = glob; rest !== ''; ) {
    const [found, write] = PARTS.map(([start, write]) => [start.exec(rest), write] as const).find(([one]) => one) ?? []
    if (!found || write === undefined) break
    pattern += write(found)
    rest = rest.slice(found[0].length)
  }
  return pattern
}
