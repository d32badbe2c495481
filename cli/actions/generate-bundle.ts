import { existsSync } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import { extname, join } from 'node:path'
import { UsageError } from '#host/exit'
import { demandFunctions, type Selection } from '#host/functions'
import { bundlePackage, CAPABILITIES, CATEGORIES, olmBundle, type PackageJson } from '#install'
import { examplesIn } from '../dev/examples.ts'
import { writeFiles } from '../write-files.ts'

export interface BundleCommandOptions extends Selection {
  to: string
  image: string
  module?: string
  package: string
  examples: string[]
  namespace: string
  channels: string
  category: string
  capabilities: string
  icon?: string
  replaces?: string
}

const MEDIA_TYPES: Record<string, string> = {
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.jpg': 'image/jpeg',
  '.gif': 'image/gif',
}

/** Writes a bundle for OLM into a folder, replaces an earlier one, and returns the paths of its files. */
export async function generateBundle(options: BundleCommandOptions): Promise<string[]> {
  const { to, image, module, examples, channels, icon, replaces, namespace, category, capabilities } = options
  refuseUnknown('category', category, CATEGORIES)
  refuseUnknown('capabilities', capabilities, CAPABILITIES)
  const about = bundlePackage(await packageJson(options.package), options.package)
  const functions = await demandFunctions(options)
  const files = await olmBundle(functions, {
    about,
    image,
    module,
    namespace,
    category,
    capabilities,
    channels: channels.split(','),
    examples: (await Promise.all(examples.map(examplesIn))).flat(),
    createdAt: createdAt(process.env),
    ...(icon !== undefined && { icon: await iconOf(icon) }),
    ...(replaces !== undefined && { replaces }),
  })
  // Removes manifests of a function that no longer exists.
  for (const part of ['manifests', 'metadata']) await rm(join(to, part), { recursive: true, force: true })
  return writeFiles(to, files)
}

function refuseUnknown(option: string, value: string, known: readonly string[]): void {
  if (!known.includes(value))
    throw new UsageError(`--${option} is "${value}", which catalogs do not know: ${known.join(', ')}`)
}

async function packageJson(file: string): Promise<PackageJson> {
  if (!existsSync(file)) throw new UsageError(`the file ${file} does not exist: name a package.json with --package`)
  return JSON.parse(await readFile(file, 'utf8')) as PackageJson
}

async function iconOf(file: string): Promise<{ base64data: string; mediatype: string }> {
  const mediatype = MEDIA_TYPES[extname(file)]
  if (mediatype === undefined || !existsSync(file))
    throw new UsageError(
      `the icon ${file} cannot be read: name an existing file that ends in ${Object.keys(MEDIA_TYPES).join(', ')}`,
    )
  return { base64data: (await readFile(file)).toString('base64'), mediatype }
}

/** Returns the time of SOURCE_DATE_EPOCH, or the current time. */
function createdAt({ SOURCE_DATE_EPOCH: seconds }: NodeJS.ProcessEnv): string {
  const time = seconds === undefined || seconds === '' ? new Date() : new Date(Number(seconds) * 1000)
  if (Number.isNaN(time.getTime()))
    throw new UsageError(`SOURCE_DATE_EPOCH is "${seconds}": give whole seconds since 1970`)
  return time.toISOString().replace(/\.\d+Z$/, 'Z')
}
