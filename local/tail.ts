import { closeSync, fstatSync, openSync, readSync } from 'node:fs'

const BYTES = 8192

/** Returns the last lines of a log, from at most 8 KiB; a note if the log does not exist. */
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
