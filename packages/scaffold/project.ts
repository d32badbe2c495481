import { readdir, readFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import type { KindNames } from './names.ts'

const TEMPLATES = join(import.meta.dirname, 'templates')

/** The templates, each with its folders in templates/. */
export const TEMPLATE_FOLDERS = {
  resource: ['project', 'resource'],
  objects: ['project', 'objects'],
  existing: ['project'],
  helm: ['project', 'helm'],
  'http-python': ['http', 'python'],
  'http-go': ['http', 'go'],
} as const
export type TemplateName = keyof typeof TEMPLATE_FOLDERS

/** The texts of files, keyed by their paths in the project. */
export type Files = Map<string, string>

export interface ProjectOptions {
  template: TemplateName
  /** `my-operator` */
  project: string
  names: KindNames
  /** The version or path that npm installs as `fairlead`. */
  fairlead: string
  /** The name of the chart, for the template `helm`. */
  chart?: string | undefined
}

export async function projectFiles({ template, project, names, fairlead, chart = '' }: ProjectOptions): Promise<Files> {
  const texts = { 'my-operator': project, FAIRLEAD: fairlead, CHART: chart }
  const files: Files = new Map()
  for (const folder of TEMPLATE_FOLDERS[template])
    for (const [path, text] of await filesOf(folder)) files.set(named(path, names), named(text, names, texts))
  return files
}

/** Returns the files of one more kind: its function, tests and example. */
export async function kindFiles(names: KindNames): Promise<Files> {
  const files = [...(await filesOf('resource'))].filter(([path]) => path !== 'src/index.ts')
  return new Map(files.map(([path, text]) => [named(path, names), named(text, names)]))
}

/** Replaces the names in a template. The templates are a working project for the kind Website. */
function named(
  text: string,
  { kind, plural, singular, group }: KindNames,
  others: Record<string, string> = {},
): string {
  const words = { Website: kind, websites: plural, website: singular, 'example.com': group, ...others }
  const any = new RegExp(
    Object.keys(words)
      .map((word) => RegExp.escape(word))
      .join('|'),
    'g',
  )
  return text.replaceAll(any, (word) => words[word as keyof typeof words])
}

/** Restores names: npm leaves files such as .gitignore out of packages, so their dot is stored as _. */
const ofProject = (path: string): string => path.replace(/^_(?=git)/, '.').replace(/^_/, '')

/** Reads the files of a template folder, keyed by their paths in a project. */
export async function filesOf(template: string): Promise<Files> {
  const root = join(TEMPLATES, template)
  const entries = await readdir(root, { recursive: true, withFileTypes: true })
  const paths = entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => relative(root, join(parentPath, name)))
  const files = paths.sort().map(async (path) => [ofProject(path), await readFile(join(root, path), 'utf8')] as const)
  return new Map(await Promise.all(files))
}
