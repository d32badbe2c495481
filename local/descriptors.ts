import { readdirSync, readFileSync } from 'node:fs'

const O_CLOEXEC = 0o2000000

/**
 * Returns the open files above standard error that child processes would inherit. This process has inherited them
 * itself, such as bash's pipe for `2> >(…)`, since Node.js opens its own files with O_CLOEXEC. Empty on macOS, where
 * the spawn of Node.js passes only the files of its options.
 */
export function inheritableDescriptors(): number[] {
  if (process.platform !== 'linux') return []
  return readdirSync('/proc/self/fd')
    .map(Number)
    .filter((descriptor) => descriptor > 2 && isInheritable(descriptor))
}

function isInheritable(descriptor: number): boolean {
  try {
    const [, flags = ''] = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'utf8')) ?? []
    return (Number.parseInt(flags, 8) & O_CLOEXEC) === 0
  } catch {
    // The descriptor that read the folder is closed again.
    return false
  }
}
