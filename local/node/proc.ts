import { readdir, readFile, readlink } from 'node:fs/promises'
import { basename } from 'node:path'

export interface RunningProgram {
  pid: number
  /** The file name of the program at its start. */
  program: string
  args: string[]
}

/** Returns the programs on this machine that this process may inspect. */
export async function runningPrograms(): Promise<RunningProgram[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const programs = await Promise.all(pids.map(programOf))
  return programs.filter((program) => program !== undefined)
}

async function programOf(pid: string): Promise<RunningProgram | undefined> {
  try {
    const file = await readlink(`/proc/${pid}/exe`)
    const args = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0')
    return { pid: Number(pid), program: basename(file.replace(/ \(deleted\)$/, '')), args }
  } catch {
    return undefined // the process has ended, or is a kernel thread
  }
}

export function killNow(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}
