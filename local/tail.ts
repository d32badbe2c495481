import { closeSync, fstatSync, openSync, readSync } from 'node:fs'

const BYTES = 8192

/** The last lines of a log, at most 8 KiB of it; a note where there is none. */
export function tailOf(file: string, lines = 20): string {
  let fd: number
  try {
    fd = openSync(file, 'r')
  } catch {
    return `(no log at ${file})`
  }
  try {
    const size = fstatSync(fd).size
    const buffer = Buffer.alloc(Math.min(size, BYTES))
    readSync(fd, buffer, 0, buffer.length, size - buffer.length)
    return buffer.toString('utf8').trimEnd().split('\n').slice(-lines).join('\n') || `(${file} is empty)`
  } finally {
    closeSync(fd)
  }
}
