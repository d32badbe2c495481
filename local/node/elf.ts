const PROGRAM_HEADER_INTERPRETER = 3

/**
 * Whether a Linux program (64-bit ELF, little-endian) runs without shared libraries: it names no loader. False for
 * other files.
 */
export function isStaticProgram(file: Buffer): boolean {
  if (file.length < 64 || file.readUInt32BE(0) !== 0x7f454c46 || file[4] !== 2 || file[5] !== 1) return false
  const table = Number(file.readBigUInt64LE(32))
  const entrySize = file.readUInt16LE(54)
  const entries = file.readUInt16LE(56)
  if (table + entries * entrySize > file.length) return false
  const types = Array.from({ length: entries }, (_, index) => file.readUInt32LE(table + index * entrySize))
  return entries > 0 && !types.includes(PROGRAM_HEADER_INTERPRETER)
}
