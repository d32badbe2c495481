import { readdirSync, readFileSync } from 'node:fs'

/** Command lines of the living processes of this machine that name `text`, our own left out. Linux only. */
export function programsWith(text: string): string[] {
  const pids = readdirSync('/proc').filter((entry) => /^\d+$/.test(entry) && Number(entry) !== process.pid)
  return pids.map(commandLineOf).filter((line) => line.includes(text))
}

function commandLineOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ')
  } catch {
    return ''
  }
}

export { until } from '../support/wait.ts'
