import { writeFile } from 'node:fs/promises'
import { UsageError } from '#host/exit'
import { DEFAULT_BASE, makeBundleImage, makeImage } from '#image'
import type { Print } from '../options.ts'

export interface ImageCommandOptions {
  push?: string
  output?: string
  base?: string
  include: string[]
  add: string[]
  platform: string
  label: string[]
  sbom?: string
  plainHttp: boolean
  bundle: boolean
  start?: string
}

/** Prints the reference by digest of the pushed image, or the digest of the written one. */
export async function image(folder: string, options: ImageCommandOptions, print: Print): Promise<void> {
  const { push, output, base = DEFAULT_BASE, include, add, platform, label, sbom, plainHttp } = options
  if (push === undefined && output === undefined)
    throw new UsageError('give a destination: --push REGISTRY/NAME:TAG, or --output FILE.tar')
  if (options.bundle) return print(await makeBundleImage(folder, { push, output, plainHttp }))
  const platforms = platform.split(',').map((one) => one.trim())
  for (const one of platforms)
    if (!/^linux\/[a-z0-9]+$/.test(one)) throw new UsageError(`"${one}" is not a platform: write it like linux/amd64`)
  const labels = Object.fromEntries(label.map(labelOf))
  const made = await makeImage(folder, {
    base,
    include: include.length === 0 ? ['src'] : include,
    add,
    platforms,
    labels,
    start: options.start?.split(/\s+/).filter(Boolean) ?? [],
    push,
    output,
    plainHttp,
  })
  if (sbom !== undefined) await writeFile(sbom, made.sbom)
  for (const { createdBy, digest, size } of made.layers)
    console.error(`${createdBy}: ${(size / 1e6).toFixed(1)} MB, ${digest}`)
  print(made.reference ?? made.digest)
}

function labelOf(text: string): [string, string] {
  const [, key = '', value = ''] = /^([^=]+)=(.*)$/s.exec(text) ?? []
  if (key === '') throw new UsageError(`"${text}" is not a label: write it like key=value`)
  return [key, value]
}
