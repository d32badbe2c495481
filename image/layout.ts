import { type FileHandle, open, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { UsageError } from '#host/exit'
import { type Blob, blob, type Descriptor, digestOf, type Index } from './blob.ts'
import { DigestMismatchError } from './errors.ts'

const BLOCK = 512

/** An OCI image layout on this machine: a folder or an archive. */
export interface Layout {
  /** The single image of the layout: an index or a manifest. */
  root: Blob
  read(part: Descriptor): Promise<Buffer<ArrayBuffer>>
}

export async function openLayout(path: string): Promise<Layout> {
  const contents = (await stat(path)).isDirectory() ? folder(path) : await archive(path)
  const index = JSON.parse((await contents('index.json')).toString()) as Index
  const [only, ...others] = index.manifests
  if (only === undefined || others.length > 0)
    throw new UsageError(`${path} has ${index.manifests.length} images: give a layout with one`)
  const read = async ({ digest }: Descriptor) => {
    const bytes = await contents(`blobs/${digest.replace(':', '/')}`)
    if (digestOf(bytes) !== digest)
      throw new DigestMismatchError(`${digest} in ${path} has contents that do not match its digest`)
    return bytes
  }
  return { root: blob(only.mediaType, await read(only)), read }
}

type Contents = (name: string) => Promise<Buffer<ArrayBuffer>>

const missing = (path: string, name: string, cause?: unknown): UsageError =>
  new UsageError(`${path} is not an OCI image layout: it has no ${name}`, { cause })

const folder =
  (path: string): Contents =>
  async (name) =>
    readFile(join(path, name)).catch((cause: unknown) => {
      throw missing(path, name, cause)
    })

/** Reads the positions of all files of the archive once, and their bytes on demand. */
async function archive(path: string): Promise<Contents> {
  const files = new Map<string, { offset: number; size: number }>()
  await using handle = await open(path)
  const { size: end } = await handle.stat()
  for (let at = 0; at + BLOCK <= end; ) {
    const header = await bytesAt(handle, at, BLOCK)
    const name = text(header, 0, 100)
    if (name === '') break
    const size = Number.parseInt(text(header, 124, 12), 8)
    if (text(header, 257, 5) !== 'ustar' || !Number.isSafeInteger(size)) throw missing(path, 'tar header')
    const prefix = text(header, 345, 155)
    files.set((prefix === '' ? name : `${prefix}/${name}`).replace(/^\.\//, ''), { offset: at + BLOCK, size })
    at += BLOCK + Math.ceil(size / BLOCK) * BLOCK
  }
  return async (name) => {
    const found = files.get(name)
    if (found === undefined) throw missing(path, name)
    await using file = await open(path)
    return bytesAt(file, found.offset, found.size)
  }
}

async function bytesAt(handle: FileHandle, offset: number, size: number): Promise<Buffer<ArrayBuffer>> {
  const bytes = Buffer.alloc(size)
  const { bytesRead } = await handle.read(bytes, 0, size, offset)
  return bytes.subarray(0, bytesRead)
}

const text = (header: Buffer, from: number, length: number): string => {
  const field = header.subarray(from, from + length)
  const end = field.indexOf(0)
  return field.subarray(0, end === -1 ? length : end).toString()
}
