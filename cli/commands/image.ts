import { DEFAULT_BASE, listImage, makeBundleImage, makeImage } from '#image'
import { oneLine, UsageError } from '#process/exit'
import type { Print } from '../options.ts'

export interface ImageCommandOptions {
  push?: string
  output?: string
  base?: string
  include: string[]
  add: string[]
  platform: string
  plainHttp: boolean
  bundle: boolean
  list: boolean
  start?: string
}

/** Prints the reference by digest of the pushed image, or the digest of the written one. With --list, the paths in it. */
export async function image(folder: string, options: ImageCommandOptions, print: Print): Promise<void> {
  const { push, output, base = DEFAULT_BASE, include, add, platform, plainHttp } = options
  if (options.list && options.bundle)
    throw new UsageError('--list prints the files of a project: a bundle has the files of manifests/ and metadata/')
  if (!options.list && push === undefined && output === undefined)
    throw new UsageError('give a destination: --push REGISTRY/NAME:TAG, or --output FILE.tar')
  if (options.bundle) return print(await makeBundleImage(folder, { push, output, plainHttp }))
  const platforms = platform.split(',').map((one) => one.trim())
  for (const one of platforms)
    if (!/^linux\/[a-z0-9]+$/.test(one)) throw new UsageError(`"${one}" is not a platform: write it like linux/amd64`)
  const files = { include: include.length === 0 ? ['src'] : include, add, platforms }
  if (options.list) {
    const { entries, credentials } = await listImage(folder, files)
    for (const entry of entries)
      if (entry.type !== 'directory') print(entry.type === 'link' ? `${entry.path} -> ${entry.target}` : entry.path)
    return warnOf(credentials)
  }
  const made = await makeImage(folder, {
    ...files,
    base,
    start: options.start?.split(/\s+/).filter(Boolean) ?? [],
    push,
    output,
    plainHttp,
    warn: (line) => console.error(`fairlead image: ${line}`),
  })
  for (const { createdBy, files, digest, size } of made.layers)
    console.error(`${createdBy}: ${files} files, ${sizeText(size)}, ${digest}`)
  warnOf(made.credentials)
  print(made.reference ?? made.digest)
}

const sizeText = (bytes: number): string =>
  bytes < 1e6 ? `${Math.ceil(bytes / 1000)} kB` : `${(bytes / 1e6).toFixed(1)} MB`

function warnOf(credentials: readonly string[]): void {
  if (credentials.length === 0) return
  const names = credentials.slice(0, 10).map((one) => oneLine(one))
  const more = credentials.length > names.length ? ` and ${credentials.length - names.length} more` : ''
  console.error(
    `fairlead image: left out, because such names are those of credentials: ${names.join(', ')}${more}. To pack a file nevertheless, name it: --include FILE`,
  )
}
