const BLOCK = 512

/** An entry of a tar archive. `path` is relative, without a slash at either end. */
export type TarEntry =
  | { type: 'file'; path: string; mode: number; content: Uint8Array }
  | { type: 'directory'; path: string; mode: number }
  | { type: 'link'; path: string; target: string }

/**
 * Returns a POSIX tar archive (ustar, with pax records for long names), owned by root, all times 0: the same entries
 * give the same bytes.
 */
export function tar(entries: readonly TarEntry[]): Buffer<ArrayBuffer> {
  return Buffer.concat([...entries.flatMap(tarEntry), tarEnd()])
}

/** Returns the end of an archive. */
export const tarEnd = (): Buffer<ArrayBuffer> => Buffer.alloc(2 * BLOCK)

/** Returns the blocks of one entry, for an archive that is written in pieces. */
export function tarEntry(entry: TarEntry): Uint8Array[] {
  const target = entry.type === 'link' ? entry.target : ''
  const name = entry.type === 'directory' ? `${entry.path}/` : entry.path
  const content = entry.type === 'file' ? entry.content : new Uint8Array()
  const mode = entry.type === 'link' ? 0o777 : entry.mode
  const flag = { file: '0', link: '2', directory: '5' }[entry.type]
  return [
    ...longNames(name, target),
    header({ name: cut(name), mode, size: content.length, flag, target: cut(target) }),
    ...padded(content),
  ]
}

/** Returns a pax record for names over 100 bytes, which are cut in the entry itself. */
function longNames(name: string, target: string): Uint8Array[] {
  const records = [
    ...(Buffer.byteLength(name) > 100 ? [paxRecord('path', name)] : []),
    ...(Buffer.byteLength(target) > 100 ? [paxRecord('linkpath', target)] : []),
  ]
  if (records.length === 0) return []
  const content = Buffer.from(records.join(''))
  return [header({ name: 'pax', mode: 0o644, size: content.length, flag: 'x', target: '' }), ...padded(content)]
}

/** Returns `LENGTH KEY=VALUE\n`. LENGTH counts the whole record, including its own digits. */
function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`
  const bytes = Buffer.byteLength(rest)
  let length = bytes + String(bytes).length
  if (String(length).length > String(bytes).length) length = bytes + String(length).length
  return `${length}${rest}`
}

function cut(name: string): Buffer {
  return Buffer.from(name).subarray(0, 100)
}

interface Header {
  name: Buffer | string
  mode: number
  /** The size in bytes, below 8 GiB: the field has 11 octal digits. */
  size: number
  flag: string
  target: Buffer | string
}

function header({ name, mode, size, flag, target }: Header): Buffer {
  const block = Buffer.alloc(BLOCK)
  Buffer.from(name).copy(block, 0)
  block.write(octal(mode, 7), 100)
  block.write(octal(0, 7), 108) // uid
  block.write(octal(0, 7), 116) // gid
  block.write(octal(size, 11), 124)
  block.write(octal(0, 11), 136) // mtime
  block.write(' '.repeat(8), 148) // the checksum counts its own field as spaces
  block.write(flag, 156)
  Buffer.from(target).copy(block, 157)
  block.write('ustar\x0000', 257)
  const checksum = block.reduce((sum, byte) => sum + byte, 0)
  block.write(`${octal(checksum, 6)}\0 `, 148)
  return block
}

function octal(value: number, digits: number): string {
  return value.toString(8).padStart(digits, '0')
}

function padded(content: Uint8Array): Uint8Array[] {
  return [content, new Uint8Array((BLOCK - (content.length % BLOCK)) % BLOCK)]
}
